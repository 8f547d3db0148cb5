"""A node's disk that is full, or fails.

Owns: which errors mean that, the failure that users see.
Leaves: the ranks' own writes to worker/diagnosis/causes.py.
Always: such an error does not count as an unreachable server: retrying forever would look like a
hang.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Any

from torchyard.shared.failures import Failure

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_BROKEN = frozenset({errno.EIO, errno.EROFS})
# Enough for a traceback.
_NEARLY_FULL = 0.1
_TRACEBACK_BYTES = 1 << 14
# The folders of a node, by their names in messages.
_PLACES = ("work", "inputs", "inputs-fetched", "outputs-named", "env", "tmp", "spool", "errors")


class LogStream:
    """A worker's log: a full disk drops its lines and does not end the worker."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError:
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def is_to_blame(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _FULL | _BROKEN


def is_nearly_full(folder: Path) -> bool:
    try:
        free = os.statvfs(folder)
    except OSError:
        return False
    return free.f_bavail < free.f_blocks * _NEARLY_FULL


def suspected(failure: Failure, folder: Path) -> Failure:
    """`found`, or a full disk where that may be why the rank left no reason for its end."""
    if failure.code != "rank_failed" or failure.details.get("traceback"):
        return failure
    try:
        free = os.statvfs(folder)
    except OSError:
        return failure
    if free.f_bavail * free.f_frsize >= _TRACEBACK_BYTES:
        return failure
    return Failure(
        "disk_full",
        f"{failure.message}; no space left on `scratch`, not even for its traceback",
        "write less, or free some space: `yard gc --explain` lists what can be removed",
        failure.exit_code,
        failure.details,
    )


def failure(error: BaseException) -> Failure | None:
    """The failure to report; None when the disk is not to blame."""
    if not isinstance(error, OSError) or not is_to_blame(error):
        return None
    file = error.filename if isinstance(error.filename, str) else ""
    folder = next((part for part in reversed(file.split("/")) if part in _PLACES), "")
    where = (
        f"`scratch`, in the node's folder `{folder}`" if folder else "`scratch`, the node's disk"
    )
    if error.errno in _FULL:
        return Failure(
            "disk_full",
            f"no space left on {where}",
            "free some space: `yard gc --explain` lists what can be removed; then submit again",
        )
    return Failure(
        "disk_failed", f"the disk of {where} fails: {error.strerror}", "see `dmesg` on that machine"
    )
