"""A client's uploaded tar file as a snapshot.

Owns: reading a tar file that anybody may have made.
Leaves: where uploads lie to images.py, files by content to base/blobs.
Always: no more bytes are unpacked than a snapshot of code may have, whatever the archive says of
itself; a link is the file of the archive that it leads to, or refused.
"""

from __future__ import annotations

import gzip
import hashlib
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

from torchyard.base import files
from torchyard.base.blobs import Blobs, SnapshotFile
from torchyard.base.errors import InvalidInput, LimitExceeded

MOST_BYTES = 1 << 30
_MOST_FILES = 20_000
# Of a member's own header, such as a long path; content is read in smaller pieces.
_MOST_READ_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


def unpacked(blobs: Blobs, archive: Path, temporary: Path) -> list[SnapshotFile]:
    """The files of a tar file, plain or packed by gzip, each stored as a blob.

    Args:
        temporary: a folder on the disk of the blobs.

    Raises:
        InvalidInput: it is not a tar file, or holds what a folder of code can't.
        LimitExceeded: more than `MOST_BYTES`, or too many files.
    """
    with tempfile.TemporaryDirectory(prefix="code-", dir=temporary) as folder:
        plain = Path(folder) / "archive"
        try:
            with open(archive, "rb") as packed:
                is_packed = packed.read(2) == _GZIP
            with gzip.open(archive) if is_packed else open(archive, "rb") as source:
                _copy(source, plain, MOST_BYTES)
            with open(plain, "rb") as stream:
                return list(_files(blobs, _Bounded(stream), Path(folder) / "file"))
        except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InvalidInput(
                f"the archive of the code can't be read: {str(error)[:200]}"
            ) from error


def stored(blobs: Blobs, path: str, file: Path, mode: str = "0644") -> SnapshotFile:
    """A file of this machine as one of a snapshot."""
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        for chunk in files.chunks(content):
            digest.update(chunk)
    sha256 = digest.hexdigest()
    if blobs.missing([sha256]):
        blobs.put(sha256, files.chunks(open(file, "rb")))
    return SnapshotFile(path, sha256, file.stat().st_size, mode)


class _Bounded:
    """What tarfile needs of a file, without headers as long as the memory."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MOST_READ_BYTES:
            raise InvalidInput("the archive of the code has a header that is too long")
        return self._stream.read(size)

    def seek(self, position: int, whence: int = 0) -> int:
        return self._stream.seek(position, whence)

    def tell(self) -> int:
        return self._stream.tell()


def _files(blobs: Blobs, stream: _Bounded, draft: Path) -> Iterator[SnapshotFile]:
    # The type of `fileobj` asks for more than tarfile uses.
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as archive:
        members = []
        for member in archive:
            members.append(member)
            if len(members) > _MOST_FILES:
                raise LimitExceeded(f"the code has more than {_MOST_FILES} files and folders")
        # A name that comes twice is its last one, as when tar unpacks.
        last = {files.safe_relative(item.name): item for item in members if not item.isdir()}
        left = MOST_BYTES
        for path, member in last.items():
            left -= _copy(_content(archive, member), draft, left)
            yield stored(blobs, path, draft, "0755" if member.mode & 0o100 else "0644")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    try:
        content = archive.extractfile(member)
    except (KeyError, RecursionError):
        content = None
    if content is None:
        raise InvalidInput(
            f"`{member.name[:200]}` of the code is not a file",
            "give a `source_directory` without sockets, devices and links that lead out of it",
        )
    return content


def _copy(source: IO[bytes] | gzip.GzipFile, target: Path, most_bytes: int) -> int:
    """The number of bytes copied; the source is closed.

    Raises:
        LimitExceeded: it has more than `most_bytes`.
    """
    copied = 0
    with source, open(target, "wb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            copied += len(chunk)
            if copied > most_bytes:
                raise LimitExceeded(
                    f"the code has more than {MOST_BYTES >> 30} GiB",
                    "register large files as a model, and leave them out of `source_directory`",
                )
            file.write(chunk)
    return copied
