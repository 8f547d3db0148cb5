"""Nodes knock at each other's doors before their ranks start.

Owns: the sockets of it, who reached whom and how fast, how far apart the clocks are, the moment
from which all nodes know that every other one is through.
Leaves: what an unreachable door means to preflight.py.
Always: whoever answers must know the word that the node told the meeting: a stranger's port is
never taken for ours. A port that was knocked at is free again, without waiting for TIME_WAIT.
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
_LOOK_EVERY_S = 0.1
_LEAVE_S = 1.0
_HELLO = "torchyard-preflight-1"
_LONGEST_LINE = 256
_AT_ONCE = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Way:
    """One connection that was tried; `meets` is the port where the ranks will meet.

    `left` says that somebody was there and hung up, as a worker does that ends.
    """

    to: int
    address: str
    port: int
    meets: bool
    took_ms: float
    error: str = ""
    left: bool = False


@dataclass(frozen=True)
class Apart:
    """How far this clock is ahead of node 0's, and how sure that is."""

    seconds: float
    sure_to_s: float


class _Stopped(OSError):
    """The job is being stopped: nothing that is seen now says anything."""


def open_door(address: str) -> socket.socket:
    """A listener on a port that the system chose, as gloo's and NCCL's are."""
    door = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # Loopback alone where no other machine takes part.
    door.bind((address if address.startswith("127.") else "", 0))
    door.listen(1024)
    return door


def new_word() -> str:
    return os.urandom(12).hex()


