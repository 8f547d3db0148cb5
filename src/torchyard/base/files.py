"""Files on the server's own disk.

Owns: paths that stay in their folder, atomic writes.
Leaves: the layout of folders to the packages.
Always: a name from outside never reaches a file outside its folder.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, Union

from torchyard.base import disk
from torchyard.base.errors import Conflict, InvalidInput

# What Linux allows for a name, and for a path below a folder that has a path itself.
_NAME_MOST_BYTES = 255
_PATH_MOST_BYTES = 3000
_CHUNK_BYTES = 1 << 20
# What a file of the server is opened with: it is no link, and no pipe to wait for. The command and
# the SDK read files with it, too, where these flags may not exist.
_FLAGS = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
_READING = os.O_RDONLY | sum(getattr(os, flag, 0) for flag in _FLAGS)
_DRAFT = re.compile(r"\..+\.[0-9a-f]{8,12}\.part\Z")


@dataclass(frozen=True)
class Stored:
    """What was written."""

    sha256: str
    size_bytes: int


def safe_relative(path: str) -> str:
    """`path` as a clean relative path with forward slashes.

    Raises:
        InvalidInput: it is empty, absolute, climbs with `..`, holds a NUL byte, or is not a name
            that a disk can have.
    """
    slashed = path.replace("\\", "/")
    parts = [part for part in slashed.split("/") if part not in ("", ".")]
    if not parts or slashed[0] == "/" or ".." in parts or "\0" in path or parts[0].endswith(":"):
        raise InvalidInput(
            f"`{path}` is not a path inside its folder", "use a relative path without `..`"
        )
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"`{path!a}` is not valid Unicode", "write its name in Unicode"
        ) from error
    if max(sizes) > _NAME_MOST_BYTES or sum(sizes) + len(sizes) > _PATH_MOST_BYTES:
        raise InvalidInput(
            f"`{path[:80]}…` is longer than a path can be",
            f"a name has at most {_NAME_MOST_BYTES} bytes, a path {_PATH_MOST_BYTES}",
        )
    return "/".join(parts)


def inside(folder: Path, path: str) -> Path:
    """The file `path` names below `folder`, links resolved.

    Raises:
        InvalidInput: it lies outside.
    """
    target = folder / safe_relative(path)
    try:
        within = target.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # links in a circle
        raise InvalidInput(f"`{path}` can't be followed", "use a path without links") from error
    if not within:
        raise InvalidInput(f"`{path}` leads out of its folder", "use a path without links")
    return target


class OpenFile:
    """A regular file that was opened where others may put links; `name` is its own, no path.

    Closed when nothing refers to it any more, unless it was closed before.
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.descriptor = descriptor

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


Readable = Union[Path, OpenFile]  # noqa: UP007 (this is read by Python 3.9, too)
"""A file of the server's own by its path, or any other one, open."""


def reading(file: Readable) -> BinaryIO:
    """The file from its beginning; closed by the caller. An open file has one reader at a time.

    Raises:
        FileNotFoundError: it was removed, or a link or something else stands at its path.
    """
    if isinstance(file, OpenFile):
        # Not by its name in /proc: this user may not open what another account opened for it.
        descriptor = os.dup(file.descriptor)
        os.lseek(descriptor, 0, os.SEEK_SET)
        return os.fdopen(descriptor, "rb")
    try:
        descriptor = os.open(file, _READING)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(file))
    return os.fdopen(descriptor, "rb")


def size_bytes(file: Readable) -> int:
    """
    Raises:
        FileNotFoundError: it was removed.
    """
    if isinstance(file, OpenFile):
        return os.fstat(file.descriptor).st_size
    return os.stat(file, follow_symlinks=False).st_size


def draft_name(name: str) -> str:
    """What a file is called in its folder until it is whole."""
    return f".{name[:50]}.{secrets.token_hex(6)}.part"


def is_draft(name: str) -> bool:
    """Whether a file of this name is one that is not whole."""
    return _DRAFT.match(name) is not None


class Writing:
    """A file on its way: bytes go to a temporary name, and their hash is kept."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    @property
    def stored(self) -> Stored:
        return Stored(self._hash.hexdigest(), self.size_bytes)


@contextmanager
def write_atomically(
    target: Path, mode: int = 0o600, guard: AbstractContextManager[None] | None = None
) -> Iterator[Writing]:
    """Write `target` under a temporary name and rename it at the end of the block.

    An error in the block leaves what stood at `target` before.

    Args:
        guard: entered for the moment in which the file appears.

    Raises:
        DiskFull: no space is left for it.
        DiskFailed: the disk fails.
    """
    with disk.writing(target), _write_draft(target, mode, guard or nullcontext()) as opened:
        yield opened


@contextmanager
def _write_draft(target: Path, mode: int, guard: AbstractContextManager[None]) -> Iterator[Writing]:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise in_the_way(target) from error
    if target.is_dir():
        raise in_the_way(target)
    temporary = target.with_name(draft_name(target.name))
    try:
        # Until it is complete only its owner may read it: it may be a key or a token.
        with open(temporary, "wb", opener=_for_its_owner) as file:
            yield Writing(file)
        os.chmod(temporary, mode)
        with guard:
            os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _for_its_owner(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def in_the_way(target: Path) -> Conflict:
    """The error of a file that can't be where it should."""
    return Conflict(
        f"`{target.name}` can't be written: a file is where its folder would be, or a folder is "
        "where it would be",
        "choose another path, or delete what is there",
    )


def copy(source: Readable, target: Path) -> Stored:
    """Put `source`'s bytes at `target`, whole, and return their hash."""
    with write_atomically(target) as writing, reading(source) as file:
        while chunk := file.read(_CHUNK_BYTES):
            writing.write(chunk)
    return writing.stored


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, each closed to other users."""
    for path in (*reversed(folder.parents), folder):
        path.mkdir(mode=0o700, exist_ok=True)


def chunks(file: IO[bytes], limit: int | None = None) -> Iterator[bytes]:
    """What is left of an open file, at the most so many bytes; the file is closed at the end."""
    with file:
        while limit is None or limit > 0:
            chunk = file.read(_CHUNK_BYTES if limit is None else min(_CHUNK_BYTES, limit))
            if not chunk:
                return
            yield chunk
            if limit is not None:
                limit -= len(chunk)


def walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Every whole file below `folder` as (relative path, size in bytes), sorted."""
    sizes = []
    for root, _, names in os.walk(folder):
        below = os.path.relpath(root, folder)
        for name in names:
            if is_draft(name):
                continue
            try:
                status = os.stat(os.path.join(root, name), follow_symlinks=False)
            except OSError:
                continue  # it was removed meanwhile
            if stat.S_ISREG(status.st_mode):
                sizes.append((name if below == "." else f"{below}/{name}", status.st_size))
    return iter(sorted(sizes))


def remove(folder: Path) -> bool:
    """Remove a folder with all that is in it; whether it is gone.

    Folders without write bits go too, and such as lie deeper than Python reaches.
    """
    import shutil  # Here because commands read this module, and none removes anything by it.
    import subprocess

    with suppress(RecursionError):
        shutil.rmtree(folder, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        for words in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
            subprocess.run([*words, "--", str(folder)], capture_output=True, check=False)
    return not folder.exists()
