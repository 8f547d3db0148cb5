"""An environment's folder, once it is complete, is read-only.

Owns: removing its write bits, the mark of its content, exchanging two folders.
Leaves: comparing marks to folders.py and builds.py, protection from root to the ranks' mounts.
Always: compiled modules don't count in the mark: root's Python writes them to read-only folders.
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
    """Remove all write bits but that of `folder` itself, which may still be moved.

    Returns the mark to compare with later.
    """
    lines = []
    for entry in _entries(folder, compiled=True):
        if not entry.is_symlink():
            mode = entry.stat(follow_symlinks=False).st_mode & 0o7777
            if mode & 0o222:  # else it was removed where the file is linked, too
                # A file linked from another user's cache can't be changed.
                with suppress(PermissionError):
                    os.chmod(entry.path, mode & ~0o222)
        if f"/{_COMPILED}/" not in entry.path:
            lines += _line(entry, folder)
    return _digest(lines)


def mark(folder: Path) -> str:
    """A text that changes when a file is added, removed or written; costs a `stat` of each."""
    lines = []
    for entry in _entries(folder, compiled=False):
        lines += _line(entry, folder)
    return _digest(lines)


def _line(entry: os.DirEntry[str], folder: Path) -> list[str]:
    if entry.is_dir(follow_symlinks=False):
        return []
    stat = entry.stat(follow_symlinks=False)
    return [f"{entry.path[len(str(folder)) :]}\0{stat.st_size}\0{stat.st_mtime_ns}"]


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def exchange(new: Path, old: Path) -> None:
    """Exchange two folders, atomically where the file system can."""
    for folder in (new, old):
        # Moving a folder to another parent writes `..` in it.
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
