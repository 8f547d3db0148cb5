"""One layer of an OCI image, as a stream of tar's bytes.

Owns: the entries of a layer, walking a folder for them, their order, times and owners; the bytes.
Leaves: which folders and files belong in a layer to system_files.py and image_export.py, digests
and compression to the client.
Always: the same files give the same bytes, on any machine and in any order of the disk; a link is
stored and never followed, so nothing outside a folder is read; memory holds one block of a file.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchyard.base.errors import Conflict, InvalidInput

# 1980: what zip files, and so wheels, can still hold.
FIXED_TIME_S = 315532800
_BLOCK_BYTES = 1 << 20
_TAR_BLOCK = 512
_COMPILED = "__pycache__"
_HASH_BASED = 0b01
# In a layer, such a name removes the file that it names from the layers below.
_WHITEOUT = ".wh."


@dataclass(frozen=True)
class Entry:
    """A folder, file or link. `path` is that in the image, without a slash in front.

    A file's content is that of `source` on this machine, or `content`. `link` is the target of a
    symbolic link as it is written, `same_as` the path of an earlier entry that is the same file.
    """

    path: str
    mode: int
    source: str = ""
    content: bytes = b""
    size_bytes: int = 0
    link: str = ""
    same_as: str = ""
    is_folder: bool = False
    time_s: int = FIXED_TIME_S
    uid: int = 0
    gid: int = 0


def folder(path: str, mode: int = 0o755) -> Entry:
    return Entry(path, mode, is_folder=True)


def text(path: str, content: str) -> Entry:
    return Entry(path, 0o644, content=content.encode(), size_bytes=len(content.encode()))


def link(path: str, target: str) -> Entry:
    return Entry(path, 0o777, link=target)


def file(path: str, source: str, status: os.stat_result) -> Entry:
    """A file that anybody can read, and run where it can be run here."""
    mode = 0o755 if status.st_mode & 0o111 else 0o644
    return Entry(path, mode, source=source, size_bytes=status.st_size)


def of_environment(
    top: Path, target: str, is_left_out: Callable[[str, str], bool] = lambda folder, name: False
) -> Iterator[Entry]:
    """The entries of a folder at `target` in the image: of root's, readable by all.

    Compiled modules that Python would check by a time are left out: their time is lost.

    Args:
        is_left_out: asked for each (folder, name); a folder with all that is in it.
    """
    yield folder(target)
    for parent, folders, names in _walk(top, is_left_out):
        inside = f"{target}/{os.path.relpath(parent, top)}" if parent != str(top) else target
        for name in folders:
            yield folder(f"{inside}/{name}")
        for name in names:
            source = os.path.join(parent, name)
            status = os.lstat(source)
            path = f"{inside}/{name}"
            if stat.S_ISLNK(status.st_mode):
                yield link(path, _moved(os.readlink(source), parent, top))
            elif stat.S_ISREG(status.st_mode) and not _is_stale_bytecode(parent, source):
                yield file(path, source, status)


def of_root(top: Path, owned: bool) -> Iterator[Entry]:
    """The entries of a root file system, with its own modes and times.

    Devices, sockets and pipes are left out.

    Args:
        owned: whether the owners on the disk are those in the image; root's otherwise.
    """
    first: dict[tuple[int, int], str] = {}
    for parent, folders, names in _walk(top, lambda folder, name: False):
        inside = "" if parent == str(top) else os.path.relpath(parent, top) + "/"
        for name in (*folders, *names):
            source = os.path.join(parent, name)
            status = os.lstat(source)
            entry = Entry(
                f"{inside}{name}",
                stat.S_IMODE(status.st_mode),
                time_s=max(0, int(status.st_mtime)),
                uid=status.st_uid if owned else 0,
                gid=status.st_gid if owned else 0,
            )
            identity = (status.st_dev, status.st_ino)
            if stat.S_ISLNK(status.st_mode):
                yield replace(entry, link=os.readlink(source))
            elif stat.S_ISDIR(status.st_mode):
                yield replace(entry, is_folder=True)
            elif stat.S_ISREG(status.st_mode) and identity in first:
                yield replace(entry, same_as=first[identity])
            elif stat.S_ISREG(status.st_mode):
                if status.st_nlink > 1:
                    first[identity] = entry.path
                yield replace(entry, source=source, size_bytes=status.st_size)


def stream(entries: Iterable[Entry]) -> Iterator[bytes]:
    """The tar's bytes, in blocks of about a megabyte.

    Raises:
        Conflict: a file changed while it was read.
    """
    buffer = bytearray()
    for entry in entries:
        buffer += _head(entry)
        if entry.content:
            buffer += entry.content
        elif entry.source:
            for block in _content(entry):
                buffer += block
                if len(buffer) >= _BLOCK_BYTES:
                    yield bytes(buffer)
                    buffer.clear()
        buffer += bytes(-entry.size_bytes % _TAR_BLOCK)
        if len(buffer) >= _BLOCK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    buffer += bytes(2 * _TAR_BLOCK)
    yield bytes(buffer)


def _walk(
    top: Path, is_left_out: Callable[[str, str], bool]
) -> Iterator[tuple[str, list[str], list[str]]]:
    """(folder, names of folders, names of all else) of each folder, in the order of the names."""

    def fail(error: OSError) -> None:
        raise error

    for parent, folders, names in os.walk(top, onerror=fail):
        for name in (*folders, *names):
            if name.startswith(_WHITEOUT):
                raise InvalidInput(
                    f"`{os.path.relpath(os.path.join(parent, name), top)}` can't be stored in an "
                    f"image: a name that begins with `{_WHITEOUT}` removes a file there",
                    "build the environment without that file",
                )
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        included = [name for name in folders if name not in links and not is_left_out(parent, name)]
        folders[:] = sorted(included)
        yield (
            parent,
            folders,
            sorted(name for name in (*names, *links) if not is_left_out(parent, name)),
        )


def _moved(target: str, parent: str, top: Path) -> str:
    """A link's target; one that names the folder's own place is made relative."""
    if os.path.isabs(target) and Path(os.path.normpath(target)).is_relative_to(top):
        return os.path.relpath(target, parent)
    return target


def _is_stale_bytecode(parent: str, source: str) -> bool:
    if os.path.basename(parent) != _COMPILED or not source.endswith(".pyc"):
        return False
    with open(source, "rb") as opened:
        head = opened.read(8)
    return not (len(head) == 8 and head[4] & _HASH_BASED)


def _head(entry: Entry) -> bytes:
    member = tarfile.TarInfo(entry.path)
    member.mode, member.mtime = entry.mode, entry.time_s
    member.uid, member.gid = entry.uid, entry.gid
    if entry.is_folder:
        member.type = tarfile.DIRTYPE
    elif entry.link:
        member.type, member.linkname = tarfile.SYMTYPE, entry.link
    elif entry.same_as:
        member.type, member.linkname = tarfile.LNKTYPE, entry.same_as
    else:
        member.size = entry.size_bytes
    return member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(entry: Entry) -> Iterator[bytes]:
    left = entry.size_bytes
    descriptor = os.open(entry.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb", buffering=0) as opened:
        if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
            raise _changed(entry)
        while left:
            block = opened.read(min(left, _BLOCK_BYTES))
            if not block:
                raise _changed(entry)
            left -= len(block)
            yield block
        if opened.read(1):
            raise _changed(entry)


def _changed(entry: Entry) -> Conflict:
    return Conflict(
        f"`/{entry.path}` changed while the image was written", "export the image again"
    )
