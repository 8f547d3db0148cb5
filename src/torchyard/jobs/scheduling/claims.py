"""Claim nodes for several jobs in one transaction.

Owns: whether a queued job still may start, its attempt, its way to Starting.
Leaves: which job comes next to queue_walk.py, nodes to compute/, quotas to
admission/quota_checks.py.
Always: a job is checked against what the jobs before it in the same transaction hold; a job that
is refused has changed nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.jobs.admission import gpus, machine, queue, queue_store, quota_checks, shares
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, Job, Status
from torchyard.jobs.services import Services
from torchyard.workspaces import quotas


class Claims:
    """The claims of one transaction; `write` is to be called at its end.

    Args:
        never_clean: attempts whose folders are never removed: no later attempt waits for them.

    Raises:
        LeaseLost: another server may have taken over.
    """

    def __init__(
        self, services: Services, connection: Connection, never_clean: Collection[str]
    ) -> None:
        services.membership.check(connection)
        self._services = services
        self._connection = connection
        self._never_clean = never_clean
        self._now = services.clock.now()
        self._bounds = machine.bounds(services)
        self._holding = computes.Holding(connection)
        self._jobs: dict[int, Job] = {}
        self._has_limits: dict[str, bool] = {}
        self._attempts: list[Attempt] = []
        self._unwritten: list[tuple[Job, Attempt]] = []

    def add(self, job_id: int, following: Sequence[int] = ()) -> str:
        """Claim nodes for a job. Return why it gets none: `quota`, `gone` or `waits`; else "".

        Args:
            following: jobs that may be asked for next: all of them are read at once.
        """
        job = self._job(job_id, following)
        if job is None or job.status is not Status.QUEUED:
            return "gone"
        # The files of an earlier attempt are uploaded when it is cleaned up.
        if job.attempt and not all(
            before.clean or before.id in self._never_clean
            for before in attempt_store.attempts_of(self._connection, job.id)
        ):
            return "waits"
        if self._exceeds_quota(job):
            return "quota"
        if gpus.waiting_reason(self._services, self._connection, job):
            return "waits"
        if not self._fits_machine(job):
            return "waits"
        return self._hold(job)

    def write(self) -> list[Attempt]:
        """Write what jobs and events say of the claims so far; return all of their attempts."""
        if self._unwritten:
            progress.start_attempts(self._connection, self._unwritten, self._now)
            self._unwritten = []
        return self._attempts

    def _hold(self, job: Job) -> str:
        attempt = Attempt(
            id=uuid.uuid4().hex,
            job_id=job.id,
            workspace=job.workspace,
            job_name=job.name,
            number=job.attempt + 1,
            node_count=job.node_count,
            created_at=self._now,
            server=self._services.membership.id or None,
        )
        reason = self._holding.try_hold(
            job.workspace,
            job.compute,
            job.node_count,
            attempt.id,
            self._now,
            job.avoided_slots or (),
        )
        if reason:
            return "waits"
        attempt_store.add_attempt(self._connection, attempt)
        self._attempts.append(attempt)
        self._unwritten.append((job, attempt))
        return ""

    def _job(self, job_id: int, following: Sequence[int]) -> Job | None:
        if job_id not in self._jobs:
            self._jobs |= store.jobs_by_id(self._connection, [job_id, *following])
        return self._jobs.get(job_id)

    def _exceeds_quota(self, job: Job) -> bool:
        if job.workspace not in self._has_limits:
            limits = quotas.limits(self._connection, job.workspace)
            self._has_limits[job.workspace] = bool(limits)
        if not self._has_limits[job.workspace]:
            return False
        self.write()
        return bool(quota_checks.waiting_reason(self._connection, job))

    def _fits_machine(self, job: Job) -> bool:
        """Check again inside the transaction: another server may have claimed nodes since."""
        if not self._bounds:
            return True
        self.write()
        every = shares.read(self._connection, self._bounds)
        free: dict[str, int] = self._bounds
        for holder in queue_store.held(self._connection):
            free = queue.less(free, every.needs(holder))
        return queue.fits(free, every.needs(job))
