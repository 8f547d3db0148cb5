"""Open what a path below a folder names, and nothing else, whoever changes the folder meanwhile.

Owns: opening, walking, writing and removing below a folder by descriptors.
Leaves: which folders may be used, what an error means to a user, to the callers.
Always: no link is followed and no `..`, also none that is put there after a look; what is opened to
be read is a regular file; of a link nothing is told but that it is one.

The kernel does it in one call where it can (openat2, Linux 5.6); where it can't, or a container
forbids that call, each part of the path is opened from the one before.

Source: https://man7.org/linux/man-pages/man2/openat2.2.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

FILE, FOLDER, LINK, OTHER = "file", "folder", "link", "other"
_READING = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATING = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
# A folder that is only passed through may be one that can't be listed.
_PASSING = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPENAT2 = 437  # the same on all machines that Linux has it for, Alpha excepted
_RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS | NO_SYMLINKS | BENEATH
_MISSING = (errno.ENOSYS, errno.EPERM)
_ATTEMPTS = 16
_DEEPEST = 100


class LeadsOut(OSError):
    """A part of the path is a link, or it is no path below the folder."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ELOOP, "leads through a link or out of its folder", path)


class NotRegular(OSError):
    """There is a folder, a pipe, a socket or a device."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EISDIR, "is not a regular file", path)


class Found(NamedTuple):
    """What stands at `path`; a link's size, time and number are 0."""

    path: str
    kind: str
    size_bytes: int = 0
    mtime_ns: int = 0
    inode: int = 0
    mode: int = 0


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _Kernel:
    """Whether openat2 may be used; forgotten for good when the kernel says that it may not."""

    def __init__(self) -> None:
        self.has_openat2 = sys.platform == "linux"
        self._libc = ctypes.CDLL(None, use_errno=True)

    def openat2(self, root: int, path: str, flags: int) -> int:
        how = _How(flags, 0, _RESOLVE)
        for _ in range(_ATTEMPTS):
            descriptor = self._libc.syscall(
                ctypes.c_long(_OPENAT2),
                ctypes.c_int(root),
                ctypes.c_char_p(os.fsencode(path)),
                ctypes.byref(how),
                ctypes.c_size_t(ctypes.sizeof(how)),
            )
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            if number not in (errno.EAGAIN, errno.EINTR):
                break
        if number in (errno.ELOOP, errno.EXDEV):
            raise LeadsOut(path)
        raise OSError(number, os.strerror(number), path)


_kernel = _Kernel()


def has_openat2() -> bool:
    """Whether the kernel opens whole paths, as far as that is known."""
    with _opened(os.open("/", _PASSING)) as top:
        os.close(_open(top, ".", _PASSING))
    return _kernel.has_openat2


@contextmanager
def without_openat2() -> Iterator[None]:
    """Do without openat2 in the block, as in a container that forbids it; for tests."""
    before, _kernel.has_openat2 = _kernel.has_openat2, False
    try:
        yield
    finally:
        _kernel.has_openat2 = before


def open_root(real: str) -> int:
    """A folder by its absolute path, which must have no links; closed by the caller.

    Raises:
        LeadsOut: a part of it is a link by now.
        OSError: it is missing, or no folder, or this user may not go there.
    """
    with _opened(os.open("/", _PASSING)) as top:
        return _open(top, real.strip("/") or ".", _PASSING)


def open_folder(root: int, path: str = "") -> int:
    """A folder below `root`, which can be listed; closed by the caller.

    Raises:
        LeadsOut, OSError: as `open_root`.
    """
    return _open(root, checked(path) or ".", _LISTING)


