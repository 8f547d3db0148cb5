"""Locks among all threads and programs that share a folder.

Owns: taking a file's lock, waiting for it, and giving up.
Leaves: which file stands for what to its users.
Always: a lock ends with its holder, killed or not; its file stays, for a file that is removed
could be locked twice.

Source: flock(2); each opening of a file locks for itself, so threads exclude each other, too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Union

OpenFile = Union[int, IO[Any]]
_POLL_S = 0.05


def lock(file: OpenFile, shared: bool = False) -> None:
    """Wait for the lock of an open file; it is held until the file is closed."""
    import fcntl  # Linux and macOS: a command elsewhere imports this module and locks nothing

    fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)


def try_lock(file: OpenFile, shared: bool = False) -> bool:
    """As `lock`, without waiting; False when somebody else holds it.

    Raises:
        OSError: this file system has no locks.
    """
    import fcntl  # as above

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def unlock(file: OpenFile) -> None:
    """Give a lock back before its file is closed."""
    import fcntl  # as above

    fcntl.flock(file, fcntl.LOCK_UN)


def open_lock(file: Path) -> int:
    """A descriptor of the lock's file, which is made when it is not there."""
    return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def share_until_exit(file: Path) -> None:
    """Share an existing file's lock until this process ends, unless somebody has it alone.

    Raises:
        OSError: the file is not there, or belongs to another user.
    """
    try_lock(os.open(file, os.O_RDONLY | os.O_CLOEXEC), shared=True)


@contextmanager
def hold(file: Path, canceled: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold the file's lock for the length of the block.

    Args:
        canceled: called a few times a second while somebody else holds the lock.

    Yields whether it is held: not, when `canceled` returned true.
    """
    descriptor = open_lock(file)
    try:
        yield _wait(descriptor, canceled)
    finally:
        os.close(descriptor)


@contextmanager
def held_if_free(file: Path) -> Iterator[bool]:
    """As `hold`, without waiting."""
    with hold(file, canceled=lambda: True) as is_held:
        yield is_held


def _wait(descriptor: int, canceled: Callable[[], bool]) -> bool:
    while not try_lock(descriptor):
        if canceled():
            return False
        time.sleep(_POLL_S)
    return True
