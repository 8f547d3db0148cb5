"""A short name for a node's temporary folder, and a folder of its own in shared memory.

Owns: the link to it in /tmp, the folder in /dev/shm.
Leaves: the folder itself to files/node_folders.py.
Always: the link belongs to this user and is removed with the node; one that can't be removed
stays, which is harmless. It exists because a Unix socket's path is at most 107
bytes, and multiprocessing puts sockets two names below TMPDIR: with a long TMPDIR, DataLoader
workers fail.
"""

from __future__ import annotations

import binascii
import os
import stat
from contextlib import suppress
from pathlib import Path

_LONGEST = 70
_HERE = Path("/tmp")
_MEMORY = Path("/dev/shm")


def shorten(folder: Path) -> Path:
    """A path of the folder that is short enough for sockets below it."""
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    link = _link(folder)
    try:
        link.symlink_to(folder)
    except FileExistsError:
        pass
    except OSError:
        return folder
    return link if _points_to(link, folder) else folder


def shared_memory(node: Path) -> Path:
    """This node's folder in memory; its temporary folder where it can't be made."""
    folder = _MEMORY / _name(node)
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return node / "tmp"
    return folder if _belongs_to_user(folder) else node / "tmp"


def forget(node: Path) -> None:
    """Remove the link of a node's folder and what it has in shared memory."""
    folder = node / "tmp"
    link = _link(folder)
    if _points_to(link, folder):
        with suppress(OSError):
            link.unlink()
    memory = _MEMORY / _name(node)
    if _belongs_to_user(memory):
        import shutil  # Costly to import, and mostly not needed.

        shutil.rmtree(memory, ignore_errors=True)


def _link(folder: Path) -> Path:
    # Two folders may have the same checksum: then the second has no link. (hashlib is not
    # worth its 10 ms here.)
    return _HERE / _name(folder)


def _name(folder: Path) -> str:
    return f"yard-{os.getuid()}-{binascii.crc32(os.fsencode(folder)):08x}"


def _belongs_to_user(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def _points_to(link: Path, folder: Path) -> bool:
    try:
        return os.readlink(link) == str(folder)
    except OSError:
        return False
