"""A client's uploaded tar file as a snapshot.

Owns: how long the reading of an archive may take, and what it may use.
Leaves: reading it to unpack_program.py, in a process of its own; where uploads lie to images.py,
files by content to base/blobs.
Always: no more bytes are unpacked than a snapshot of code may have, whatever the archive says of
itself; a link is the file of the archive that it leads to, or refused.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from pathlib import Path

from torchyard.azureml.web_services import unpack_program
from torchyard.azureml.web_services.unpack_program import Limits
from torchyard.base import leash
from torchyard.base.blobs import Blobs, SnapshotFile
from torchyard.base.errors import InvalidInput, LimitExceeded, ServerBusy

MOST_BYTES = 1 << 30
_MOST_FILES = 20_000
_PROCESSOR_S, _MEMORY_BYTES = 60, 1 << 30
# Of the clock: a busy machine gives a process less than a whole processor.
_LIMIT_S = 20 * _PROCESSOR_S
# One at a time: archives that take long to read hold up each other alone.
_one = threading.Semaphore()
_PATIENCE_S = 30.0


def unpacked(
    blobs: Blobs, archive: Path, temporary: Path, processor_s: int = _PROCESSOR_S
) -> list[SnapshotFile]:
    """The files of a tar file, plain or packed by gzip, each stored as a blob.

    Args:
        temporary: a folder on the disk of the blobs.

    Raises:
        InvalidInput: it is not a tar file, holds what a folder of code can't, or takes too long.
        LimitExceeded: more than `MOST_BYTES`, or too many files.
        ServerBusy: another archive is being read.
    """
    limits = Limits(MOST_BYTES, _MOST_FILES, processor_s, _MEMORY_BYTES)
    if not _one.acquire(timeout=_PATIENCE_S):
        raise ServerBusy("another archive of code is being unpacked", "try again in a minute")
    try:
        with tempfile.TemporaryDirectory(prefix="code-", dir=temporary) as folder:
            return [
                stored(blobs, path, Path(folder) / str(number), mode)
                for path, number, mode in _unpack(archive, Path(folder), limits)
            ]
    finally:
        _one.release()


def _unpack(archive: Path, folder: Path, limits: Limits) -> list[tuple[str, int, str]]:
    with open(archive, "rb") as stream:
        try:
            done = leash.run(unpack_program.words(folder, limits), _LIMIT_S, stdin=stream)
        except subprocess.TimeoutExpired:
            raise _unreadable() from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise _unreadable() from None  # it was ended at a limit
    if "refused" in answer:
        code, message, hint = answer["refused"]
        kind = LimitExceeded if code == LimitExceeded.code else InvalidInput
        raise kind(message, hint, code=code)
    return [(path, number, mode) for path, number, mode in answer["files"]]


def _unreadable() -> InvalidInput:
    return InvalidInput(
        "the archive of the code takes too long to read",
        "make it with `tar` or Python's `tarfile`, of your source files alone",
        code="archive_too_slow",
    )


def stored(blobs: Blobs, path: str, file: Path, mode: str = "0644") -> SnapshotFile:
    """A file of this machine as one of a snapshot."""
    return SnapshotFile(path, blobs.put_file(file), file.stat().st_size, mode)
