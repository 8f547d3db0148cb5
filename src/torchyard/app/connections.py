"""How many connections the server holds, in all and per address.

Owns: counting connections from their first byte, TLS or not; which one is closed for a newcomer;
whose body is read next.
Leaves: what a connection does to http_protocol.py, which calls from the event loop alone.
Always: a connection with a request at work, or whose response is still being sent, is never closed
for another; idle ones go first, then those that have not sent a whole request head, of the address
that holds the most.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import resource
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torchyard.base import addresses
from torchyard.base.addresses import Network

_log = logging.getLogger(__name__)
_LOG_EVERY_S = 60.0
# Files that the server needs besides connections: the database, blobs, logs, pipes of processes.
_MOST_OTHER_FILES = 512
_LEAST_CONNECTIONS = 64
_MOST_FAREWELLS = 64
_READS_AT_ONCE = 4
PIECE_BYTES = 32 << 10
# When few are waiting, larger pieces make their uploads faster.
_FEW, _FEW_PIECE_BYTES = 8, 256 << 10


class Stage(enum.Enum):
    IDLE = "idle"
    """Between two requests."""
    WAITING = "waiting"
    """No whole request head has come yet."""
    BUSY = "busy"
    """A request is at work."""


@dataclass(frozen=True)
class ConnectionLimits:
    """
    Attributes:
        total: of the whole server.
        per_address: of one IPv4 address or one /64 network of IPv6.
        unlimited: networks without a limit per address: the trusted proxies, behind which many
            people come from one address.
        head_s: how long a request's head may take.
        grace_s: how long a body, or the client's reading of a response, may be slower than the
            least rate.
        skip_s: how long the rest of a body is skipped that the response did not wait for.
        look_s: how often connections are looked at.
    """

    total: int = 2048
    per_address: int = 256
    unlimited: Sequence[Network] = ()
    handshake_s: float = 10.0
    head_s: float = 30.0
    grace_s: float = 30.0
    skip_s: float = 10.0
    look_s: float = 5.0


DEFAULT_LIMITS = ConnectionLimits()


@dataclass
class _Client:
    """The connections of one address; each dictionary keeps the order in which they joined it."""

    name: str
    count: int = 0
    idle: dict[Slot, None] = field(default_factory=dict)
    waiting: dict[Slot, None] = field(default_factory=dict)

    def pool(self, stage: Stage) -> dict[Slot, None] | None:
        if stage is Stage.IDLE:
            return self.idle
        return self.waiting if stage is Stage.WAITING else None

    def oldest(self) -> Slot | None:
        """The first to make way; one that still sends a response does not."""
        for pool in (self.idle, self.waiting):
            for slot in pool:
                if not slot.is_sending():
                    return slot
        return None


class Slot:
    """A connection's place among the others; `release` it when the connection is lost.

    Attributes:
        close: closes the connection at once, and what it has not sent is lost.
        is_sending: whether it has such bytes.
    """

    def __init__(self, connections: Connections, client: _Client, close: Callable[[], None]):
        self._connections = connections
        self._client = client
        self._stage: Stage | None = None
        self.close = close
        self.is_sending: Callable[[], bool] = lambda: False

    def enter(self, stage: Stage) -> None:
        """Say what the connection does from now on."""
        if self._stage is stage or self not in self._connections:
            return
        self._leave_pool()
        self._stage = stage
        pool = self._client.pool(stage)
        if pool is not None:
            pool[self] = None

    def release(self) -> None:
        if self in self._connections:
            self._leave_pool()
            self._connections.forget(self, self._client)

    def _leave_pool(self) -> None:
        pool = None if self._stage is None else self._client.pool(self._stage)
        if pool is not None:
            pool.pop(self, None)


class ReadingTurns:
    """Lets bodies be read a few at a time, so that other requests need not wait for all of them."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()

    def wait(self, read: Callable[[], None]) -> None:
        """Call `read` when it is its turn; it reads once."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._next)
        self._waiting.append(read)

    @property
    def piece_bytes(self) -> int:
        """How much of a body may be read at once: each piece is in memory until it is written."""
        return _FEW_PIECE_BYTES if len(self._waiting) < _FEW else PIECE_BYTES

    def _next(self) -> None:
        try:
            for _ in range(min(_READS_AT_ONCE, len(self._waiting))):
                self._waiting.popleft()()
        finally:
            if self._waiting:
                # Behind whatever else has come in the meantime.
                asyncio.get_running_loop().call_soon(self._next)


class Connections:
    """Of one server; for use in its event loop alone."""

    def __init__(
        self,
        limits: ConnectionLimits = DEFAULT_LIMITS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits = limits
        self.refused = 0
        self.turns = ReadingTurns()
        self._farewells = 0
        self._now = now
        self._slots: set[Slot] = set()
        self._clients: dict[str, _Client] = {}
        self._logged_at = float("-inf")
        self._total = min(limits.total, _affordable())

    def __len__(self) -> int:
        return len(self._slots)

    def __contains__(self, slot: Slot) -> bool:
        return slot in self._slots

    def admit(self, host: str, close: Callable[[], None]) -> Slot | None:
        """A slot for a new connection, or None when it must be refused.

        Args:
            close: closes the connection at once, when another needs its place.
        """
        name = addresses.client_of(host)
        client = self._clients.get(name) or _Client(name)
        if self._is_limited(host) and client.count >= self.limits.per_address:
            if not self._close_one([client]):
                self._note_refusal(host, f"{client.count} of its own")
                return None
        if len(self._slots) >= self._total:
            by_count = sorted(self._clients.values(), key=lambda each: each.count, reverse=True)
            if not self._close_one(by_count):
                self._note_refusal(host, f"{len(self._slots)} in all")
                return None
        slot = Slot(self, client, close)
        self._clients[name] = client
        client.count += 1
        self._slots.add(slot)
        slot.enter(Stage.WAITING)
        return slot

    @property
    def total(self) -> int:
        """How many there may be: as the limits say, or fewer if the system allows no more files."""
        return self._total

    def forget(self, slot: Slot, client: _Client) -> None:
        self._slots.discard(slot)
        client.count -= 1
        if not client.count:
            self._clients.pop(client.name, None)

    def begin_farewell(self) -> bool:
        """Whether a refused connection may stay for the moment that its answer takes."""
        if self._farewells >= _MOST_FAREWELLS:
            return False
        self._farewells += 1
        return True

    def end_farewell(self) -> None:
        self._farewells -= 1

    def _is_limited(self, host: str) -> bool:
        # Workers of jobs on the server's own machine come over loopback, each with several.
        address = addresses.parse(host)
        if address is None or address.is_loopback:
            return False
        return not any(address in network for network in self.limits.unlimited)

    def _close_one(self, clients: Sequence[_Client]) -> bool:
        for client in clients:
            slot = client.oldest()
            if slot is not None:
                slot.release()
                slot.close()
                return True
        return False

    def _note_refusal(self, host: str, reason: str) -> None:
        self.refused += 1
        if self._now() - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = self._now()
            _log.warning(
                "refused a connection from %s: there are %s (%d refused so far)",
                host,
                reason,
                self.refused,
            )


def _affordable() -> int:
    """How many connections the limit of open files allows."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 1 << 20
    return max(_LEAST_CONNECTIONS, limit - min(_MOST_OTHER_FILES, limit // 2))
