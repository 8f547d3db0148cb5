"""Files that are being written, and how anyone waits for them.

Owns: the folder of drafts, their names and locks.
Leaves: their contents to file_writer.
Always: a draft is locked as long as somebody writes it. One without a lock was left by processes
that were killed: it is not what its file will be, and who meets it removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

_state = threading.local()


def path_of(folder: Path, target: str) -> Path:
    """The draft of a file; `target` is absolute and without links."""
    return folder / hashlib.sha256(os.fsencode(target)).hexdigest()[:32]


def begin(draft: Path) -> int:
    """Return the descriptor of an empty draft that is locked, when nobody else writes it.

    Raises:
        OSError: the folder can't be written, or its filesystem has no locks.
    """
    draft.parent.mkdir(exist_ok=True)
    while True:
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_at(descriptor, draft):
                os.ftruncate(descriptor, 0)
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def end(descriptor: int) -> None:
    """Let those go on that wait, also where another process has the descriptor too."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def wait(draft: Path) -> None:
    """Return when nobody writes it any more."""
    try:
        descriptor = os.open(draft, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_at(descriptor, draft):
            os.unlink(draft)
    except OSError:
        pass  # a file system without locks has no drafts
    finally:
        os.close(descriptor)


def wait_for_all(folder: Path) -> None:
    """Return when every draft that there is now has become its file or was given up."""
    for name in names(folder):
        wait(folder / name)


def names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def is_at(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one at `path`."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def unwatched() -> Iterator[None]:
    """What this thread does in here waits for no draft."""
    before = is_unwatched()
    _state.unwatched = True
    try:
        yield
    finally:
        _state.unwatched = before


def is_unwatched() -> bool:
    return getattr(_state, "unwatched", False)
