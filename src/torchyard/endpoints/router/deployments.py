"""Deployments at work: their instances, the slots of those, and the queue for a slot.

Owns: which instance gets a request, who waits how long, time limits of models, connections that
are kept for the next request.
Leaves: bytes to instance_side.py, which deployment it is to routes.py.
Always: an instance has at most `max_concurrent` requests at work; the queue is served in its order;
a draining instance gets no new request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable

from torchyard.endpoints.router import errors
from torchyard.endpoints.router.calls import Call
from torchyard.endpoints.router.instance_side import InstanceConnection
from torchyard.endpoints.router.statistics import Counters, DeploymentStatistics
from torchyard.endpoints.router.table import DeploymentRow, InstanceRow
from torchyard.shared import unix_sockets

WAKE_S = 300.0
"""How long a request waits for a deployment's first instance."""
_MOST_FOR_WAKE = 1000
_KEPT_S = 1.0  # less than servers of models keep idle connections, gunicorn's 2 s among them
_CONNECT_S = 5.0
_AVOIDED_S = 0.5
_CROWDED_S = 0.01
_log = logging.getLogger(__name__)


class Instance:
    """One instance, and the router's connections to it."""

    def __init__(self, row: InstanceRow, deployment: Deployment) -> None:
        self.row = row
        self.in_flight = 0
        self.avoided_until = 0.0
        self._deployment = deployment
        self._idle: list[InstanceConnection] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self.is_gone = False
        self.has_ended = False

    def start(self, call: Call) -> None:
        """Send a call, on a connection that is there or on a new one."""
        self.in_flight += 1
        call.instance = self
        loop = self._deployment.loop
        call.sent_at = loop.time()
        if call.is_whole:
            self._deployment.start_timer(call)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable and call.sent_at - connection.idle_since < _KEPT_S:
                connection.send(call)
                return
            connection.close()
        task = loop.create_task(self._connect(call))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    async def _connect(self, call: Call) -> None:
        loop = self._deployment.loop
        try:
            opened = _opened(self.row.socket)
            if opened is None:
                opened = await asyncio.wait_for(_open_when_free(self.row.socket), _CONNECT_S)
            _, connection = await loop.create_connection(
                lambda: InstanceConnection(self), sock=opened
            )
        except (OSError, asyncio.TimeoutError) as error:
            self.avoided_until = loop.time() + _AVOIDED_S
            call.stop_timer()
            # Its socket was made before it began, and is kept until it ends.
            if isinstance(error, (ConnectionRefusedError, FileNotFoundError)):
                self.has_ended = True
            else:
                call.tried.add(self.row.id)
            self.release(call)
            if self.has_ended:
                self._deployment.lose(self)
            if not call.is_done:
                self._deployment.admit(call)
            return
        if call.is_done:
            self.keep(connection)
            self.release(call)
        else:
            connection.send(call)

    def keep(self, connection: InstanceConnection) -> None:
        if self.is_gone:
            connection.close()
            return
        connection.idle_since = self._deployment.loop.time()
        self._idle.append(connection)

    def lose(self, connection: InstanceConnection) -> None:
        if connection in self._idle:
            self._idle.remove(connection)

    def release(self, call: Call) -> None:
        """Free the slot that a call had."""
        if call.instance is not self:
            return
        call.instance = None
        call.stop_timer()
        self.in_flight -= 1
        self._deployment.released(self, call)

    def close_idle(self, older_than_s: float = 0.0) -> None:
        now = self._deployment.loop.time()
        for connection in list(self._idle):
            if now - connection.idle_since >= older_than_s:
                self._idle.remove(connection)
                connection.close()


def _opened(path: str) -> socket.socket | None:
    """A connection to an instance by its socket; None where too many wait there just now.

    Raises:
        OSError: the instance has ended.
    """
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    opened.setblocking(False)
    try:
        unix_sockets.connect(opened, path)
    except BlockingIOError:
        opened.close()
        return None
    except BaseException:
        opened.close()
        raise
    return opened


async def _open_when_free(path: str) -> socket.socket:
    while (opened := _opened(path)) is None:
        await asyncio.sleep(_CROWDED_S)
    return opened


