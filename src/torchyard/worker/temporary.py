"""A short name for a node's temporary folder.

Owns: the link in /tmp that stands for it.
Leaves: the folder itself to layout.py.
Always: the link is this user's own and goes with the node. It exists because a Unix socket's
path is at most 107 bytes, and multiprocessing puts sockets two names below TMPDIR: with a long
TMPDIR, DataLoader workers fail.
"""

from __future__ import annotations

import binascii
import os
from pathlib import Path

_LONGEST = 70
_HERE = Path("/tmp")


def shorten(folder: Path) -> Path:
    """A path of the folder that leaves room for sockets below it."""
    if len(os.fsencode(folder)) <= _LONGEST:
        return folder
    link = _link(folder)
    try:
        link.symlink_to(folder)
    except FileExistsError:
        pass
    except OSError:
        return folder
    return link if _leads_to(link, folder) else folder


def forget(node: Path) -> None:
    """Remove the link of a node's folder, if there is one."""
    folder = node / "tmp"
    link = _link(folder)
    if _leads_to(link, folder):
        link.unlink(missing_ok=True)


def _link(folder: Path) -> Path:
    # Two folders may share the number: then the second goes without a link. (hashlib is not
    # worth its 10 ms here.)
    return _HERE / f"yard-{os.getuid()}-{binascii.crc32(os.fsencode(folder)):08x}"


def _leads_to(link: Path, folder: Path) -> bool:
    try:
        return os.readlink(link) == str(folder)
    except OSError:
        return False
