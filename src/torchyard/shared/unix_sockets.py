"""Unix sockets that a program is handed, already listening.

Owns: making one in a folder, connecting to one, finding the one that was handed in.
Leaves: whose the folder is to who makes it; it says who may connect.
Always: whoever has the descriptor answers, and nobody else can: a socket's name is taken once, by a
rename within a folder that its owner alone enters; when the last process that has the descriptor
has ended, the name refuses connections. Paths may be longer than the 107 characters of an address.

Source: unix(7).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Optional

BACKLOG = 2048
_LONGEST_ADDRESS = 100
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def listen(path: Path) -> Optional[socket.socket]:
    """A listening socket at `path`, in whose folder those are removed that nobody answers at; None
    where somebody answers there already.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _remove_unanswered(path.parent)
    if path.exists():
        return None
    folder = os.open(path.parent, _FOLDER)
    # Whoever looks for those that nobody answers at must not find one before it listens.
    draft = f".{os.getpid()}-{os.urandom(4).hex()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(f"/proc/self/fd/{folder}/{draft}")
        os.chmod(draft, 0o600, dir_fd=folder)
        listener.listen(BACKLOG)
        os.rename(draft, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(folder)
    return listener


def connect(connection: socket.socket, path: str) -> None:
    """Connect a Unix socket; as `connect` says when it does not block.

    Raises:
        OSError: nobody answers there.
    """
    if len(os.fsencode(path)) <= _LONGEST_ADDRESS:
        connection.connect(path)
        return
    folder = os.open(os.path.dirname(path), _FOLDER)
    try:
        connection.connect(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)


def inherited() -> list[int]:
    """The listening Unix sockets that this process was handed when it was started."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor <= 2:
            continue
        with suppress(OSError):
            if not os.get_inheritable(descriptor):
                continue
            family = _option(descriptor, socket.SO_DOMAIN)
            if family == socket.AF_UNIX and _option(descriptor, socket.SO_ACCEPTCONN):
                found.append(descriptor)
    return found


def _option(descriptor: int, option: int) -> int:
    """
    Raises:
        OSError: it is no socket.
    """
    copy = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=os.dup(descriptor))
    with copy:
        return copy.getsockopt(socket.SOL_SOCKET, option)


def _remove_unanswered(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            try:
                connect(probe, str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
            except OSError:
                pass  # so many wait there that it takes nobody just now, or it is gone