class Deployment:
    """
    Args:
        wake: called when the first request begins to wait for an instance.
    """

    def __init__(
        self,
        key: str,
        name: str,
        row: DeploymentRow,
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
    ) -> None:
        self.key = key
        self.name = name
        self.name_bytes = name.encode()
        self.loop = loop
        self.counters = Counters()
        self.waiting_since: float | None = None
        self._wake = wake
        self._active: list[Instance] = []
        self._leaving: list[Instance] = []
        self._waiting: dict[Call, asyncio.TimerHandle] = {}
        self._next = 0
        self.is_gone = False
        self.row = row
        self.update(row)

    def update(self, row: DeploymentRow) -> None:
        """Go on with other settings and other instances."""
        self.row = row
        self.timeout_s = row.timeout_ms / 1000
        by_id = {each.row.id: each for each in (*self._active, *self._leaving)}
        leaving: list[Instance] = []
        self._active = []
        for each in row.instances:
            instance = by_id.get(each.id)
            if instance is not None and instance.row.socket == each.socket:
                instance.row, instance.is_gone = each, False
                del by_id[each.id]
            else:
                instance = Instance(each, self)
            is_leaving = each.is_draining or instance.has_ended
            (leaving if is_leaving else self._active).append(instance)
        for instance in by_id.values():
            instance.is_gone = True
            instance.close_idle()
            if instance.in_flight:
                leaving.append(instance)
        self._leaving = leaving
        self.pump()

    def lose(self, instance: Instance) -> None:
        """An instance has ended, which the table does not say yet."""
        if instance not in self._active:
            return
        self._active.remove(instance)
        self._leaving.append(instance)
        if not self._active and self.row.can_wake:
            # They waited for a slot of it, which takes less time than another instance.
            waiting = list(self._waiting)
            for call in waiting:
                self.forget(call)
            for call in waiting:
                self._refuse_or_wake(call)

    def remove(self) -> None:
        """The deployment has left the table; what is at work goes on."""
        self.is_gone = True
        self.update(DeploymentRow())
        for call in list(self._waiting):
            self.forget(call)
            call.refused(errors.NO_DEPLOYMENT)

    def admit(self, call: Call) -> None:
        """Send a call to an instance, let it wait for one, or refuse it."""
        call.deployment = self
        instance = None if self._waiting and not call.tried else self._free(call.tried)
        if instance is not None:
            instance.start(call)
        elif call.tried and all(each.row.id in call.tried for each in self._active):
            self._refuse_or_wake(call)
        elif not self._active:
            self._refuse_or_wake(call)
        elif len(self._waiting) >= self.row.max_queue or not self.row.max_queue_wait_ms:
            call.refused(errors.BUSY)
        else:
            self._wait(call, self.row.max_queue_wait_ms / 1000)

    @property
    def has_instance(self) -> bool:
        """Whether one takes requests."""
        return bool(self._active)

    def is_idle(self) -> bool:
        """Whether a slot is free for what may not wait."""
        return not self._waiting and self._free(frozenset()) is not None

    def forget(self, call: Call) -> None:
        """A call waits no longer."""
        timer = self._waiting.pop(call, None)
        if timer is not None:
            timer.cancel()
        if not self._waiting:
            self.waiting_since = None

    def start_timer(self, call: Call) -> None:
        """Begin, or begin again, the time that the model has."""
        call.stop_timer()
        call.timer = self.loop.call_later(self.timeout_s, self._time_over, call)

    def released(self, instance: Instance, call: Call) -> None:
        self.counters.busy_s += self.loop.time() - call.sent_at
        if instance.is_gone and not instance.in_flight and instance in self._leaving:
            self._leaving.remove(instance)
        if self._waiting:
            self.pump()

    def pump(self) -> None:
        """Give free slots to those who wait."""
        while self._waiting:
            call = next(iter(self._waiting))
            instance = self._free(call.tried)
            if instance is None:
                break
            self.forget(call)
            instance.start(call)
        if self._active:
            self.waiting_since = None

    def statistics(self) -> DeploymentStatistics:
        return DeploymentStatistics(
            self.counters,
            {each.row.id: each.in_flight for each in (*self._active, *self._leaving)},
            len(self._waiting),
            self.waiting_since,
        )

    def close_idle(self, older_than_s: float = 0.0) -> None:
        for instance in (*self._active, *self._leaving):
            instance.close_idle(older_than_s)

    def _refuse_or_wake(self, call: Call) -> None:
        if not self.row.can_wake or len(self._waiting) >= _MOST_FOR_WAKE or call.tried:
            call.refused(errors.NO_INSTANCE)
            return
        self._wait(call, WAKE_S)
        if self.waiting_since is None:
            self.waiting_since = time.time()
            self._wake()

    def _wait(self, call: Call, limit_s: float) -> None:
        self._waiting[call] = self.loop.call_later(limit_s, self._waited, call)

    def _waited(self, call: Call) -> None:
        self.forget(call)
        call.refused(errors.BUSY if self._active else errors.NO_INSTANCE)

    def _time_over(self, call: Call) -> None:
        call.timer = None
        if not call.is_done:
            call.refused(errors.TIMEOUT)
        call.leave()

    def _free(self, tried: set[str] | frozenset[str]) -> Instance | None:
        """The instance with the fewest requests, of several the next in turn."""
        active, limit = self._active, self.row.max_concurrent
        if len(active) == 1:
            only = active[0]
            return only if only.in_flight < limit and only.row.id not in tried else None
        best: Instance | None = None
        avoided: Instance | None = None
        now = self.loop.time()
        for offset in range(len(active)):
            at = (self._next + offset) % len(active)
            instance = active[at]
            if instance.in_flight >= limit or instance.row.id in tried:
                continue
            if instance.avoided_until > now:
                avoided = avoided or instance
            elif best is None or instance.in_flight < best.in_flight:
                best, chosen_at = instance, at
                if not instance.in_flight:
                    break
        if best is None:
            return avoided
        self._next = chosen_at + 1
        return best
