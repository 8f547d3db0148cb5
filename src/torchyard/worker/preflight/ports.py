"""Ports that are held for the ranks until they start.

Owns: finding a free port, keeping other programs and other torchyard jobs off it.
Leaves: telling the other nodes to rendezvous.py.
Always: a port is held until the ranks start, and no other torchyard job on this machine takes it
until the attempt ends.
"""

from __future__ import annotations

import errno
import socket

from torchyard.shared.failures import Failure

FIRST_PORT, LAST_PORT = 6105, 6999


class HeldPort:
    """A port nobody else can bind; `open_up` lets the ranks bind it."""

    def __init__(self, port: int, holder: socket.socket, lock: socket.socket | None) -> None:
        self.port = port
        self._holder = holder
        self._lock = lock

    def listen(self) -> socket.socket:
        """Answer, for as long as no rank of any node can be there yet; `deafen` ends it."""
        self._holder.listen(1024)
        return self._holder

    def deafen(self) -> None:
        """Answer nobody any more, and go on holding the port."""
        try:
            self._holder.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it did not listen

    def open_up(self) -> None:
        """Free the port for the ranks; other torchyard jobs still keep off."""
        self._holder.close()

    def close(self) -> None:
        self._holder.close()
        if self._lock is not None:
            self._lock.close()


def hold_port(first: int = FIRST_PORT, last: int = LAST_PORT) -> HeldPort:
    """The first free port; held by a socket and by a machine-wide lock."""
    for port in range(first, last + 1):
        try:
            lock = _lock(port)
        except BlockingIOError:
            continue
        holder = _bind(port)
        if holder is not None:
            return HeldPort(port, holder, lock)
        if lock is not None:
            lock.close()
    raise Failure(
        "no_free_port",
        f"no port from {first} to {last} is free on {socket.gethostname()}",
        "end programs that hold them; `ss -ltnp` lists them",
    )


def _lock(port: int) -> socket.socket | None:
    """Keep other torchyard jobs off; None where the system has no abstract addresses.

    Raises:
        BlockingIOError: another job has it.
    """
    # An abstract address lives in the network namespace, as ports do, is seen by every Unix user,
    # needs no file anywhere and goes with its process, however that ends.
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0torchyard-port-{port}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            raise BlockingIOError(error.errno, f"port {port} is another job's") from error
        return None
    return lock


def _bind(port: int) -> socket.socket | None:
    """A socket that keeps others from the port and answers nobody.

    It is bound but does not listen: a rank of a quicker node must be refused and try again, not
    be connected to a worker that then hangs up.
    """
    # torch listens on IPv6 and IPv4 at once where it can, so the port must be free on both.
    for kind in (socket.AF_INET6, socket.AF_INET):
        try:
            holder = socket.socket(kind, socket.SOCK_STREAM)
        except OSError:
            continue
        try:
            if kind == socket.AF_INET6:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            holder.bind(("", port))
            return holder
        except OSError as error:
            holder.close()
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return None
    return None
