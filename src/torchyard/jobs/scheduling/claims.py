"""Claim nodes for several jobs in one transaction.

Owns: whether a queued job still may start, its attempt, its way to Starting.
Leaves: which job comes next to queue_walk.py, nodes to compute/, quotas to
admission/quota_checks.py.
Always: a job is checked against what the jobs before it in the same transaction hold; a job that
is refused has changed nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.jobs.admission import gpus, machine, queue, queue_store, quota_checks, shares
from torchyard.jobs.records import attempt_store, progress, store
from torchyard.jobs.records.types import Attempt, Job, Status
from torchyard.jobs.scheduling import elastic_sizes
from torchyard.jobs.services import Services
from torchyard.jobs.spec import elastic
from torchyard.jobs.spec.elastic import Elastic
from torchyard.workspaces import quotas

# How many nodes the queue leaves to the job that is claimed.
MostNodes = Callable[[], int]


def no_more_nodes() -> int:
    """An elastic job gets the fewest that it can begin with."""
    return 0


class Claims:
    """The claims of one transaction; `write` is to be called at its end.

    Args:
        never_clean: attempts whose folders are never removed: no later attempt waits for them.

    Attributes:
        sizes: by id, of each elastic job that was claimed, its nodes and the GPUs of each.

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
        self._notices: list[tuple[Job, str]] = []
        self.sizes: dict[int, tuple[int, int]] = {}

    def add(
        self,
        job_id: int,
        following: Sequence[int] = (),
        most_nodes: MostNodes = no_more_nodes,
    ) -> str:
        """Claim nodes for a job. Return why it gets none: `quota`, `gone` or `waits`; else "".

        Args:
            following: jobs that may be asked for next: all of them are read at once.
            most_nodes: how many the queue leaves to this one if it is elastic.
        """
        job = self._job(job_id, following)
        if job is None or job.status is not Status.QUEUED:
            return "gone"
        # The files of an earlier attempt are uploaded when it is cleaned up.
        tries = attempt_store.attempts_of(self._connection, job.id) if job.attempt else []
        if not all(before.clean or before.id in self._never_clean for before in tries):
            return "waits"
        if self._exceeds_quota(job):
            return "quota"
        if gpus.waiting_reason(self._services, self._connection, job):
            return "waits"
        if not self._fits_machine(job):
            return "waits"
        sizes = elastic.read(job.properties)
        if sizes is None:
            return self._hold(job)
        return self._hold_elastic(job, sizes, most_nodes(), tries[-1] if tries else None)

    def write(self) -> list[Attempt]:
        """Write what jobs and events say of the claims so far; return all of their attempts."""
        if self._unwritten:
            progress.start_attempts(self._connection, self._unwritten, self._now)
            for job, message in self._notices:
                progress.notice(self._connection, job, message, self._now)
            self._unwritten, self._notices = [], []
        return self._attempts

    def _hold_elastic(
        self, job: Job, sizes: Elastic, most_nodes: int, before: Attempt | None
    ) -> str:
        """Hold as many nodes as are free and the job may have.

        After a loss, the nodes that were lost are left out while there are enough others.
        """
        place = (job.workspace, job.compute)
        compute = computes.find(self._connection, *place)
        most = job.spec.instance_count if before is None else sizes.max_nodes
        most = min(most, most_nodes, self._holding.free(*place, job.avoided_slots or ()))
        machines = elastic_sizes.machines(self._services, compute, before)
        for limit in (machines, elastic_sizes.left_after_giving(before)):
            most = most if limit is None else min(most, limit)
        self.write()
        sized = elastic_sizes.fitting(self._services, self._connection, compute, job, sizes, most)
        if self._holding.free(*place, job.avoided_slots or ()) < sized.node_count:
            sized = replace(sized, avoided_slots=None)
        if not self._fits_machine(sized):
            sized = elastic_sizes.with_nodes(self._services, compute, sized, sizes.min_nodes)
        reason = self._hold(sized)
        if not reason:
            attempt = self._attempts[-1]
            self.sizes[job.id] = (sized.node_count, sized.gpus)
            self._notices.append((job, elastic_sizes.notice(sizes, attempt, before)))
        return reason

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
            engine=self._holding.engine_of(job.workspace, job.compute),
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
        for holder in queue_store.list_running(self._connection):
            free = queue.less(free, every.needs(holder))
        return queue.fits(free, every.needs(job))
