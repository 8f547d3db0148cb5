"""Blobs that arrive in several requests, because the connection was cut.

Owns: the file of a blob's first bytes, which request may write to it, resuming it.
Leaves: complete blobs to blobs.py, removing abandoned parts, which are drafts, to jobs/cleanup/.
Always: one request at a time writes to a part; the bytes that are there are hashed again, so that
a part becomes a blob only if all its bytes have the right sha256; wrong bytes are removed, and so
is a part for which the disk has no space.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchyard.base import disk, files
from torchyard.base.blobs import Blobs, check
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.files import OpenFile
from torchyard.shared import locks

_OPENED = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK_BYTES = 1 << 20


class Part:
    """The first bytes of a blob, open for the one request that may write to it.

    A thread that writes when its request is canceled keeps the file open until it is done.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def resume(self, start: int) -> None:
        """Keep the first `start` bytes, and write behind them.

        Raises:
            Conflict: fewer bytes are there (code `blob_part_missing`).
        """
        descriptor = self._file.descriptor
        if os.fstat(descriptor).st_size < start:
            raise Conflict(
                f"the first {start} bytes of the blob are not here",
                "send the blob from its first byte",
                code="blob_part_missing",
            )
        os.ftruncate(descriptor, start)
        os.lseek(descriptor, 0, os.SEEK_SET)
        while block := os.read(descriptor, _BLOCK_BYTES):
            self._digest.update(block)

    def write(self, block: bytes) -> None:
        left = memoryview(block)
        while left:
            left = left[os.write(self._file.descriptor, left) :]
        self._digest.update(block)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def size_bytes(blobs: Blobs, sha256: str) -> int | None:
    """The size of a blob's part, 0 if there is none; None while a request writes to it."""
    try:
        descriptor = os.open(_path(blobs, sha256), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return os.fstat(descriptor).st_size if locks.try_lock(descriptor, shared=True) else None
    finally:
        os.close(descriptor)


@contextmanager
def arriving(blobs: Blobs, sha256: str) -> Iterator[Part]:
    """Open the part of a blob, and make it the blob at the end of the block.

    A part stays for the next request if the block ends early. While another request writes to it,
    this one gets an empty part of its own, which does not stay.

    Raises:
        InvalidInput: the bytes are not those of `sha256`.
        DiskFull, DiskFailed: as `disk.writing`.
    """
    path = _path(blobs, sha256)
    with disk.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = _locked(path)
        stays = file is not None
        if file is None:
            path = path.with_name(files.draft_name(sha256))
            file = OpenFile(path.name, os.open(path, _OPENED, 0o600))
        part = Part(file)
        try:
            yield part
            check(sha256, part.sha256)
            blobs.adopt(path, file.descriptor, sha256)
        except BaseException as error:
            if not stays or isinstance(error, (InvalidInput, OSError)):
                path.unlink(missing_ok=True)
            raise
        finally:
            # A failed request's traceback, or a thread, may hold the file for a while.
            locks.unlock(file.descriptor)


def _locked(path: Path) -> OpenFile | None:
    """None where another request has the lock."""
    while True:
        file = OpenFile(path.name, os.open(path, _OPENED, 0o600))
        if not locks.try_lock(file.descriptor):
            return None
        # The request that had the lock may have made it a blob, or removed it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.descriptor), os.lstat(path)):
                return file


def _path(blobs: Blobs, sha256: str) -> Path:
    """A draft, as `files.is_draft` has it, of the same name for every request."""
    return blobs.path(sha256).with_name(f".{sha256[:50]}.{sha256[52:]}.part")
