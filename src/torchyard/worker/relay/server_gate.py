"""The way from a job's own network to the server, and to nowhere else.

Owns: connections from sockets that listen in the job's network, passed on byte by byte.
Leaves: making the network to system/network_space.py; where the server is now to
shared/server_address.py.
Always: where a connection goes is the plan's, never what comes through it; the number of
connections is bounded.
"""

from __future__ import annotations

import selectors
import socket
import threading
from urllib.parse import urlsplit

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.system.networks import LOOPBACK

_CONNECTIONS = 256
_CHUNK_BYTES = 1 << 16
_CONNECT_S = 30.0
_IDLE_S = 3600.0
_PORTS = {"http": 80, "https": 443}


def addresses(plan: LaunchPlan) -> list[tuple[str, int]]:
    """Where the plan's variables say that the server listens, IPv4 addresses and ports."""
    targets: dict[tuple[str, int], None] = {}
    for url in (plan.server_url, *plan.variables.values()):
        parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
        if parts is None or not parts.hostname:
            continue
        try:
            address = socket.gethostbyname(parts.hostname)
            port = parts.port or _PORTS[parts.scheme]
        except (OSError, ValueError):
            continue
        # Variables also name addresses of the relay, or of documentation: only the server's count.
        if parts.hostname == urlsplit(plan.server_url).hostname or address == LOOPBACK:
            targets[(address, port)] = None
    return list(targets)


class ServerGate:
    """Passes connections on until `close`."""

    def __init__(self, listeners: list[tuple[socket.socket, tuple[str, int]]]) -> None:
        self._listeners = listeners
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        for listener, target in listeners:
            threading.Thread(
                target=self._accept, args=(listener, target), name="server-gate", daemon=True
            ).start()

    def close(self) -> None:
        for listener, _ in self._listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            except OSError:
                pass
            listener.close()

    def _accept(self, listener: socket.socket, target: tuple[str, int]) -> None:
        listener.setblocking(True)
        while True:
            self._slots.acquire()
            try:
                connection, _ = listener.accept()
            except OSError:
                self._slots.release()
                return
            threading.Thread(target=self._carry, args=(connection, target), daemon=True).start()

    def _carry(self, connection: socket.socket, target: tuple[str, int]) -> None:
        try:
            with connection, socket.create_connection(target, _CONNECT_S) as server:
                _carry_both_ways(connection, server)
        except OSError:
            pass  # The other end is gone: this one notices by its closed connection.
        finally:
            self._slots.release()


def _carry_both_ways(first: socket.socket, second: socket.socket) -> None:
    """Until both have nothing more to say."""
    other = {first: second, second: first}
    for end in other:
        end.settimeout(_CONNECT_S)
    with selectors.DefaultSelector() as speaking:
        for end in other:
            speaking.register(end, selectors.EVENT_READ)
        while speaking.get_map():
            readable = [key.fileobj for key, _ in speaking.select(_IDLE_S)]
            if not readable:
                return
            for end in other:
                if end in readable and not _carry_chunk(end, other[end]):
                    speaking.unregister(end)


def _carry_chunk(source: socket.socket, target: socket.socket) -> bool:
    """False when the source has nothing more to say."""
    chunk = source.recv(_CHUNK_BYTES)
    if chunk:
        target.sendall(chunk)
    else:
        target.shutdown(socket.SHUT_WR)
    return bool(chunk)
