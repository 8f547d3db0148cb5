"""Where uv keeps what it downloads, when that is a folder of ours.

Owns: who uses the folder at the moment, when it was used last, removing it.
Leaves: whether it is needed to `yard gc`, what is in it to uv.
Always: nobody who uses it loses it; many may use it at once. The lock ends with its holder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchyard.shared import locks

# Beside the folder: what is removed can't hold the lock of its own removal.
_LOCK, _GONE = ".uv.lock", ".removing-uv"


def folder(home: Path) -> Path:
    return home / "cache" / "uv"


@contextmanager
def in_use(home: Path) -> Iterator[None]:
    """Keep the folder for the length of the block; a removal is waited for, which is short."""
    with _open_lock(home) as descriptor:
        locks.lock(descriptor, shared=True)
        folder(home).mkdir(parents=True, exist_ok=True)
        os.utime(folder(home))
        yield


def remove(home: Path) -> bool:
    """Remove it all; False when somebody uses it. What comes later downloads anew."""
    gone = folder(home).with_name(_GONE)
    with _open_lock(home) as descriptor:
        if not locks.try_lock(descriptor):
            return False
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder(home).rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True


@contextmanager
def _open_lock(home: Path) -> Iterator[int]:
    parent = folder(home).parent
    parent.mkdir(parents=True, exist_ok=True)
    descriptor = locks.open_lock(parent / _LOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
