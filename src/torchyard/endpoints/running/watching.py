"""What is seen of instances: their jobs and their probes.

Owns: one prober an instance, relays to other machines, delays between starts.
Leaves: what follows to decisions.py.
Always: all of it can be seen again by another server.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastapi.concurrency import run_in_threadpool

from torchyard.base.home import handed_sockets
from torchyard.compute import actions as computes
from torchyard.endpoints.records.types import Instance, InstanceState
from torchyard.endpoints.running import instance_jobs
from torchyard.endpoints.running.decisions import JobState, Key, Kind, Observation, Step
from torchyard.endpoints.running.probes import Prober
from torchyard.endpoints.running.relays import Relay
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs.admission import waiting_reasons
from torchyard.jobs.attempts import running
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Services

# The router has read its table by then.
_DRAIN_LEAST_S = 1.0
_DRAIN_MORE_S = 30.0
_LONGEST_DELAY_S = 60.0
_PREFIX = "ScoringFailed: "
_OWN_PLACE = re.compile(r" \([^()]*supervise\.py[^()]*\)\Z")


@dataclass
class _Watched:
    """One start of an instance. Times are of a monotonic clock."""

    job: str
    prober: Prober | None = None
    relay: Relay | None = None
    draining_at_s: float = 0.0
    ended_at_s: float = 0.0

    def close(self) -> None:
        if self.prober is not None:
            self.prober.close()
        if self.relay is not None:
            self.relay.close()
        self.prober = self.relay = None


class Watcher:
    """In the event loop's thread."""

    def __init__(self, services: Services, changed: Callable[[], None]) -> None:
        self._services = services
        self._changed = changed
        self._watched: dict[tuple[str, str, str], _Watched] = {}
        self._failures: dict[tuple[str, str, str], int] = {}
        self._job_keys: set[str] = set()

    def hear(self, key: str) -> None:
        """In any thread: have a round begin when the job of an instance has changed."""
        if key in self._job_keys:
            self._changed()

    def close(self) -> None:
        for watched in self._watched.values():
            watched.close()
        self._watched.clear()
        self._job_keys.clear()

    async def watch(
        self, instance: Instance, spec: DeploymentSpec, in_flight: int | None
    ) -> Observation:
        """
        Args:
            in_flight: requests at work in it, as the router says; None when it doesn't.
        """
        watched = self._of(instance)
        job = await run_in_threadpool(instance_jobs.find, self._services.db, instance)
        state = _state_of(job)
        if state is not JobState.RUNNING:
            watched.close()
        elif watched.prober is None and job is not None:
            await self._open(watched, instance, spec, job)
        if state is JobState.ENDED and not watched.ended_at_s:
            watched.ended_at_s = time.monotonic()
        prober = watched.prober
        is_dead = prober is not None and prober.is_dead
        is_ready = prober is not None and prober.is_ready and not is_dead
        error = prober.error if prober else ""
        if state is JobState.ENDED:
            error = _error_of(job)
        elif state is JobState.WAITING and job is not None:
            error = await run_in_threadpool(_reason_of, self._services, job)
        if job is not None and state is not JobState.ENDED:
            self._job_keys.add(jobs.job_key(job))
        return Observation(
            state,
            error,
            is_ready,
            state is JobState.WAITING or (prober is not None and not is_ready),
            is_dead,
            self._is_drained(instance, watched, spec, in_flight),
            self._may_restart(instance, watched),
            job is not None and job.status is Status.CANCELED,
        )

    def socket_of(self, key: Key, there: Iterable[Instance]) -> str:
        """Where an instance serves; empty while it does not."""
        for instance in there:
            if (instance.revision, instance.number) == key:
                prober = self._of(instance).prober
                return "" if prober is None else prober.path
        return ""

    def done(self, step: Step, there: Iterable[Instance]) -> None:
        """Take note of what was carried out."""
        for instance in there:
            if (instance.revision, instance.number) != step.key:
                continue
            name = _name(instance)
            if step.kind is Kind.READY:
                self._failures.pop(name, None)
            elif step.kind is Kind.RESTART:
                self._failures[name] = self._failures.get(name, 0) + 1
            if step.kind in (Kind.RESTART, Kind.END):
                self._watched.pop(name, _Watched("")).close()

    def forget_others(self, there: Iterable[Instance]) -> None:
        names = {_name(each) for each in there}
        for name in [name for name in self._watched if name not in names]:
            self._watched.pop(name).close()
            self._failures.pop(name, None)
        if len(self._job_keys) > 2 * len(names) + 100:
            self._job_keys.clear()  # those of jobs that run are added in the next round

    def _of(self, instance: Instance) -> _Watched:
        watched = self._watched.get(_name(instance))
        if watched is None or watched.job != instance.job:
            if watched is not None:
                watched.close()
            watched = self._watched[_name(instance)] = _Watched(instance.job)
        return watched

    async def _open(
        self, watched: _Watched, instance: Instance, spec: DeploymentSpec, job: Job
    ) -> None:
        attempt = await run_in_threadpool(running.attempt_of, self._services.db, job)
        if attempt is None:
            return
        path = handed_sockets.path(self._services.home, attempt, instance_jobs.SERVICE)
        if not await run_in_threadpool(self._is_local, job):
            watched.relay = Relay(self._services, attempt, path)
            await watched.relay.open()
        is_ready = instance.state is InstanceState.READY and instance.host == str(path)
        watched.prober = Prober(
            str(path),
            spec.readiness_probe,
            spec.liveness_probe,
            instance.state is not InstanceState.STARTING,
            is_ready,
            self._changed,
        )

    def _is_local(self, job: Job) -> bool:
        """Whether it was handed a socket of this machine."""
        with self._services.db.read() as connection:
            compute = computes.find(connection, job.workspace, job.compute)
        return compute is None or compute.is_local

    def _is_drained(
        self,
        instance: Instance,
        watched: _Watched,
        spec: DeploymentSpec,
        in_flight: int | None,
    ) -> bool:
        if instance.state is not InstanceState.DRAINING:
            return False
        now_s = time.monotonic()
        watched.draining_at_s = watched.draining_at_s or now_s
        drained_s = now_s - watched.draining_at_s
        limit_s = spec.request_settings.request_timeout_ms / 1000 + _DRAIN_MORE_S
        return drained_s >= limit_s or (drained_s >= _DRAIN_LEAST_S and in_flight == 0)

    def _may_restart(self, instance: Instance, watched: _Watched) -> bool:
        failures = self._failures.get(_name(instance), 0)
        if not failures or not watched.ended_at_s:
            return True
        delay_s = min(_LONGEST_DELAY_S, 2.0**failures / 2)
        return time.monotonic() - watched.ended_at_s >= delay_s


def _name(instance: Instance) -> tuple[str, str, str]:
    return instance.workspace, instance.endpoint, instance.id


def _state_of(job: Job | None) -> JobState:
    if job is None:
        return JobState.MISSING
    if job.status.ended:
        return JobState.ENDED
    is_running = job.status in (*running.STATUSES, Status.FINALIZING)
    return JobState.RUNNING if is_running else JobState.WAITING


def _reason_of(services: Services, job: Job) -> str:
    """Why it does not run yet."""
    if job.status is Status.PREPARING:
        return "its environment is being prepared"
    reason = waiting_reasons.describe(services, job)
    return f"its job {reason}" if reason else f"its job is {job.status.value}"


def _error_of(job: Job | None) -> str:
    """As people read it: what the script raised, without our own words around it."""
    if job is None:
        return ""
    if job.error is None:
        return f"its job is {job.status.value}"
    message = job.error.message
    _, prefix, text = message.partition(_PREFIX)
    return _OWN_PLACE.sub("", text) if prefix else message
