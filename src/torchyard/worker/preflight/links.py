"""Probe the connections between the nodes of a job before its ranks start.

Owns: the probes' sockets, who reached whom and how fast, the offset between the clocks, the moment
from which every node knows that all others have passed.
Leaves: what a failed connection means to preflight.py.
Always: an answer must prove knowledge of the nonce that the node published at the rendezvous, so
another program's port is never mistaken for a node's. A probed port is free again at once, without
TIME_WAIT.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torchyard.worker.preflight.node_facts import Facts

CONNECT_S = 5.0
ANSWER_S = 60.0
_POLL_EVERY_S = 0.1
_CLOSE_WAIT_S = 1.0
_HELLO = "torchyard-preflight-1"
_LONGEST_LINE = 256
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class ProbeResult:
    """The result of one attempted connection.

    `is_rendezvous_port` marks the port of the ranks' rendezvous on node 0. `hung_up` says that the
    other end accepted and then closed the connection, as a worker does when it ends.
    """

    to: int
    address: str
    port: int
    is_rendezvous_port: bool
    took_ms: float
    error: str = ""
    hung_up: bool = False


@dataclass(frozen=True)
class ClockOffset:
    """How far this node's clock is ahead of node 0's, give or take `uncertainty_s`."""

    ahead_s: float
    uncertainty_s: float


class _Stopped(OSError):
    """The job is being stopped, so failed connections prove nothing."""


def open_listener(address: str) -> socket.socket:
    """A listener on a port that the system chose, as gloo's and NCCL's are."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Only loopback if the job runs on one machine.
    listener.bind((address if address.startswith("127.") else "", 0))
    listener.listen(1024)
    return listener


def new_nonce() -> str:
    return os.urandom(12).hex()


