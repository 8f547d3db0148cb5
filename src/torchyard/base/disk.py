"""A disk that is full, or fails.

Owns: which errors mean that, and the messages for them.
Leaves: freeing space to jobs/cleanup/reclaiming.py, retrying to the callers.
Always: the message names the folder by its place in the home, never the machine's whole path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchyard.base.errors import DiskFailed, DiskFull

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BROKEN = frozenset({errno.EIO, errno.EROFS})
_LEAST_BYTES = 256 << 10
AT_START = (
    "the server needs a little space to start: free some on that disk (`df -h`; `cache/uv` in the "
    "home may go as a whole), then `yard gc --explain` says what else can go"
)
"""The hint while no server runs, and `yard gc` can't help."""
_HINT = "free some space: `yard gc --explain` lists what can be removed; the server then continues"
# What marks the server's home folder.
_MARK = "server.id"


def full(device: str) -> DiskFull:
    return DiskFull(f"no space left on {device}", _HINT)


def is_full(folder: Path) -> bool:
    """Whether so little space is left that a database could not even be opened."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < _LEAST_BYTES


def failed(device: str, why: str) -> DiskFailed:
    return DiskFailed(
        f"the disk of {device} fails: {why}",
        "see `dmesg` on that machine; the server continues once the disk works",
    )


def meaning(error: BaseException, path: Path | None = None) -> DiskFull | DiskFailed | None:
    """What `error` says of the disk; None when it is about something else.

    Args:
        path: what was written, where the error does not say it.
    """
    if not isinstance(error, OSError) or error.errno not in _FULL | _BROKEN:
        return None
    file = path or (Path(error.filename) if isinstance(error.filename, str) else None)
    device = f"`{_name(file)}`" if file is not None else "the server's disk"
    return full(device) if error.errno in _FULL else failed(device, str(error.strerror))


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """
    Raises:
        DiskFull: no space is left for what the block writes to `path`.
        DiskFailed: the disk fails.
    """
    try:
        yield
    except OSError as error:
        failure = meaning(error, path)
        if failure is None:
            raise
        raise failure from error


def _name(path: Path) -> str:
    """`blobs` for a file somewhere below the home's folder `blobs`."""
    if path.is_relative_to("/proc/self/fd"):
        path = path.parent.resolve() / path.name
    for parent in path.parents:
        try:
            if (parent / _MARK).exists():
                return path.relative_to(parent).parts[0]
        except OSError:
            break
    return path.parent.name or str(path)
