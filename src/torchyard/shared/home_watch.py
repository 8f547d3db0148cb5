"""End a process whose home folder was deleted: it can neither serve nor be found any more.

Owns: noticing that the folder is gone, or another one under its name.
Leaves: an orderly end to the process's own handler of SIGTERM.
Always: a disk that doesn't answer for a while ends nothing; the folder must be missing twice in a
row. The process ends even if its orderly end hangs.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

_EVERY_S = 10.0
# For the orderly end, which may wait for files that are gone.
_GRACE_S = 20.0


def watch(home: Path, every_s: float = _EVERY_S, end: Callable[[], None] | None = None) -> None:
    """Watch the folder in a thread of its own for as long as the process lives."""
    identity = _identity(home)
    arguments = (home, identity, every_s, end or _end)
    threading.Thread(target=_watch, args=arguments, name="home", daemon=True).start()


def _watch(
    home: Path, identity: tuple[int, int] | None, every_s: float, end: Callable[[], None]
) -> None:
    missing = 0
    while missing < 2:
        time.sleep(every_s)
        try:
            missing = 0 if _identity(home) == identity else missing + 1
        except OSError:
            missing = 0
    print(f"the home folder `{home}` was deleted: this process ends", file=sys.stderr, flush=True)
    end()


def _identity(home: Path) -> tuple[int, int] | None:
    """
    Raises:
        OSError: that can't be said now.
    """
    try:
        status = os.stat(home)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_S)
    os._exit(1)