class LinkProbe:
    """One node's side of the probes. Used by one thread.

    Args:
        facts: of all nodes, in node order.
        listeners: this node's own first; on node 0 the rendezvous port's as well.
        rendezvous_port: where the ranks' rendezvous will be, on node 0.
        is_stopped: checked several times a second; OSError is raised once it returns True.
    """

    def __init__(
        self,
        facts: Sequence[Facts],
        node: int,
        listeners: Sequence[socket.socket],
        rendezvous_port: int,
        is_stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        connect_s: float = CONNECT_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._facts = facts
        self._own_facts = facts[node]
        self._listeners = {listener.fileno(): listener for listener in listeners}
        self._own_listener = listeners[0].fileno()
        self._is_stopped = is_stopped
        self._clock = clock
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._poll = select.poll()
        self._inbound: dict[int, _Inbound] = {}
        self._outbound: dict[int, _Outbound] = {}
        self._finished: list[_Outbound] = []
        self._lost_nodes: set[int] = set()
        for listener in listeners:
            listener.setblocking(False)
            self._poll.register(listener, select.POLLIN)
        for other in facts:
            if other.node != node:
                self._connect(other, other.probe_port, False)
        if node > 0:
            self._connect(facts[0], rendezvous_port, True)

    def probe_all(self) -> list[ProbeResult]:
        """Try every connection; return when each has succeeded or failed."""
        while not all(connection.settled for connection in self._all_outbound()):
            self._poll_once()
        return [connection.result() for connection in self._all_outbound()]

    def clock_offset(self) -> ClockOffset | None:
        """Measured by node 0's answer; None on node 0 itself, and if node 0 did not answer."""
        by_node = [
            connection.clock_offset
            for connection in self._all_outbound()
            if connection.to.node == 0 and connection.clock_offset is not None
        ]
        return min(by_node, key=lambda connection: connection.uncertainty_s) if by_node else None

    def serve(self, seconds: float) -> None:
        """Keep answering other nodes.

        Raises:
            OSError: the job is being stopped.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._poll_once()

    def wait_for_all(self) -> list[int]:
        """Tell node 0 that this node passed, and wait until all have.

        Returns:
            The nodes that have not passed in time, or have hung up.
        """
        deadline = time.monotonic() + self._answer_s
        return (
            self._wait_as_node_0(deadline)
            if self._own_facts.node == 0
            else self._wait_as_other_node(deadline)
        )

    def close(self) -> None:
        for sock in [
            *(connection.sock for connection in self._inbound.values()),
            *(connection.sock for connection in self._outbound.values()),
        ]:
            _close_at_once(sock)

    def _wait_as_node_0(self, deadline: float) -> list[int]:
        expected_nodes = {connection.node for connection in self._facts} - {0}
        while missing_nodes := expected_nodes - {
            connection.node for connection in self._inbound.values() if connection.done
        }:
            if time.monotonic() > deadline or missing_nodes & self._lost_nodes:
                return sorted(missing_nodes & self._lost_nodes or missing_nodes)
            self._poll_once()
        ready = [connection for connection in self._inbound.values() if connection.done]
        for connection in ready:
            _send(connection.sock, "go")
        # The other nodes close first, so no port of this node is left in TIME_WAIT.
        deadline = time.monotonic() + _CLOSE_WAIT_S
        while (
            any(connection in self._inbound.values() for connection in ready)
            and time.monotonic() < deadline
        ):
            self._poll_once()
        return []

    def _wait_as_other_node(self, deadline: float) -> list[int]:
        node_0 = next(
            connection
            for connection in self._all_outbound()
            if connection.to.node == 0 and not connection.is_rendezvous_port
        )
        _send(node_0.sock, "done")
        while not node_0.released:
            if node_0.error or time.monotonic() > deadline:
                return [0]
            self._poll_once()
        return []

    def _connect(self, other: Facts, port: int, is_rendezvous_port: bool) -> None:
        connection = _Outbound(other, port, is_rendezvous_port, self._own_facts, self._clock)
        self._outbound[connection.sock.fileno()] = connection
        if connection.settled:
            self._drop(connection)
        else:
            self._poll.register(connection.sock, select.POLLOUT)

    def _all_outbound(self) -> list[_Outbound]:
        return [*self._finished, *self._outbound.values()]

    def _poll_once(self) -> None:
        if self._is_stopped():
            raise _Stopped("stopped while the nodes probed their connections")
        for descriptor, _ in self._poll.poll(int(_POLL_EVERY_S * 1000)):
            if descriptor in self._listeners:
                self._accept(self._listeners[descriptor], descriptor != self._own_listener)
            elif descriptor in self._inbound:
                self._read_inbound(self._inbound[descriptor])
            elif descriptor in self._outbound:
                self._advance(self._outbound[descriptor])
        now = time.monotonic()
        for connection in list(self._outbound.values()):
            if connection.is_late(now, self._connect_s, self._answer_s):
                self._drop(connection)

    def _accept(self, listener: socket.socket, is_rendezvous_port: bool) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        self._inbound[sock.fileno()] = _Inbound(sock, is_rendezvous_port)
        self._poll.register(sock, select.POLLIN)

    def _read_inbound(self, connection: _Inbound) -> None:
        lines = connection.lines.read(connection.sock)
        for line in lines or ():
            fields = line.split(" ")
            if (
                len(fields) == 4
                and fields[:2] == [_HELLO, self._own_facts.nonce]
                and fields[3].isdigit()
            ):
                connection.node = int(fields[3])
                _send(connection.sock, f"{fields[2]} {self._clock():.6f}")
            elif line == "done" and connection.node > 0:
                connection.done = True
            else:
                lines = None
                break
        if lines is None:
            if not connection.is_rendezvous_port and not connection.done:
                self._lost_nodes.add(connection.node)
            self._poll.unregister(connection.sock)
            del self._inbound[connection.sock.fileno()]
            _close_at_once(connection.sock)

    def _advance(self, connection: _Outbound) -> None:
        if connection.advance():
            self._poll.modify(connection.sock, select.POLLIN)
        # The connection to node 0 stays open: node 0 announces over it that all nodes passed.
        if connection.error or (
            connection.settled and (connection.is_rendezvous_port or connection.to.node > 0)
        ):
            self._drop(connection)

    def _drop(self, connection: _Outbound) -> None:
        descriptor = connection.sock.fileno()
        if self._outbound.pop(descriptor, None) is not None:
            self._finished.append(connection)
            try:
                self._poll.unregister(descriptor)
            except KeyError:
                pass
            connection.sock.close()


class _Lines:
    """A buffer that splits received bytes into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, sock: socket.socket) -> list[str] | None:
        """The complete lines received; None once the peer has closed or a line is too long."""
        try:
            received = sock.recv(4096)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        *lines, self._rest = (self._rest + received).split(b"\n")
        if not received or len(self._rest) > _LONGEST_LINE:
            return None
        return [line.decode("utf-8", "replace") for line in lines]


