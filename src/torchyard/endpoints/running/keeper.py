"""Bring what is wanted of endpoints and what there is together.

Owns: the rounds, what is known of instances between them, carrying steps out, the router's life.
Leaves: what is to be done to decisions.py, how many instances to scaling.py, jobs to jobs/.
Always: of several servers of a home one keeps; everything can be rebuilt from rows, so that a
server may be killed at any moment; the router outlives the keeper.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TypeVar

from fastapi.concurrency import run_in_threadpool
from starlette.datastructures import State

from torchyard.base.errors import DatabaseUnreachable, TorchyardError
from torchyard.endpoints.records import collected_data, counts, news, store
from torchyard.endpoints.records.types import (
    Deployment,
    Endpoint,
    EndpointKeys,
    Instance,
    InstanceState,
    ProvisioningState,
)
from torchyard.endpoints.router.control import RouterAway
from torchyard.endpoints.router.table import EndpointRow, Table
from torchyard.endpoints.running import collection, decisions, routing
from torchyard.endpoints.running.measuring import Measurements
from torchyard.endpoints.running.router_process import RouterProcess, ScoringAt
from torchyard.endpoints.running.scaling import Load, Scale
from torchyard.endpoints.running.steps import Steps
from torchyard.endpoints.running.watching import Watcher
from torchyard.endpoints.spec import deployment_spec
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.jobs.services import Services
from torchyard.shared import locks
from torchyard.workspaces import rights

_BUSY_S, _IDLE_S, _EMPTY_S = 0.2, 1.0, 5.0
_DEMAND_S = 20.0
_Result = TypeVar("_Result")
_Name = counts.Name
# Workspaces, each with a person who may run something there.
_Able = set[tuple[str, str]]
_log = logging.getLogger(__name__)


@asynccontextmanager
async def keeping(services: Services, state: State) -> AsyncIterator[None]:
    """Keep the endpoints of a server, within the block."""
    keeper = Keeper(services, state.scoring_at or ScoringAt())
    keeper.start()
    try:
        yield
    finally:
        await keeper.stop()


class Keeper:
    """Runs in the event loop, from `start` to `stop`."""

    def __init__(self, services: Services, at: ScoringAt) -> None:
        self._services = services
        self._router = RouterProcess(services.home, at)
        self._steps = Steps(services)
        self._watcher = Watcher(services, self._wake)
        self._scales: dict[_Name, Scale] = {}
        self._statistics: dict[str, dict[str, object]] = {}
        self._measurements = Measurements()
        self._task: asyncio.Task[None] | None = None
        self._demand: asyncio.Task[None] | None = None
        self._problem = ""
        # A round that goes on in its thread after the stop starts no router any more.
        self._router_lock = threading.Lock()
        self._is_stopped = False

    def start(self) -> None:
        self._services.signals.listen(self._watcher.hear)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        self._services.signals.ignore(self._watcher.hear)
        self._router.stop_waiting()
        for task in (self._demand, self._task):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([task], timeout=5)
        self._watcher.close()
        await run_in_threadpool(self._leave_router)

    def _leave_router(self) -> None:
        """It goes on without this server, unless it has nothing left to lead to."""
        with self._router_lock:
            self._is_stopped = True
            with suppress(DatabaseUnreachable):
                if self._has_router() and not self._read()[0]:
                    self._stop_router()
            self._router.leave()

    def _wake(self) -> None:
        self._services.signals.notify(news.ENDPOINTS)

    async def _run(self) -> None:
        while True:
            seen = self._services.signals.count(news.ENDPOINTS)
            pause_s = _IDLE_S
            try:
                pause_s = await self.round()
            except DatabaseUnreachable:
                pass  # the scheduler's rounds say so
            except Exception:
                _log.exception("a round over online endpoints failed")
            await asyncio.sleep(0.02)
            await self._services.signals.wait(news.ENDPOINTS, seen, pause_s)

    async def round(self) -> float:
        """Look at every endpoint once; returns how long the next round may wait, in seconds."""
        endpoints, deployments, instances, able = await run_in_threadpool(self._read)
        if not endpoints:
            self._watcher.close()
            if self._has_router():
                await run_in_threadpool(self._stop_router)
            return _EMPTY_S
        with ExitStack() as stack:
            if not stack.enter_context(locks.held_if_free(self._services.lock("endpoints"))):
                self._watcher.close()  # another server keeps
                return _IDLE_S
            return await self._keep(endpoints, deployments, instances, able)

    async def _keep(
        self,
        endpoints: dict[tuple[str, str], tuple[Endpoint, EndpointKeys]],
        deployments: Sequence[Deployment],
        instances: dict[_Name, list[Instance]],
        able: _Able,
    ) -> float:
        await run_in_threadpool(self._ensure_router)
        is_busy = False
        for deployment in deployments:
            name = (deployment.workspace, deployment.endpoint, deployment.name)
            endpoint, _ = endpoints[name[:2]]
            there = instances.get(name, [])
            try:
                may_run = (deployment.workspace, deployment.owner) in able
                is_busy |= await self._look(endpoint, deployment, there, may_run)
            except TorchyardError as error:
                _log.warning("deployment %s of %s: %s", deployment.name, endpoint.name, error)
        self._watcher.forget_others(each for group in instances.values() for each in group)
        self._measurements.forget_others(
            [(each.workspace, each.endpoint, each.name) for each in deployments]
        )
        if is_busy:
            # What was just decided is in the table at once.
            endpoints, deployments, instances, able = await run_in_threadpool(self._read)
        await run_in_threadpool(self._write_table, endpoints, deployments, instances, able)
        await run_in_threadpool(self._finish, endpoints, deployments, instances)
        await self._remove_endpoints(endpoints, deployments)
        starting = (InstanceState.STARTING, InstanceState.UNREADY, InstanceState.DRAINING)
        is_busy |= any(each.state in starting for group in instances.values() for each in group)
        self._await_demand(endpoints, deployments)
        return _BUSY_S if is_busy else _IDLE_S

    async def _look(
        self, endpoint: Endpoint, deployment: Deployment, there: list[Instance], may_run: bool
    ) -> bool:
        """Whether something was done."""
        await run_in_threadpool(self._steps.say_who_may_run, deployment, may_run)
        spec = deployment_spec.read(dict(deployment.document))
        served = spec
        if deployment.served_revision and deployment.served_revision != deployment.revision:
            served = deployment_spec.read(dict(deployment.served_document))
        answering = served if decisions.target(deployment) != deployment.revision else spec
        loads = self._load_of(deployment)
        await self._measure(deployment, there)
        seen = {}
        for instance in there:
            settings = spec if instance.revision == deployment.revision else served
            in_flight = self._in_flight(deployment, instance)
            seen[instance.revision, instance.number] = await self._watcher.watch(
                instance, settings, in_flight
            )
        target_count = self._target_count(deployment, answering, there, loads)
        is_deleting = endpoint.state is ProvisioningState.DELETING
        steps = decisions.decide(deployment, there, seen, target_count, is_deleting, may_run)
        for step in steps:
            is_of_spec = step.key[0] == deployment.revision
            await run_in_threadpool(
                self._steps.carry_out,
                step,
                deployment,
                spec if is_of_spec else served,
                self._watcher.socket_of(step.key, there),
            )
            self._watcher.done(step, there)
        return bool(steps)

    async def _measure(self, deployment: Deployment, there: list[Instance]) -> None:
        body = self._counts_of(deployment)
        if body is None:
            return
        name = (deployment.workspace, deployment.endpoint, deployment.name)
        figures = self._measurements.take(name, counts.read(body), time.monotonic())
        if figures is not None:
            await run_in_threadpool(self._steps.record, there, figures)

    def _target_count(
        self, deployment: Deployment, spec: DeploymentSpec, there: list[Instance], load: Load | None
    ) -> int:
        name = (deployment.workspace, deployment.endpoint, deployment.name)
        now_s = time.monotonic()
        if name not in self._scales:
            running = sum(each.state is not InstanceState.DRAINING for each in there)
            self._scales[name] = Scale(running, now_s)
        return self._scales[name].target_count(spec, load, now_s)

    def _load_of(self, deployment: Deployment) -> Load | None:
        body = self._counts_of(deployment)
        if body is None:
            return None
        counted = counts.read(body)
        return Load(
            sum(counted.requests.values()),
            counted.busy_s,
            counted.in_flight,
            counted.queued,
            body.get("waiting_since") is not None,
        )

    def _in_flight(self, deployment: Deployment, instance: Instance) -> int | None:
        """None where the router doesn't say."""
        body = self._counts_of(deployment)
        if body is None:
            return None
        in_flight = body.get("in_flight")
        return int(in_flight.get(instance.id, 0)) if isinstance(in_flight, dict) else None

    def _counts_of(self, deployment: Deployment) -> dict[str, object] | None:
        endpoint = self._statistics.get(f"{deployment.workspace}/{deployment.endpoint}") or {}
        deployments = endpoint.get("deployments")
        body = deployments.get(deployment.name) if isinstance(deployments, dict) else None
        return body if isinstance(body, dict) else None

    def _read(
        self,
    ) -> tuple[
        dict[tuple[str, str], tuple[Endpoint, EndpointKeys]],
        list[Deployment],
        dict[_Name, list[Instance]],
        _Able,
    ]:
        """Endpoints with their keys, deployments, instances; which of their owners may run."""
        instances: dict[_Name, list[Instance]] = {}
        with self._services.db.read() as connection:
            endpoints = {
                (each.workspace, each.name): (each, store.keys_of(connection, each))
                for each in store.endpoints_in(connection, "")
            }
            if not endpoints:
                return {}, [], {}, set()
            deployments = store.deployments_in(connection)
            for each in store.instances_in(connection):
                name = (each.workspace, each.endpoint, each.deployment)
                instances.setdefault(name, []).append(each)
            owners = {(each.workspace, each.owner) for each in deployments}
            owners |= {(each.workspace, each.owner) for each, _ in endpoints.values()}
            able = rights.able(connection, owners)
        # One that was deleted and made again in the meantime is met in the next round.
        there = [each for each in deployments if (each.workspace, each.endpoint) in endpoints]
        return endpoints, there, instances, able

    def _write_table(
        self,
        endpoints: dict[tuple[str, str], tuple[Endpoint, EndpointKeys]],
        deployments: Sequence[Deployment],
        instances: dict[_Name, list[Instance]],
        able: _Able,
    ) -> None:
        rows: dict[str, EndpointRow] = {}
        for (workspace, name), (endpoint, keys) in endpoints.items():
            of_endpoint = {}
            for each in deployments:
                if (each.workspace, each.endpoint) != (workspace, name):
                    continue
                document = each.served_document if each.served_revision else each.document
                spec = deployment_spec.read(dict(document))
                there = instances.get((workspace, name, each.name), [])
                stores = self._services.datastores
                collected = collected_data.folder_of(stores, workspace, name, each.name)
                by_script = collection.is_by_script(self._services.blobs.of(workspace), spec)
                of_endpoint[each.name] = routing.deployment_row(
                    each, spec, there, collected, by_script
                )
            rows[f"{workspace}/{name}"] = routing.endpoint_row(
                endpoint, keys, of_endpoint, (workspace, endpoint.owner) in able
            )
        self._router.write(Table(endpoints=rows))

    def _finish(
        self,
        endpoints: dict[tuple[str, str], tuple[Endpoint, EndpointKeys]],
        deployments: Sequence[Deployment],
        instances: dict[_Name, list[Instance]],
    ) -> None:
        """Say of what is in the router's table that it is done, once the router has read it."""
        updating = (ProvisioningState.CREATING, ProvisioningState.UPDATING)
        changed: list[Endpoint | Deployment] = []
        changed += [each for each, _ in endpoints.values() if each.state in updating]
        changed += [
            each
            for each in deployments
            if each.state in updating
            and each.served_revision == each.revision
            and _is_grown(each, instances.get((each.workspace, each.endpoint, each.name), ()))
        ]
        if changed and self._router.refresh():
            self._steps.finish(changed)

    def _ensure_router(self) -> None:
        with self._router_lock:
            if self._is_stopped:
                return
            if not self._router.has_table:
                self._router.write(Table())
            problem = self._router.ensure()
        if problem and problem != self._problem:
            _log.error("online endpoints: %s", problem)
        self._problem = problem
        try:
            self._statistics = self._router.statistics().get("endpoints") or {}
        except RouterAway:
            self._statistics = {}

    def _has_router(self) -> bool:
        return self._router.is_known

    def _stop_router(self) -> None:
        with ExitStack() as stack:
            if stack.enter_context(locks.held_if_free(self._services.lock("endpoints"))):
                self._router.write(Table())
                self._router.stop()
                self._scales.clear()
                self._statistics = {}

    async def _remove_endpoints(
        self,
        endpoints: dict[tuple[str, str], tuple[Endpoint, EndpointKeys]],
        deployments: Sequence[Deployment],
    ) -> None:
        in_use = {(each.workspace, each.endpoint) for each in deployments}
        for name, (endpoint, _) in endpoints.items():
            if endpoint.state is ProvisioningState.DELETING and name not in in_use:
                await run_in_threadpool(self._steps.remove_endpoint, endpoint)
                for key in [each for each in self._scales if each[:2] == name]:
                    del self._scales[key]

    def _await_demand(
        self,
        endpoints: dict[tuple[str, str], tuple[Endpoint, EndpointKeys]],
        deployments: Sequence[Deployment],
    ) -> None:
        """Have a round begin as soon as a request waits for a first instance."""
        can_wake = any(
            deployment_spec.read(dict(each.document)).scale_settings.min_instances == 0
            for each in deployments
        )
        if can_wake and (self._demand is None or self._demand.done()):
            self._demand = asyncio.get_running_loop().create_task(self._hear_demand())

    async def _hear_demand(self) -> None:
        loop = asyncio.get_running_loop()
        ask: Callable[[], bool] = lambda: self._router.demand(_DEMAND_S)  # noqa: E731
        if await loop.run_in_executor(None, ask):
            self._wake()
            await asyncio.sleep(_BUSY_S)


def _is_grown(deployment: Deployment, there: Sequence[Instance]) -> bool:
    """Whether as many instances of its revision are ready as its file says."""
    spec = deployment_spec.read(dict(deployment.document))
    if spec.scale_settings.is_automatic:
        return True
    ready = [
        each
        for each in there
        if each.revision == deployment.revision and each.state is InstanceState.READY
    ]
    return len(ready) >= spec.instance_count
