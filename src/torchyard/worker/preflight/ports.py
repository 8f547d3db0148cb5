"""Ports that are held for the ranks until they start.

Owns: finding a free port, keeping other programs and other torchyard jobs off it.
Leaves: publishing the port to rendezvous.py.
Always: a port is held until the ranks start, and no other torchyard job on this machine takes it
until the attempt ends.
"""

from __future__ import annotations

import errno
import socket

from torchyard.shared.failures import Failure

FIRST_PORT, LAST_PORT = 6105, 6999


class HeldPort:
    """A port that nothing else can bind; `release` lets the ranks bind it."""

    def __init__(self, port: int, holder: socket.socket, lock: socket.socket | None) -> None:
        self.port = port
        self._holder = holder
        self._lock = lock

    def listen(self) -> socket.socket:
        """Accept probes while no rank has started yet; `stop_listening` ends it."""
        self._holder.listen(1024)
        return self._holder

    def stop_listening(self) -> None:
        """Refuse connections again, but keep holding the port."""
        try:
            self._holder.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it was not listening

    def release(self) -> None:
        """Free the port for the ranks, but keep the lock against other torchyard jobs."""
        self._holder.close()

    def close(self) -> None:
        self._holder.close()
        if self._lock is not None:
            self._lock.close()


def hold_port(first: int = FIRST_PORT, last: int = LAST_PORT) -> HeldPort:
    """Hold the first free port, by a socket and a machine-wide lock."""
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
        "stop programs that hold them: `ss -ltnp` lists them",
    )


def _lock(port: int) -> socket.socket | None:
    """Lock the port against other torchyard jobs; None if the system has no abstract addresses.

    Raises:
        BlockingIOError: another job holds it.
    """
    # An abstract address lives in the network namespace, as ports do, is seen by every Unix user,
    # needs no file anywhere and goes with its process, however that ends.
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(f"\0torchyard-port-{port}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            raise BlockingIOError(error.errno, f"another job holds port {port}") from error
        return None
    return lock


def _bind(port: int) -> socket.socket | None:
    """A socket that is bound to the port but does not listen.

    A rank of a faster node must be refused and try again, rather than connect to a worker that
    then hangs up.
    """
    # torch listens on IPv6 and IPv4 at once if it can, so the port must be free on both.
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