class _Inbound:
    """A connection that another node opened; `node` is -1 until it has identified itself."""

    def __init__(self, sock: socket.socket, is_rendezvous_port: bool) -> None:
        self.sock = sock
        self.is_rendezvous_port = is_rendezvous_port
        self.lines = _Lines()
        self.node = -1
        self.done = False


class _Outbound:
    """A connection from this node to another one."""

    def __init__(
        self,
        to: Facts,
        port: int,
        is_rendezvous_port: bool,
        own_facts: Facts,
        clock: Callable[[], float],
    ) -> None:
        self.to, self.port, self.is_rendezvous_port = to, port, is_rendezvous_port
        self._own_facts, self._clock = own_facts, clock
        self._lines = _Lines()
        self._started = time.monotonic()
        self._connected = False
        self._hello_sent_at = 0.0
        self._took_s = 0.0
        self.answered = self.released = self.hung_up = False
        self.error = ""
        self.clock_offset: ClockOffset | None = None
        self.sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.sock.setblocking(False)
        try:
            code = self.sock.connect_ex((to.address, port))
        except OSError as error:
            code = error.errno or errno.EINVAL
        if code not in (0, errno.EINPROGRESS):
            self.error = os.strerror(code)

    @property
    def settled(self) -> bool:
        return self.answered or bool(self.error)

    def result(self) -> ProbeResult:
        took_ms = round(self._took_s * 1000, 3)
        return ProbeResult(
            self.to.node,
            self.to.address,
            self.port,
            self.is_rendezvous_port,
            took_ms,
            self.error,
            self.hung_up,
        )

    def is_late(self, now: float, connect_s: float, answer_s: float) -> bool:
        """Whether the connection has just timed out."""
        if self.settled or now - self._started < (answer_s if self._connected else connect_s):
            return False
        self.error = f"no answer within {connect_s:g} s"
        if self._connected:
            self.error, self.hung_up = f"connected, but no answer within {answer_s:g} s", True
        return True

    def advance(self) -> bool:
        """Make progress without blocking; True if the connection was just established."""
        if not self._connected:
            return self._send_hello()
        lines = self._lines.read(self.sock)
        if lines is None and not self.released:
            self.error, self.hung_up = self.error or "the connection was closed", True
        for line in lines or ():
            if not self.answered:
                self._read_answer(line)
            elif line == "go":
                self.released = True
        return False

    def _send_hello(self) -> bool:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.error = os.strerror(code)
            return False
        self._connected = True
        self._took_s = time.monotonic() - self._started
        self._hello_sent_at = self._clock()
        _send(self.sock, f"{_HELLO} {self.to.nonce} {self._own_facts.nonce} {self._own_facts.node}")
        return True

    def _read_answer(self, line: str) -> None:
        answered_at = self._clock()
        fields = line.split(" ")
        if len(fields) != 2 or fields[0] != self._own_facts.nonce:
            self.error = "another program answers on that port"
            return
        self.answered = True
        half_s = (answered_at - self._hello_sent_at) / 2
        self.clock_offset = ClockOffset(self._hello_sent_at + half_s - float(fields[1]), half_s)


def failures_by_node(results: Sequence[ProbeResult]) -> dict[int, list[ProbeResult]]:
    """The failed connections, by the node at the other end."""
    by_node: dict[int, list[ProbeResult]] = {}
    for result in results:
        if result.error:
            by_node.setdefault(result.to, []).append(result)
    return by_node


def results_to_json(results: Sequence[ProbeResult]) -> list[Mapping[str, object]]:
    """The results as the `preflight` event carries them."""
    return [
        {
            "to": result.to,
            "address": result.address,
            "port": result.port,
            "meets": result.is_rendezvous_port,
            "took_ms": result.took_ms,
            **({"error": result.error} if result.error else {}),
        }
        for result in results
    ]


def _send(sock: socket.socket, line: str) -> None:
    # A line always fits into the socket's buffer; a closed peer is noticed when reading.
    try:
        sock.send(line.encode() + b"\n")
    except OSError:
        pass


def _close_at_once(sock: socket.socket) -> None:
    """Close without lingering, so that the port is free again."""
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        sock.close()
