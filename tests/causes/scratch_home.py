"""A home folder for one run of the corpus.

Owns: the folder, stopping its server.
Leaves: what runs in it to torchyard_jobs.py.
Always: nothing is left of it, neither a process nor a file.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def scratch_home() -> Iterator[Path]:
    # The key of its secrets lies beside it.
    folder = Path(tempfile.mkdtemp(prefix="torchyard-causes-"))
    home = folder / "home"
    home.mkdir(mode=0o700)
    before = os.environ.get("TORCHYARD_HOME")
    os.environ["TORCHYARD_HOME"] = str(home)
    try:
        yield home
    finally:
        yard = Path(sys.executable).with_name("yard")
        subprocess.run([yard, "server", "stop"], capture_output=True, timeout=60, check=False)
        os.environ.pop("TORCHYARD_HOME")
        if before is not None:
            os.environ["TORCHYARD_HOME"] = before
        _end_processes(home)
        _remove(folder)


def _end_processes(home: Path) -> None:
    """What still runs of a run that was interrupted; known by the home in its variables."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            process_text = (folder / "cmdline").read_bytes() + (folder / "environ").read_bytes()
            if str(home).encode() in process_text and int(folder.name) != os.getpid():
                os.kill(int(folder.name), signal.SIGKILL)


def _remove(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IRWXU)
    shutil.rmtree(folder, ignore_errors=True)
