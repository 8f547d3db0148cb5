"""Where uv keeps what it downloads, when that is a folder of ours.

Owns: who uses the folder at the moment, when it was used last, removing it.
Leaves: whether it is needed to `yard gc`, what is in it to uv.
Always: nobody who uses it loses it; many may use it at once. The lock ends with its holder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Beside the folder: what is removed can't hold the lock of its own removal.
_LOCK, _GONE = ".uv.lock", ".removing-uv"


def folder(home: Path) -> Path:
    return home / "cache" / "uv"


@contextmanager
def in_use(home: Path) -> Iterator[None]:
    """Keep the folder for the length of the block; a removal is waited for, which is short."""
    with _locked(home, fcntl.LOCK_SH):
        folder(home).mkdir(parents=True, exist_ok=True)
        os.utime(folder(home))
        yield


def remove(home: Path) -> bool:
    """Remove it all; False when somebody uses it. What comes later downloads anew."""
    gone = folder(home).with_name(_GONE)
    try:
        with _locked(home, fcntl.LOCK_EX | fcntl.LOCK_NB):
            shutil.rmtree(gone, ignore_errors=True)
            with suppress(FileNotFoundError):
                folder(home).rename(gone)
    except BlockingIOError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


@contextmanager
def _locked(home: Path, how: int) -> Iterator[None]:
    above = folder(home).parent
    above.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(above / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)
