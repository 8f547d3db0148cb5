"""Open files handed from one program of this machine to another, over a Unix socket.

Owns: receiving descriptors, which of them are believed, copying between two files.
Leaves: the server's end of the socket to base/bodies/handover.py, a command's to client/handing.py.
Always: of a descriptor that arrived nothing is asked but what the kernel knows by itself, until it
is known to be a regular file on a disk of this machine: a file system that a program or another
machine serves may never answer.

Source: unix(7), SCM_RIGHTS; proc_pid_fdinfo(5); ioctl_ficlone(2).
"""

from __future__ import annotations

import array
import errno
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterable
from pathlib import Path

TICKET_CHARACTERS = 32
"""How the server names a connection, in the first bytes that it sends there."""
_ANSWER_LIMIT_S = 10.0
_MESSAGE = b"f"
_DISKS = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs")
)
_O_PATH = getattr(os, "O_PATH", 0)
_CLONE = 0x40049409  # FICLONE
_BLOCK_BYTES, _PIECE_BYTES = 1 << 20, 1 << 30
_NO_RANGES = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)


class NotHanded(Exception):
    """No descriptor came, or one that is not to be read."""


def peer_user(connection: socket.socket) -> int:
    """The user id of the program at the other end, as it was when it connected."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return int(struct.unpack("3i", credentials)[1])


def send(connection: socket.socket, descriptor: int) -> None:
    """
    Raises:
        OSError: nobody takes it.
    """
    connection.settimeout(_ANSWER_LIMIT_S)
    socket.send_fds(connection, [_MESSAGE], [descriptor])


def receive(connection: socket.socket) -> int:
    """The next descriptor, of a regular file on a disk of this machine; closed by the caller.

    Raises:
        NotHanded: none came, or another one.
    """
    connection.settimeout(_ANSWER_LIMIT_S)
    try:
        _, received, is_cut = receive_message(connection, len(_MESSAGE), 1)
    except OSError as error:
        raise NotHanded(f"no descriptor came ({error})") from error
    try:
        if len(received) != 1 or is_cut:
            raise NotHanded("no descriptor came")
        _check(received[0])
    except BaseException as error:
        # To close one of a file system that a program serves may wait for that program.
        threading.Thread(target=_close, args=(received,), daemon=True).start()
        if isinstance(error, (OSError, ValueError)):
            raise NotHanded(f"the descriptor can't be looked at ({error})") from error
        raise
    return received[0]


def receive_message(
    connection: socket.socket, most_bytes: int, most_descriptors: int
) -> tuple[bytes, list[int], bool]:
    """What comes next, with its descriptors, which no program inherits and the caller closes.

    Returns:
        The bytes, the descriptors of whatever kind, and whether more of those came.

    Raises:
        OSError: the connection failed.
    """
    received = array.array("i")
    # Not by `socket.recv_fds`, which leaves them to programs that are started meanwhile.
    data, controls, flags, _ = connection.recvmsg(
        most_bytes,
        socket.CMSG_LEN(most_descriptors * received.itemsize),
        socket.MSG_CMSG_CLOEXEC,
    )
    for level, kind, content in controls:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
    return data, list(received), bool(flags & socket.MSG_CTRUNC)


def _close(received: Iterable[int]) -> None:
    for descriptor in received:
        os.close(descriptor)


def _check(descriptor: int) -> None:
    """
    Raises:
        NotHanded: it is not to be read.
    """
    information = Path(f"/proc/self/fdinfo/{descriptor}").read_text()
    fields = dict(line.split(":", 1) for line in information.splitlines() if ":" in line)
    flags = int(fields["flags"], 8)
    if flags & _O_PATH or flags & os.O_ACCMODE == os.O_WRONLY:
        raise NotHanded("the descriptor can't be read")
    kind = _mounted_kind(fields.get("mnt_id", "").strip())
    if kind not in _DISKS:
        raise NotHanded(f"the file is on no disk of this machine ({kind or 'unknown'})")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise NotHanded("the descriptor is not a regular file's")


def _mounted_kind(mount_id: str) -> str:
    """The file system of a mount; empty for one that this process does not see, as a pipe's."""
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        mount, _, kind = line.partition(" - ")
        if mount_id and mount.partition(" ")[0] == mount_id:
            return kind.partition(" ")[0]
    return ""


def clone(source: int, target: int) -> bool:
    """Let `target` share the blocks of `source`; False where the disk can't."""
    import fcntl  # as in locks.py: a command on another system imports this module

    try:
        fcntl.ioctl(target, _CLONE, source)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        return False
    return True


def copy_range(source: int, target: int, offset: int, size_bytes: int) -> int:
    """Copy up to `size_bytes` from an offset to the same one; returns how many, 0 at the end.

    Raises:
        OSError: as of reading and writing.
    """
    # Pythons that were built for an old C library lack it, such as uv's and conda's.
    if hasattr(os, "copy_file_range"):
        try:
            count = os.copy_file_range(source, target, size_bytes, offset, offset)
        except OSError as error:
            if error.errno not in _NO_RANGES:
                raise
            count = 0
        if count:  # some file systems say 0 before the end
            return count
    block = os.pread(source, min(size_bytes, _BLOCK_BYTES), offset)
    return os.pwrite(target, block, offset) if block else 0


def copy_all(source: int, target: int) -> None:
    """Copy a file from its beginning to its end, into an empty one.

    Raises:
        OSError: as of reading and writing.
    """
    offset = 0
    while count := copy_range(source, target, offset, _PIECE_BYTES):
        offset += count
