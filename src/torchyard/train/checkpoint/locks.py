"""One process at a time writes a rank's checkpoints to a folder.

Owns: the lock of a rank, which the writer inherits.
Leaves: starting the writer to writer_process.
Always: a rank that starts again waits until the writer of the one before has written its copies.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path

from torchyard.train.checkpoint.errors import CheckpointError

_POLL_S = 0.05


def take(folder: Path, rank: int, timeout_s: float) -> int:
    """Return a file descriptor; the rank is locked until all processes that have it close it.

    Raises:
        CheckpointError: another process has it, or the folder can't be written.
    """
    try:
        locks = folder / ".writers"
        locks.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(locks / f"rank-{rank}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CheckpointError(
            f"the folder for checkpoints, {folder}, can't be written: {error.strerror}",
            "name another one with `checkpoint.configure(folder)`",
        ) from error
    until = time.monotonic() + timeout_s
    while not _is_taken(descriptor):
        if time.monotonic() > until:
            owner = os.read(descriptor, 1000).decode(errors="replace") or "unknown"
            os.close(descriptor)
            raise CheckpointError(
                f"another process writes rank {rank}'s checkpoints to {folder}: {owner}",
                "give each training a folder of its own, and call init_process_group before the "
                "first save",
            )
        time.sleep(_POLL_S)
    os.ftruncate(descriptor, 0)
    owner = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
    os.pwrite(descriptor, owner.encode(), 0)
    return descriptor


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
