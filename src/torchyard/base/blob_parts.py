"""A blob that arrives by several requests, because its connection is cut.

Owns: the file of what has come, which request writes to it, going on where another one ended.
Leaves: what a blob is to blobs.py; what nobody goes on with to jobs/cleanup/, which takes it for
the draft that it is.
Always: one request at a time writes to a part; what has come is hashed again, so it becomes a blob
only if all of it has the right sha256; what is wrong, or finds no space, is removed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchyard.base import disk
from torchyard.base.blobs import Blobs, check
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.shared import locks

_OPENED = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES = 1 << 20


class Part:
    """What has come of a blob; whoever has it may write to it alone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._digest = hashlib.sha256()

    def go_on(self, start: int) -> None:
        """Keep the first `start` bytes.

        Raises:
            Conflict: there are not so many.
        """
        if os.fstat(self._descriptor).st_size < start:
            raise Conflict(
                "the part of the blob is gone", "send all of it again", code="blob_part_missing"
            )
        os.ftruncate(self._descriptor, start)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while block := os.read(self._descriptor, _BLOCK_BYTES):
            self._digest.update(block)

    def write(self, block: bytes) -> None:
        left = memoryview(block)
        while left:
            left = left[os.write(self._descriptor, left) :]
        self._digest.update(block)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def size_bytes(blobs: Blobs, sha256: str) -> int | None:
    """How much has come of a blob; None while a request writes to it."""
    try:
        descriptor = os.open(_path(blobs, sha256), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return os.fstat(descriptor).st_size if locks.try_lock(descriptor, shared=True) else None
    finally:
        os.close(descriptor)


@contextmanager
def arriving(blobs: Blobs, sha256: str) -> Iterator[Part | None]:
    """The part of a blob, which the blob is made of at the end of the block; after an error it
    stays for the next request. None while another request has it.

    Raises:
        InvalidInput: the bytes are not those of `sha256`.
        DiskFull, DiskFailed: as `disk.writing`.
    """
    path = _path(blobs, sha256)
    with disk.writing(path):
        descriptor = _locked(path)
        if descriptor is None:
            yield None
            return
        try:
            part = Part(descriptor)
            yield part
            check(sha256, part.sha256)
            blobs.adopt(path, descriptor, sha256)
        except (InvalidInput, OSError):
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


def _locked(path: Path) -> int | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, _OPENED, 0o600)
        try:
            if not locks.try_lock(descriptor):
                os.close(descriptor)
                return None
            # It may have become a blob, or been removed, in between.
            if os.path.samestat(os.fstat(descriptor), os.lstat(path)):
                return descriptor
        except FileNotFoundError:
            pass
        os.close(descriptor)


def _path(blobs: Blobs, sha256: str) -> Path:
    """The name of a draft, as `files.is_draft` knows it, and the same for every request."""
    return blobs.path(sha256).with_name(f".{sha256[:50]}.{sha256[52:]}.part")