def open_file(root: int, path: str) -> int:
    """A regular file below `root`, for reading; closed by the caller. Never waits for a pipe.

    Raises:
        LeadsOut: a part of the path is a link.
        NotRegular: it is no regular file.
        OSError: it is missing, or this user may not read it.
    """
    clean = checked(path)
    if not clean:
        raise NotRegular(path)
    try:
        descriptor = _open(root, clean, _READING)
    except OSError as error:
        # A socket has no other end to open.
        raise (NotRegular(path) if error.errno == errno.ENXIO else error) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegular(path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def look(root: int, path: str) -> Found | None:
    """What stands at a path; None for nothing.

    Raises:
        LeadsOut: a folder on the way is a link.
        OSError: this user may not go there.
    """
    clean = checked(path)
    if not clean:
        return _found(os.stat(root), clean)
    try:
        with _parent(root, clean) as (parent, name):
            return _found(os.stat(name, dir_fd=parent, follow_symlinks=False), clean)
    except (FileNotFoundError, NotADirectoryError):
        return None


def names(root: int, path: str = "") -> list[Found]:
    """What is in a folder, with its paths below that folder, in no order; empty for no folder.

    Raises:
        LeadsOut: it, or a folder above it, is a link.
        OSError: this user may not list it.
    """
    try:
        folder = open_folder(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    with _opened(folder):
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    found.append(Found(entry.name, LINK))
                    continue
                with suppress(OSError):  # it was removed since
                    found.append(_found(entry.stat(follow_symlinks=False), entry.name))
    return found


def make_folders(root: int, path: str, mode: int) -> None:
    """Make a folder and those above it; those that it makes get `mode`, whatever the umask.

    Raises:
        LeadsOut: one of them is a link.
        FileExistsError, NotADirectoryError: one of them is a file.
    """
    current = os.dup(root)
    try:
        for part in filter(None, checked(path).split("/")):
            is_new = False
            with suppress(FileExistsError):
                os.mkdir(part, 0o700, dir_fd=current)
                is_new = True
            below = _open(current, part, _LISTING if is_new else _PASSING)
            os.close(current)
            current = below
            if is_new:
                os.fchmod(current, mode)
    finally:
        os.close(current)


def begin(root: int, path: str, draft: str, folder_mode: int, file_mode: int) -> int:
    """Begin a file that will stand at `path`, under the name `draft` beside it; open for writing.

    Its folders are made, and folders at `path` that hold nothing are removed.

    Raises:
        LeadsOut: a folder on the way is a link.
        FileExistsError, NotADirectoryError: a file stands where a folder should be.
        IsADirectoryError: a folder stands at the path.
    """
    clean = checked(path)
    if not clean:
        raise _is_a_folder(path)
    make_folders(root, clean.rpartition("/")[0], folder_mode)
    if _stands_folder(root, clean):
        _remove_empty_folders(root, clean)
        if _stands_folder(root, clean):
            raise _is_a_folder(path)
    with _parent(root, clean) as (parent, _):
        descriptor = os.open(_name(draft), _CREATING | os.O_NOFOLLOW, 0o600, dir_fd=parent)
    os.fchmod(descriptor, file_mode)
    return descriptor


def finish(root: int, path: str, draft: str) -> None:
    """Put a draft, whose bytes are written, in the place of what stands at `path`.

    Raises:
        OSError: as `begin`.
    """
    with _parent(root, path) as (parent, name):
        os.rename(_name(draft), name, src_dir_fd=parent, dst_dir_fd=parent)


def discard(root: int, path: str, draft: str) -> None:
    """Remove a draft, as far as it can be."""
    with suppress(OSError), _parent(root, path) as (parent, _):
        os.unlink(_name(draft), dir_fd=parent)


class Links:
    """Gives files further names below `root`, those of one folder after another; to be closed.

    Args:
        folder_mode: of folders that it makes.
    """

    def __init__(self, root: int, folder_mode: int) -> None:
        self._root = root
        self._folder_mode = folder_mode
        self._folder: str | None = None
        self._parent = -1

    def add(self, path: str, source: str) -> Found:
        """Have the file `source` at `path` too, in place of a file that stands there.

        Args:
            source: its absolute name, which nobody else can change.

        Raises:
            LeadsOut: a folder on the way is a link.
            OSError: the file can't have another name there, or a folder stands there.
        """
        folder, _, name = checked(path).rpartition("/")
        if folder != self._folder:
            self.close()
            make_folders(self._root, folder, self._folder_mode)
            self._parent, self._folder = _open(self._root, folder or ".", _PASSING), folder
        try:
            os.link(source, _name(name), dst_dir_fd=self._parent, follow_symlinks=False)
        except FileExistsError:
            os.unlink(name, dir_fd=self._parent)
            os.link(source, name, dst_dir_fd=self._parent, follow_symlinks=False)
        return _found(os.stat(name, dir_fd=self._parent, follow_symlinks=False), path)

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._parent)
            self._folder = None


def remove(root: int, path: str) -> None:
    """Remove a file, a link, or a folder with all that is in it; nothing for what is missing.

    Raises:
        LeadsOut: a folder on the way is a link.
        OSError: this user may not remove it.
    """
    try:
        with _parent(root, path) as (parent, name):
            _remove(parent, name)
    except (FileNotFoundError, NotADirectoryError):
        return


def checked(path: str) -> str:
    """The path without empty parts and `.`; empty for the folder itself.

    Raises:
        LeadsOut: it climbs with `..`, or holds a NUL byte.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise LeadsOut(path)
    return "/".join(parts)


def _open(root: int, path: str, flags: int) -> int:
    if _kernel.has_openat2:
        try:
            return _kernel.openat2(root, path, flags)
        except OSError as error:
            if error.errno not in _MISSING or not _lacks_openat2(root):
                raise
            _kernel.has_openat2 = False
    return _open_by_parts(root, path, flags)


def _lacks_openat2(root: int) -> bool:
    """Whether the call itself fails, rather than this file: the root can be opened again."""
    try:
        os.close(_kernel.openat2(root, ".", _PASSING))
    except OSError as error:
        return error.errno in _MISSING
    return False


def _open_by_parts(root: int, path: str, flags: int) -> int:
    *folders, name = path.split("/")
    current = os.dup(root)
    try:
        for part in folders:
            below = _open_part(current, part, _PASSING)
            os.close(current)
            current = below
        return _open_part(current, name, flags)
    finally:
        os.close(current)


def _open_part(folder: int, name: str, flags: int) -> int:
    try:
        descriptor = os.open(name, flags | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        # A link where a folder is wanted: which of the two errors it is depends on the system. It
        # may be gone again by now.
        is_link = error.errno == errno.ENOTDIR and _is_link(folder, name)
        if is_link or error.errno == errno.ELOOP:
            raise LeadsOut(name) from None
        raise
    try:
        if flags & os.O_DIRECTORY and not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_link(folder: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _found(status: os.stat_result, path: str) -> Found:
    mode = status.st_mode
    if stat.S_ISLNK(mode):
        return Found(path, LINK)
    if not stat.S_ISREG(mode):
        return Found(path, FOLDER if stat.S_ISDIR(mode) else OTHER, mode=mode & 0o7777)
    return Found(
        path, FILE, status.st_size, status.st_mtime_ns, status.st_ino, mode & 0o7777
    )  # fmt: skip


def _remove(parent: int, name: str) -> None:
    """Remove without recursion: what a job made may be deeper than Python goes."""
    try:
        os.unlink(name, dir_fd=parent)
        return
    except OSError as error:
        # Linux says EISDIR of a folder, POSIX EPERM.
        if error.errno not in (errno.EISDIR, errno.EPERM):
            raise
    left = [_open_part(parent, name, _LISTING)]
    trail = [name]
    try:
        while left:
            below = _emptied(left[-1])
            if not below:
                os.close(left.pop())
                os.rmdir(trail.pop(), dir_fd=left[-1] if left else parent)
            elif len(left) < _DEEPEST:
                left.append(_open_part(left[-1], below, _LISTING))
                trail.append(below)
            else:
                # Nearer to the top, so that few descriptors are open however deep it is.
                os.rename(below, secrets.token_hex(8), src_dir_fd=left[-1], dst_dir_fd=left[0])
    finally:
        for descriptor in left:
            os.close(descriptor)


def _emptied(folder: int) -> str:
    """Remove what is no folder; the name of a folder that is still in it, or nothing."""
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    below = ""
    for name, is_folder in listed:
        if not is_folder:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        elif not below:
            with suppress(OSError):  # most are empty
                os.rmdir(name, dir_fd=folder)
                continue
            below = name
    return below


def _remove_empty_folders(root: int, path: str) -> None:
    """Remove a folder that holds nothing but folders which hold nothing."""
    with suppress(OSError):
        for found in names(root, path):
            if found.kind == FOLDER:
                _remove_empty_folders(root, f"{path}/{found.path}")
        with _parent(root, path) as (parent, name):
            os.rmdir(name, dir_fd=parent)


def _stands_folder(root: int, path: str) -> bool:
    standing = look(root, path)
    return standing is not None and standing.kind == FOLDER


def _is_a_folder(path: str) -> IsADirectoryError:
    return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


def _name(draft: str) -> str:
    """
    Raises:
        LeadsOut: it is no name of one file.
    """
    if draft in ("", ".", "..") or "/" in draft or "\0" in draft:
        raise LeadsOut(draft)
    return draft


@contextmanager
def _parent(root: int, path: str) -> Iterator[tuple[int, str]]:
    """The folder that a path lies in, open, and its name there.

    Raises:
        LeadsOut: a folder on the way is a link, or the path names the root itself.
    """
    folder, _, name = checked(path).rpartition("/")
    if not name:
        raise LeadsOut(path)
    with _opened(_open(root, folder or ".", _PASSING)) as parent:
        yield parent, name


@contextmanager
def _opened(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)
