"""Ask instances whether they are alive.

Owns: one probe after another of each instance, as its deployment's settings say.
Leaves: what follows to decisions.py.
Always: an instance is asked at its own socket and at no other; an answer is never read beyond its
first line; one that starts is asked again at once, so that it serves as soon as it can.

Source: the probes of Azure ML's managed online deployments: GET / of the inference server, 200 to
399 is success.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

from torchyard.endpoints.spec.settings import Probe
from torchyard.shared import unix_sockets

_STARTING_PERIOD_S = 0.1
_LINE_MOST_BYTES = 4096


class Prober:
    """Of one start of an instance, in the event loop's thread.

    Attributes:
        is_ready: it answered as often as its readiness probe wants, and has not failed it too often
            since.
        is_dead: its probes failed as often as they may.
        error: the last probe's; empty after a success.
    """

    def __init__(
        self,
        path: str,
        readiness: Probe,
        liveness: Probe,
        has_served: bool,
        is_ready: bool,
        changed: Callable[[], None],
    ) -> None:
        """
        Args:
            path: of its socket.
            has_served: it was ready before.
            is_ready: it takes requests now.
        """
        self.path = path
        self.is_ready = is_ready
        self._has_served = has_served
        self.is_dead = False
        self.error = ""
        self._readiness, self._liveness = readiness, liveness
        self._changed = changed
        self._task = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        if not self._has_served:
            if not await self._becomes_ready():
                self._end()
                return
            self.is_ready = True
            self._changed()
        readiness = asyncio.get_running_loop().create_task(self._follow_readiness())
        try:
            failures = 0
            while failures < self._liveness.failure_threshold:
                await asyncio.sleep(self._liveness.period)
                self.error = await ask(self.path, self._liveness.timeout)
                failures = failures + 1 if self.error else 0
        finally:
            readiness.cancel()
        self._end()

    async def _follow_readiness(self) -> None:
        """Say when it may take no more requests, and when it may again."""
        probe = self._readiness
        count = 0
        while True:
            # One that is out of rotation comes back as soon as it can.
            await asyncio.sleep(probe.period if self.is_ready else min(probe.period, 1))
            error = await ask(self.path, probe.timeout)
            count = count + 1 if bool(error) == self.is_ready else 0
            limit = probe.failure_threshold if self.is_ready else probe.success_threshold
            if count >= limit:
                self.is_ready, self.error, count = not self.is_ready, error, 0
                self._changed()

    async def _becomes_ready(self) -> bool:
        probe = self._readiness
        limit_s = probe.initial_delay + probe.period * probe.failure_threshold
        deadline = time.monotonic() + limit_s
        successes = 0
        while time.monotonic() < deadline:
            self.error = await ask(self.path, max(probe.timeout, 1))
            successes = 0 if self.error else successes + 1
            if successes >= probe.success_threshold:
                return True
            await asyncio.sleep(_STARTING_PERIOD_S)
        self.error = f"it was not ready within {limit_s} s: {self.error}"
        return False

    def _end(self) -> None:
        self.is_dead = True
        self._changed()


async def ask(path: str, timeout_s: float) -> str:
    """What is wrong; empty when it answers."""
    try:
        return await asyncio.wait_for(_get(path), timeout_s)
    except asyncio.TimeoutError:
        return f"no answer to a probe within {timeout_s:g} s"
    except (OSError, ValueError) as error:
        return f"a probe failed: {error}"


async def _get(path: str) -> str:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        unix_sockets.connect(connection, path)
    except OSError:
        connection.close()
        raise
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_LINE_MOST_BYTES)
    try:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        words = (await reader.readline()).split()
        status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    finally:
        writer.close()
    return "" if 200 <= status < 400 else f"a probe was answered with {status or 'nothing'}"
