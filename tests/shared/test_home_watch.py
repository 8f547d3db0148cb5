"""A process whose home was deleted ends by itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from torchyard.shared import home_watch


@pytest.mark.parametrize("replaced", [False, True])
def test_a_home_that_is_gone_ends_the_process(
    tmp_path: Path, replaced: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    ended = threading.Event()
    home_watch.watch(home, 0.01, ended.set)
    (home / "file").touch()
    if replaced:
        home.rename(tmp_path / "old")
        home.mkdir()
    else:
        shutil.rmtree(home)
    assert ended.wait(60)
    assert f"the home folder `{home}` was deleted" in capfd.readouterr().err


def test_the_process_ends(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from torchyard.shared import home_watch; "
        "home_watch.watch(Path(sys.argv[1]), 0.01); print(1, flush=True); time.sleep(600)"
    )
    home = tmp_path / "home"
    home.mkdir()
    words = [sys.executable, "-c", program, str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"1\n"
        home.rmdir()
        assert process.wait(60) == -15
