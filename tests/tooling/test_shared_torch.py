"""The versions of the environments that tests share, in a checkout anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from end_to_end import shared_torch
from environments import wheels
from torchyard.base.home.uv import find_uv


def test_uv_takes_the_versions_of_a_file_below_a_folder_with_a_space(tmp_path: Path) -> None:
    folder = tmp_path / "my checkout" / "50%"
    folder.mkdir(parents=True)
    for version in ("1.0", "2.0"):
        wheels.put(folder, "digits", version)
    versions = folder / "digits.txt"
    versions.write_text("digits==1.0\n")
    ran = subprocess.run(
        [find_uv(), "pip", "compile", "-", "--no-config", "--offline", "--no-index",
         "--find-links", folder, "--python", sys.executable, "--no-header", "--no-annotate",
         "--cache-dir", tmp_path / "cache"],
        env={**os.environ, **shared_torch.overriding(versions)},
        input="digits\n", capture_output=True, text=True,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (0, "digits==1.0\n"), ran.stderr
