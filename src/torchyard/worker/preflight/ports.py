"""Ports that are held for the ranks until they start.

Owns: finding a free port, keeping other programs and other torchyard jobs off it.
Leaves: publishing the port to rendezvous.py.
Always: a port is held until the ranks start, and no other torchyard job on this machine takes it
until the attempt ends, also when node 0's worker is killed: ranks of the other nodes still try to
connect to it, and would count as the other job's.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from torchyard.shared.failures import Failure

FIRST_PORT, LAST_PORT = 6105, 6999
_ADDRESSES = Path("/proc/net/unix")


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


class PortMark:
    """Keeps other torchyard jobs off a port that another node of this machine holds."""

    def __init__(self) -> None:
        self._mark: socket.socket | None = None

    def set(self, port: int) -> None:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            mark.bind(f"\0{_name(port)}-{os.getpid()}-{id(self)}")
        except OSError:
            mark.close()  # the system has no abstract addresses
            return
        self.close()
        self._mark = mark

    def close(self) -> None:
        if self._mark is not None:
            self._mark.close()
            self._mark = None


def hold_port(first: int = FIRST_PORT, last: int = LAST_PORT) -> HeldPort:
    """Hold the first free port, by a socket and a machine-wide lock."""
    for port in range(first, last + 1):
        try:
            lock = _lock(port)
        except BlockingIOError:
            continue
        holder = None if _is_marked(port) else _bind(port)
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
        lock.bind(f"\0{_name(port)}")
    except OSError as error:
        lock.close()
        if error.errno == errno.EADDRINUSE:
            raise BlockingIOError(error.errno, f"another job holds port {port}") from error
        return None
    return lock


def _name(port: int) -> str:
    return f"torchyard-port-{port}"


def _is_marked(port: int) -> bool:
    try:
        addresses = _ADDRESSES.read_bytes()
    except OSError:
        return False
    return f" @{_name(port)}-".encode() in addresses


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
