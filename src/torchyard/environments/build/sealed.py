"""An environment's folder, once it is whole: nobody writes to it any more.

Owns: taking its write bits away, the mark of what it held then, one folder in another's place.
Leaves: when that is compared to folders.py and builds.py, holding back root to the ranks' mounts.
Always: compiled modules are no part of the mark: root's Python writes them where it likes.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_COMPILED = "__pycache__"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def close(folder: Path) -> str:
    """Take every write bit away but that of `folder` itself, which may still be moved.

    Returns the mark to compare with later.
    """
    for entry in _entries(folder, compiled=True):
        if not entry.is_symlink():
            mode = entry.stat(follow_symlinks=False).st_mode & 0o7777
            # A file linked from somebody else's cache is not ours to change.
            with suppress(PermissionError):
                os.chmod(entry.path, mode & ~0o222)
    return mark(folder)


def mark(folder: Path) -> str:
    """Changes when a file comes, goes, or is written; costs a look at each, in no order."""
    start = len(str(folder))
    lines = []
    for entry in _entries(folder, compiled=False):
        if not entry.is_dir(follow_symlinks=False):
            found = entry.stat(follow_symlinks=False)
            lines.append(f"{entry.path[start:]}\0{found.st_size}\0{found.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def exchange(new: Path, old: Path) -> None:
    """Each takes the other's place, at once where the file system can."""
    for folder in (new, old):
        # To be moved to another folder, a folder must let its parent be written down in it.
        os.chmod(folder, 0o755)
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):
        names = [os.fsencode(path) for path in (new, old)]
        if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    aside = new.with_name(f"{new.name}.old")
    old.rename(aside)
    new.rename(old)
    aside.rename(new)


def _entries(folder: Path, *, compiled: bool) -> Iterator[os.DirEntry[str]]:
    left = [str(folder)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if not compiled and entry.name == _COMPILED:
                        continue
                    left.append(entry.path)
                yield entry
