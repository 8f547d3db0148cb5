"""Write the files of a list from one stream of bytes, which may be cut off and go on.

Owns: which bytes belong to which file, checking each file, where to go on; copying those that are
elsewhere on the node.
Leaves: the stream to its callers.
Always: a file that is whole has the right sha256; a link is never followed, and nothing but the
list's files is written.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared.failures import Failure

_BLOCK_BYTES = 1 << 20
_MOST_DAMAGED = 5
_KNOWN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class FileEntry:
    """`path` is below the folder, and checked."""

    path: str
    mode: int
    size: int
    mtime_ns: int
    sha256: str


class FetchedFiles:
    """
    Args:
        folder: where the files belong, which nobody else writes to.
        entries: in the order of the stream.
    """

    def __init__(self, folder: Path, entries: Sequence[FileEntry]) -> None:
        self._folder = str(folder)
        self._parents: set[str] = set()
        self._entries = entries
        self._index = 0
        self._file = -1
        self._written = 0
        self._digest = hashlib.sha256()
        self._damaged = 0

    def copy(self, sources: Mapping[str, str]) -> list[int]:
        """Copy what is on this node already; the stream has the other files alone.

        A file that is not what its sha256 says, or can't be read, is left to the stream. It is a
        copy, and no link: a job that writes to its environment changes no other one.

        Args:
            sources: paths by sha256.

        Returns:
            The positions of the stream's files in the list.
        """
        for entry in self._entries:
            source = sources.get(entry.sha256)
            if source is not None and not self._have(entry)[1]:
                self._copy(source, entry)
        missing = [index for index, entry in enumerate(self._entries) if not self._have(entry)[1]]
        self._entries = [self._entries[index] for index in missing]
        return missing

    @property
    def size_bytes(self) -> int:
        """Of the stream."""
        return sum(entry.size for entry in self._entries)

    def begin(self) -> int:
        """The offset in the stream from which `write` is given bytes."""
        self.close()
        offset = sum(entry.size for entry in self._entries[: self._index])
        while self._index < len(self._entries):
            entry = self._entries[self._index]
            have, is_checked = self._have(entry)
            if not is_checked:
                self._open(entry, have)
                offset += have
                break
            offset += entry.size
            self._index += 1
        self._end_whole_files()
        return offset

    def write(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            self._end_whole_files()
            if self._file < 0:
                raise OSError("the server sent more than the files of its list")
            left = self._entries[self._index].size - self._written
            view = view[self._append(view[:left]) :]
        self._end_whole_files()

    def end(self) -> None:
        """
        Raises:
            OSError: bytes are missing.
        """
        self._end_whole_files()
        if self._index < len(self._entries):
            raise OSError("response cut off: files are missing")

    def close(self) -> None:
        """What was written stays, for `begin` to go on from."""
        if self._file >= 0:
            file, self._file = self._file, -1
            os.close(file)

    def _end_whole_files(self) -> None:
        """Finish the present file if it is whole, and those after it that are empty."""
        while self._index < len(self._entries):
            entry = self._entries[self._index]
            if self._file < 0:
                self._open(entry, 0)
            if self._written < entry.size:
                return
            self._finish(entry)
            self._index += 1

    def _open(self, entry: FileEntry, have: int) -> None:
        target = self._target(entry)
        parent = os.path.dirname(target)
        if parent not in self._parents:
            os.makedirs(parent, mode=0o700, exist_ok=True)
            self._parents.add(parent)
        try:
            self._file = os.open(target, _NEW, 0o600)
        except PermissionError:
            os.chmod(target, 0o600)  # written whole by an earlier try
            self._file = os.open(target, _NEW, 0o600)
        os.ftruncate(self._file, have)
        self._written, self._digest = have, hashlib.sha256()
        if have:
            os.lseek(self._file, have, os.SEEK_SET)
            with open(target, "rb") as opened:
                for block in iter(lambda: opened.read(_BLOCK_BYTES), b""):
                    self._digest.update(block)

    def _append(self, part: memoryview) -> int:
        count = os.write(self._file, part)
        self._digest.update(part[:count])
        self._written += count
        return count

    def _copy(self, source: str, entry: FileEntry) -> None:
        self._open(entry, 0)
        for block in _blocks(source, entry.size):
            view = memoryview(block)
            while view:
                view = view[self._append(view) :]
        self.close()
        if self._digest.hexdigest() == entry.sha256:
            self._seal(entry)
        else:
            os.unlink(self._target(entry))

    def _finish(self, entry: FileEntry) -> None:
        target = self._target(entry)
        self.close()
        if self._digest.hexdigest() != entry.sha256:
            os.unlink(target)
            self._damaged += 1
            if self._damaged >= _MOST_DAMAGED:
                raise Failure(
                    "environment_failed",
                    f"`{entry.path}` of the environment arrives damaged",
                    "check the network and the disk of that node",
                )
            raise OSError(f"`{entry.path}` was damaged in transit")
        self._seal(entry)

    def _seal(self, entry: FileEntry) -> None:
        """The file is whole: its mode, and the time by which that is known."""
        target = self._target(entry)
        os.chmod(target, entry.mode & 0o777)
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))

    def _have(self, entry: FileEntry) -> tuple[int, bool]:
        """How many bytes are there, and whether the file is whole: it has its time only then."""
        try:
            status = os.lstat(self._target(entry))
        except FileNotFoundError:
            return 0, False
        is_checked = (status.st_size, status.st_mtime_ns) == (entry.size, entry.mtime_ns)
        return min(status.st_size, entry.size), is_checked

    def _target(self, entry: FileEntry) -> str:
        return os.path.join(self._folder, entry.path)


def _blocks(path: str, size: int) -> Iterator[bytes]:
    """What can be read of a file that others may change, remove or replace meanwhile."""
    try:
        descriptor = os.open(path, _KNOWN)
        with open(descriptor, "rb", buffering=0) as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                return
            while size and (block := file.read(min(size, _BLOCK_BYTES))):
                size -= len(block)
                yield block
    except OSError:
        return
