"""From sockets on a node to the server, byte by byte, and to nowhere else.

Owns: connections from sockets that listen for a job's ranks; which of the server's addresses they
go to.
Leaves: making a job's own network to system/network_space.py, the plan's variables that name a
gate to node/client_gate.py.
Always: where a connection goes is the plan's, never what comes through it; the number of
connections is bounded; of several addresses only one counts at which the server's certificate was
seen.
"""

from __future__ import annotations

import http.client
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import SplitResult, urlsplit

from torchyard.shared import server_routes
from torchyard.shared.plan import GATE_HOST, GatePlan, LaunchPlan
from torchyard.worker.system.networks import LOOPBACK

_CONNECTIONS = 256
_CHUNK_BYTES = 1 << 16
_CONNECT_S = 30.0
_IDLE_S = 3600.0
_PORTS = {"http": 80, "https": 443}
# One of several addresses; another program may have taken it since.
_NEXT_AFTER_S = 5.0
_SEEN_FOR_S = 60.0
_WAIT_S, _PAUSE_S = 20.0, 0.5

Connect = Callable[[], socket.socket]
"""A new connection to the server; raises OSError."""


def at(target: tuple[str, int]) -> Connect:
    """To one address, from this machine's network."""
    return lambda: socket.create_connection(target, _CONNECT_S)


def addresses(plan: LaunchPlan) -> list[tuple[str, int]]:
    """Where the plan's variables say that the server listens, IPv4 addresses and ports."""
    targets: dict[tuple[str, int], None] = {}
    for url in (plan.server_url, *plan.variables.values()):
        parts = urlsplit(url) if url.startswith(("http://", "https://")) else None
        if parts is None or not parts.hostname or parts.netloc == GATE_HOST:
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

    def __init__(self, listeners: Sequence[tuple[socket.socket, Connect]]) -> None:
        self._listeners = listeners
        self._slots = threading.BoundedSemaphore(_CONNECTIONS)
        for listener, connect in listeners:
            listener.setblocking(True)
            threading.Thread(
                target=self._accept, args=(listener, connect), name="server-gate", daemon=True
            ).start()

    def close(self) -> None:
        for listener, _ in self._listeners:
            try:
                listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`
            except OSError:
                pass
            listener.close()

    def _accept(self, listener: socket.socket, connect: Connect) -> None:
        while True:
            self._slots.acquire()
            try:
                connection, _ = listener.accept()
            except OSError:
                self._slots.release()
                return
            threading.Thread(target=self._carry, args=(connection, connect), daemon=True).start()

    def _carry(self, connection: socket.socket, connect: Connect) -> None:
        try:
            with connection, connect() as server:
                _carry_both_ways(connection, server)
        except (OSError, http.client.HTTPException):
            pass  # The other end is gone: this one notices by its closed connection.
        finally:
            self._slots.release()


class ServerTls:
    """Connections to the server's TLS listener, at the first of its addresses that has it.

    Args:
        environ: of the worker; names its proxy.
    """

    def __init__(self, plan: GatePlan, environ: Mapping[str, str]) -> None:
        self._addresses = [urlsplit(url) for url in plan.urls]
        self._authority = plan.authority
        self._environ = environ
        self._lock = threading.Lock()
        self._seen: tuple[SplitResult, float] | None = None

    def connect(self) -> socket.socket:
        """Waits a while for a server that is being restarted.

        Raises:
            OSError, http.client.HTTPException: it answers at none of them.
        """
        deadline = time.monotonic() + _WAIT_S
        while True:
            try:
                return self._connect()
            except (OSError, http.client.HTTPException):
                if time.monotonic() + _PAUSE_S > deadline:
                    raise
            time.sleep(_PAUSE_S)

    def _connect(self) -> socket.socket:
        if len(self._addresses) == 1:
            return self._open(self._addresses[0], _CONNECT_S)
        with self._lock:
            seen = self._seen
        if seen is not None and time.monotonic() < seen[1] + _SEEN_FOR_S:
            try:
                return self._open(seen[0], _NEXT_AFTER_S)
            except (OSError, http.client.HTTPException):
                pass  # it has moved, or is being restarted
        return self._find(seen[0] if seen else None)

    def _find(self, last: SplitResult | None) -> socket.socket:
        failures = []
        for address in sorted(self._addresses, key=lambda address: address != last):
            try:
                # Whose certificate it is, before a client is led there.
                with self._open(address, _NEXT_AFTER_S) as probe:
                    server_routes.trusting(self._authority).wrap_socket(probe).close()
                opened = self._open(address, _NEXT_AFTER_S)
            except (OSError, http.client.HTTPException) as error:
                failures.append(f"{address.netloc}: {error}")
                continue
            with self._lock:
                self._seen = (address, time.monotonic())
            return opened
        raise OSError("; ".join(failures))

    def _open(self, address: SplitResult, limit_s: float) -> socket.socket:
        host, port = address.hostname or "", address.port or _PORTS["https"]
        tunnel = server_routes.tunnel(address, limit_s, self._environ)
        return tunnel or socket.create_connection((host, port), limit_s)


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
