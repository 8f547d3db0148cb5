"""Stop instances that nobody uses, and obey their schedules.

Owns: the rounds, asking a JupyterLab when it was last used.
Leaves: what stopping means to actions.py, when a schedule is due to schedules.py.
Always: of several servers of a home one keeps; an instance with a busy kernel is in use.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import State

from torchyard.base.clock import from_text
from torchyard.base.errors import DatabaseUnreachable, TorchyardError
from torchyard.instances import actions, documents, schedules, store
from torchyard.instances.types import RUNNING, SERVICE, STOPPED, Instance
from torchyard.interactive import running_nodes
from torchyard.interactive.running_nodes import RunningNode
from torchyard.jobs.attempts import running
from torchyard.jobs.services import Services
from torchyard.shared import locks
from torchyard.tunnels.tunnel import ChannelClosed
from torchyard.workspaces import rights

_EVERY_S = 5.0
_ANSWER_LIMIT_S = 20.0
_ANSWER_MOST_BYTES = 4 << 20
_log = logging.getLogger(__name__)


@asynccontextmanager
async def keeping(services: Services, state: State) -> AsyncIterator[None]:
    """Keep the instances of a server, within the block."""
    keeper = Keeper(services)
    keeper.start()
    try:
        yield
    finally:
        await keeper.stop()


class Keeper:
    """Runs in the event loop, from `start` to `stop`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.round()
            except DatabaseUnreachable:
                pass  # the scheduler's rounds say so
            except Exception:
                _log.exception("a round over compute instances failed")

    async def round(self) -> None:
        """Look at every instance once."""
        instances = await run_in_threadpool(actions.list_in, self._services.db, "")
        if not instances:
            return
        with ExitStack() as stack:
            lock = self._services.lock("instances")
            if not stack.enter_context(locks.held_if_free(lock)):
                return
            for instance in instances:
                try:
                    await self._look(instance)
                except (TorchyardError, ChannelClosed) as error:
                    _log.warning("compute instance %s: %s", instance.name, error)

    async def _look(self, instance: Instance) -> None:
        services, now = self._services, self._services.clock.now()
        if not await run_in_threadpool(self._may_run, instance):
            await run_in_threadpool(self._stop_unable, instance)
            return
        spec = documents.read_stored(instance.document)
        action = schedules.due(spec.schedules, instance.scheduled_at, now)
        if spec.schedules:
            await run_in_threadpool(self._change, instance, scheduled_at=now)
        key = instance.workspace, instance.name, instance.owner
        if instance.message == actions.RESTARTING:
            state, _ = await run_in_threadpool(actions.state_of, services.db, instance)
            action = "start" if state == STOPPED else ""
        if action == "start" and instance.state != RUNNING:
            await run_in_threadpool(actions.start, services, *key)
        elif action == "stop" and instance.state == RUNNING:
            await run_in_threadpool(actions.stop, services, *key, "stopped by its schedule")
        elif instance.state == RUNNING and spec.idle_minutes:
            await self._stop_if_idle(instance, spec.idle_minutes, now)

    async def _stop_if_idle(self, instance: Instance, minutes: int, now: datetime) -> None:
        state, _ = await run_in_threadpool(actions.state_of, self._services.db, instance)
        if state != RUNNING:
            return
        active_at = await self._active_at(instance, now)
        if active_at is None:
            return
        active_at = max(active_at, instance.active_at)
        await run_in_threadpool(self._change, instance, active_at=active_at)
        if now - active_at >= timedelta(minutes=minutes):
            message = f"stopped after {minutes} minutes without use"
            await run_in_threadpool(
                actions.stop,
                self._services,
                instance.workspace,
                instance.name,
                instance.owner,
                message,
            )

    async def _active_at(self, instance: Instance, now: datetime) -> datetime | None:
        """When it was last used, as its JupyterLab says; None while that does not answer."""
        job = await run_in_threadpool(actions.job_of, self._services.db, instance)
        attempt = (
            await run_in_threadpool(running.attempt_of, self._services.db, job) if job else None
        )
        if attempt is None:
            return None
        running_node = RunningNode(attempt, 0, 0, 0)
        status = await self._ask(running_node, "/api/status")
        if not isinstance(status, dict) or "last_activity" not in status:
            return None
        kernels = await self._ask(running_node, "/api/kernels") if status.get("kernels") else []
        if any(kernel.get("execution_state") == "busy" for kernel in kernels or []):
            return now
        return from_text(str(status["last_activity"]).replace("Z", "+00:00"))

    async def _ask(self, running_node: RunningNode, path: str) -> Any:
        request = {"kind": "service", "name": SERVICE}
        channel = await running_nodes.open_channel(self._services, running_node, request)
        try:
            text = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            await channel.write(text.encode())
            return await asyncio.wait_for(_answer(channel), _ANSWER_LIMIT_S)
        except asyncio.TimeoutError:
            return None
        finally:
            channel.close()

    def _may_run(self, instance: Instance) -> bool:
        with self._services.db.read() as connection:
            return rights.may_run(connection, instance.owner, instance.workspace)

    def _stop_unable(self, instance: Instance) -> None:
        """Its job was stopped; here it is noted, and what waits for a restart waits no more."""
        message = rights.refusal(instance.owner, instance.workspace).message
        if (instance.state, instance.message) != (STOPPED, message):
            self._change(instance, state=STOPPED, message=message)

    def _change(self, instance: Instance, **values: Any) -> None:
        with self._services.db.write() as connection:
            store.change(connection, instance, **values)


async def _answer(channel: Any) -> Any:
    data = bytearray()
    while piece := await channel.read():
        data += piece
        if len(data) > _ANSWER_MOST_BYTES:
            return None
    _, _, body = bytes(data).partition(b"\r\n\r\n")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
