"""Caches of builds that are folders of the server's: uv's, and that of compiled modules.

Owns: locking it while it is used, the time of its last use, removing it.
Leaves: whether it is needed to `yard gc`, its content to uv and build/bytecode_links.py.
Always: it is never removed while it is used; several may use it at once. Locks end with their
holders.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchyard.shared import locks


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Lock the folder against removal during the block; waits for a removal, which is short."""
    with _open_lock(folder) as descriptor:
        locks.lock(descriptor, shared=True)
        folder.mkdir(parents=True, exist_ok=True)
        os.utime(folder)
        yield


def remove(folder: Path) -> bool:
    """Remove it; False when it is in use. Later builds download again."""
    trash = folder.with_name(f".removing-{folder.name}")
    with _open_lock(folder) as descriptor:
        if not locks.try_lock(descriptor):
            return False
        shutil.rmtree(trash, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)
    return True


@contextmanager
def _open_lock(folder: Path) -> Iterator[int]:
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, since a removed folder can't hold the lock for its removal.
    descriptor = locks.open_lock(folder.with_name(f".{folder.name}.lock"))
    try:
        yield descriptor
    finally:
        os.close(descriptor)
