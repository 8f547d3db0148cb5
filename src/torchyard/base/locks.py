"""Locks among all threads and programs that share a folder.

Owns: waiting for a file's lock, and giving up.
Leaves: which file stands for what to the rooms.
Always: a lock ends with whoever holds it, killed or not; its file stays, for a file that is
removed could be locked twice.

Source: flock(2); each opening of a file locks for itself, so threads exclude each other, too.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

_POLL_S = 0.05


@contextmanager
def held(file: Path, cancelled: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold the file's lock for the length of the block.

    Args:
        cancelled: asked a few times a second while another one holds it.

    Yields whether it is held: not, when `cancelled` said yes.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _taken(descriptor, cancelled)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, cancelled: Callable[[], bool]) -> bool:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if cancelled():
                return False
            time.sleep(_POLL_S)


@contextmanager
def held_if_free(file: Path) -> Iterator[bool]:
    """As `held`, without waiting."""
    with held(file, cancelled=lambda: True) as is_held:
        yield is_held
