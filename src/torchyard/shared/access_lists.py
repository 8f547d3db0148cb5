"""Let single Unix accounts read a folder: POSIX access lists, without a program for them.

Owns: reading and writing the list of a folder.
Leaves: who may read what to its callers.
Always: the owner's rights stay, the group's and everybody else's go.

Source: acl(5), and the form of the attribute in Linux's `posix_acl_xattr.h`.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Union

# A path, or a descriptor of the folder.
Folder = Union[Path, int]
_ATTRIBUTE = "system.posix_acl_access"
_VERSION = struct.pack("<I", 2)
_ENTRY = struct.Struct("<HHI")
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 0x01, 0x02, 0x04, 0x10, 0x20
_NOBODY = 0xFFFFFFFF
_READ, _WRITE = 0o5, 0o7


def readers(folder: Folder) -> set[int]:
    """The ids of the users whom the list lets read the folder."""
    try:
        content = os.getxattr(folder, _ATTRIBUTE)
    except OSError:  # it has none
        return set()
    entries = _ENTRY.iter_unpack(content[len(_VERSION) :])
    return {id for tag, rights, id in entries if tag == _USER and rights & _READ == _READ}


def let_read(folder: Folder, users: Iterable[int]) -> None:
    """These users, and no others but the owner, may list and enter the folder.

    Raises:
        OSError: the file system has no access lists.
    """
    _set(folder, users, _READ)


def let_write(folder: Folder, users: Iterable[int]) -> None:
    """As `let_read`; they may also put files into it, and take them out.

    Raises:
        OSError: the file system has no access lists.
    """
    _set(folder, users, _WRITE)


def _set(folder: Folder, users: Iterable[int], rights: int) -> None:
    ids = sorted(set(users))
    owner = stat.S_IMODE(os.stat(folder).st_mode) >> 6
    entries = [(_OWNER, owner, _NOBODY), *((_USER, rights, id) for id in ids)]
    entries += [(_GROUP, 0, _NOBODY), (_MASK, rights if ids else 0, _NOBODY), (_OTHERS, 0, _NOBODY)]
    content = _VERSION + b"".join(_ENTRY.pack(*entry) for entry in entries)
    os.setxattr(folder, _ATTRIBUTE, content)
