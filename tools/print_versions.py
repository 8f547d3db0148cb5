"""Print the versions of what the tests of this checkout run with.

.venv/bin/python tools/print_versions.py

Owns: asking each program for its version.
Leaves: installing them to the Makefile.
Always: a missing program is printed as such and fails nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MISSING = "not installed"


def main() -> None:
    bin_folder = str(Path(sys.executable).parent)
    postgres = sorted(str(file) for file in Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    for name, words in (
        ("python", [sys.executable, "--version"]),
        ("uv", [f"{bin_folder}/uv", "--version"]),
        ("node", ["node", "--version"]),
        ("npm", ["npm", "--version"]),
        ("postgres", [shutil.which("initdb") or (postgres or ["initdb"])[-1], "--version"]),
        ("podman", ["podman", "--version"]),
        ("runc", ["runc", "--version"]),
        ("chromium", ["chromium", "--version"]),
        ("Open MPI", ["mpirun", "--version"]),
        ("systemd", ["systemd-analyze", "--version"]),
        ("Azurite", [str(ROOT / ".azurite/node_modules/.bin/azurite-blob"), "--version"]),
    ):
        print(f"{name:10} {version(words)}")
    print(f"{'torch':10} {', '.join(torch_versions()) or MISSING}")


def version(words: list[str]) -> str:
    """The first line that a program prints of its version."""
    try:
        process = subprocess.run(words, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return MISSING if isinstance(error, FileNotFoundError) else str(error)
    lines = process.stdout.strip().splitlines()
    return lines[0] if lines and process.returncode == 0 else MISSING


def torch_versions() -> Iterable[str]:
    """Of the environments that `make test-environments` built."""
    folder = Path(os.environ.get("TORCHYARD_TEST_ENVIRONMENTS") or ROOT / ".test-environments")
    folders = folder.glob("environments/*/lib/python*/site-packages/torch-*.dist-info")
    return sorted({file.name.removeprefix("torch-").removesuffix(".dist-info") for file in folders})


if __name__ == "__main__":
    main()