class Round:
    """One node's part. Used by one thread.

    Args:
        facts: of all nodes, in their order.
        doors: listeners, the node's own first; node 0 has the one of the meeting port too.
        meeting_port: node 0's port where ranks meet.
        stopped: asked several times a second; when it says yes, OSError is raised.
    """

    def __init__(
        self,
        facts: Sequence[Facts],
        node: int,
        doors: Sequence[socket.socket],
        meeting_port: int,
        stopped: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.time,
        connect_s: float = CONNECT_S,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._facts = facts
        self._own = facts[node]
        self._doors = {door.fileno(): door for door in doors}
        self._first_door = doors[0].fileno()
        self._stopped = stopped
        self._clock = clock
        self._connect_s = connect_s
        self._answer_s = answer_s
        self._poll = select.poll()
        self._guests: dict[int, _Guest] = {}
        self._callers: dict[int, _Caller] = {}
        self._ended: list[_Caller] = []
        self._lost: set[int] = set()
        for door in doors:
            door.setblocking(False)
            self._poll.register(door, select.POLLIN)
        for other in facts:
            if other.node != node:
                self._call(other, other.door, False)
        if node > 0:
            self._call(facts[0], meeting_port, True)

    def knock(self) -> list[Way]:
        """Try every connection; returns when each has succeeded or failed."""
        while not all(caller.settled for caller in self._all()):
            self._turn()
        return [caller.way() for caller in self._all()]

    def apart(self) -> Apart | None:
        """By the answer of node 0; None at node 0 itself, and without an answer."""
        found = [one.apart for one in self._all() if one.to.node == 0 and one.apart is not None]
        return min(found, key=lambda one: one.sure_to_s) if found else None

    def serve(self, seconds: float) -> None:
        """Go on answering others.

        Raises:
            OSError: the job is being stopped.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._turn()

    def together(self) -> list[int]:
        """Say that this node is through, and wait until all are; returns those that are not, or
        have left.
        """
        until = time.monotonic() + self._answer_s
        return self._as_first(until) if self._own.node == 0 else self._as_other(until)

    def close(self) -> None:
        for sock in [
            *(guest.sock for guest in self._guests.values()),
            *(caller.sock for caller in self._callers.values()),
        ]:
            _end(sock)

    def _as_first(self, until: float) -> list[int]:
        wanted = {one.node for one in self._facts} - {0}
        while missing := wanted - {one.node for one in self._guests.values() if one.done}:
            if time.monotonic() > until or missing & self._lost:
                return sorted(missing & self._lost or missing)
            self._turn()
        through = [one for one in self._guests.values() if one.done]
        for guest in through:
            _send(guest.sock, "go")
        # They hang up first: then no port of this node has to wait.
        until = time.monotonic() + _LEAVE_S
        while any(one in self._guests.values() for one in through) and time.monotonic() < until:
            self._turn()
        return []

    def _as_other(self, until: float) -> list[int]:
        first = next(one for one in self._all() if one.to.node == 0 and not one.meets)
        _send(first.sock, "done")
        while not first.released:
            if first.error or time.monotonic() > until:
                return [0]
            self._turn()
        return []

    def _call(self, other: Facts, port: int, meets: bool) -> None:
        caller = _Caller(other, port, meets, self._own, self._clock)
        self._callers[caller.sock.fileno()] = caller
        if caller.settled:
            self._drop(caller)
        else:
            self._poll.register(caller.sock, select.POLLOUT)

    def _all(self) -> list[_Caller]:
        return [*self._ended, *self._callers.values()]

    def _turn(self) -> None:
        if self._stopped():
            raise _Stopped("stopped while the nodes looked for each other")
        for number, _ in self._poll.poll(int(_LOOK_EVERY_S * 1000)):
            if number in self._doors:
                self._open(self._doors[number], number != self._first_door)
            elif number in self._guests:
                self._hear(self._guests[number])
            elif number in self._callers:
                self._go_on(self._callers[number])
        now = time.monotonic()
        for caller in list(self._callers.values()):
            if caller.is_late(now, self._connect_s, self._answer_s):
                self._drop(caller)

    def _open(self, door: socket.socket, meets: bool) -> None:
        try:
            sock, _ = door.accept()
        except OSError:
            return
        sock.setblocking(False)
        self._guests[sock.fileno()] = _Guest(sock, meets)
        self._poll.register(sock, select.POLLIN)

    def _hear(self, guest: _Guest) -> None:
        lines = guest.lines.read(guest.sock)
        for line in lines or ():
            words = line.split(" ")
            if len(words) == 4 and words[:2] == [_HELLO, self._own.nonce] and words[3].isdigit():
                guest.node = int(words[3])
                _send(guest.sock, f"{words[2]} {self._clock():.6f}")
            elif line == "done" and guest.node > 0:
                guest.done = True
            else:
                lines = None
                break
        if lines is None:
            if not guest.meets and not guest.done:
                self._lost.add(guest.node)
            self._poll.unregister(guest.sock)
            del self._guests[guest.sock.fileno()]
            _end(guest.sock)

    def _go_on(self, caller: _Caller) -> None:
        if caller.proceed():
            self._poll.modify(caller.sock, select.POLLIN)
        # The way to node 0's door stays open: by it all are told that all are through.
        if caller.error or (caller.settled and (caller.meets or caller.to.node > 0)):
            self._drop(caller)

    def _drop(self, caller: _Caller) -> None:
        number = caller.sock.fileno()
        if self._callers.pop(number, None) is not None:
            self._ended.append(caller)
            try:
                self._poll.unregister(number)
            except KeyError:
                pass
            caller.sock.close()


class _Lines:
    """Bytes until they are lines."""

    def __init__(self) -> None:
        self._rest = b""

    def read(self, sock: socket.socket) -> list[str] | None:
        """Whole lines that have come; None when the other end is gone or says too much."""
        try:
            new = sock.recv(4096)
        except (BlockingIOError, InterruptedError):
            return []
        except OSError:
            return None
        *lines, self._rest = (self._rest + new).split(b"\n")
        if not new or len(self._rest) > _LONGEST_LINE:
            return None
        return [line.decode("utf-8", "replace") for line in lines]


class _Guest:
    """Who came to a door of ours; `node` is -1 until he has said who he is."""

    def __init__(self, sock: socket.socket, meets: bool) -> None:
        self.sock = sock
        self.meets = meets
        self.lines = _Lines()
        self.node = -1
        self.done = False


class _Caller:
    """A connection of ours to another node's door."""

    def __init__(
        self, to: Facts, port: int, meets: bool, own: Facts, clock: Callable[[], float]
    ) -> None:
        self.to, self.port, self.meets = to, port, meets
        self._own, self._clock = own, clock
        self._lines = _Lines()
        self._began = time.monotonic()
        self._connected = False
        self._said_at = 0.0
        self._took_s = 0.0
        self.answered = self.released = self.left = False
        self.error = ""
        self.apart: Apart | None = None
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

    def way(self) -> Way:
        took_ms = round(self._took_s * 1000, 3)
        return Way(
            self.to.node, self.to.address, self.port, self.meets, took_ms, self.error, self.left
        )

    def is_late(self, now: float, connect_s: float, answer_s: float) -> bool:
        """Whether it has just failed by waiting for too long."""
        if self.settled or now - self._began < (answer_s if self._connected else connect_s):
            return False
        self.error = f"no answer within {connect_s:g} s"
        if self._connected:
            self.error, self.left = f"connected, and nobody spoke within {answer_s:g} s", True
        return True

    def proceed(self) -> bool:
        """Do what can be done now; whether it has just been connected."""
        if not self._connected:
            return self._greet()
        lines = self._lines.read(self.sock)
        if lines is None and not self.released:
            self.error, self.left = self.error or "the connection was closed", True
        for line in lines or ():
            if not self.answered:
                self._take(line)
            elif line == "go":
                self.released = True
        return False

    def _greet(self) -> bool:
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self.error = os.strerror(code)
            return False
        self._connected = True
        self._took_s = time.monotonic() - self._began
        self._said_at = self._clock()
        _send(self.sock, f"{_HELLO} {self.to.nonce} {self._own.nonce} {self._own.node}")
        return True

    def _take(self, line: str) -> None:
        heard_at = self._clock()
        words = line.split(" ")
        if len(words) != 2 or words[0] != self._own.nonce:
            self.error = "something else answers there, not this job's node"
            return
        self.answered = True
        half_s = (heard_at - self._said_at) / 2
        self.apart = Apart(self._said_at + half_s - float(words[1]), half_s)


def blocked(ways: Sequence[Way]) -> dict[int, list[Way]]:
    """The ways that are shut, by the node at their other end."""
    found: dict[int, list[Way]] = {}
    for way in ways:
        if way.error:
            found.setdefault(way.to, []).append(way)
    return found


def told(ways: Sequence[Way]) -> list[Mapping[str, object]]:
    """For the record of the job."""
    return [
        {key: value for key, value in vars(way).items() if key != "left" and value != ""}
        for way in ways
    ]


def _send(sock: socket.socket, line: str) -> None:
    # A line is far below what the system takes at once; who is gone is noticed when reading.
    try:
        sock.send(line.encode() + b"\n")
    except OSError:
        pass


def _end(sock: socket.socket) -> None:
    """Close at once, with nothing of it left in the system."""
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        sock.close()
