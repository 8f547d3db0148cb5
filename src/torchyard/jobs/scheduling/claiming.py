"""Decide which jobs get nodes.

Owns: holding nodes for an attempt.
Leaves: the order of the queue to admission/queue.py and queue_walk.py, nodes to compute/, quotas to
admission/quota_checks.py, making room to preemption.py, starting to attempts/launching.py.
Always: nodes are held all or none, in one transaction; a round costs what it starts, not what
waits.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import Connection

from torchyard.base.errors import TorchyardError
from torchyard.compute import actions as computes
from torchyard.jobs.actions import job_key
from torchyard.jobs.admission import gpus, machine, queue, queue_store, quota_checks, shares
from torchyard.jobs.admission.queue_store import Queued
from torchyard.jobs.attempts.launching import Launcher
from torchyard.jobs.records import attempt_store, isolation, progress, store
from torchyard.jobs.records.types import Attempt, Job, Status
from torchyard.jobs.scheduling import preemption
from torchyard.jobs.scheduling.queue_walk import Walk
from torchyard.jobs.services import Services

_log = logging.getLogger(__name__)
# Running jobs need attention, too: what is left waits for the next round.
_ROUND = timedelta(seconds=1)


@dataclass(frozen=True)
class Claim:
    """The result for a job: an attempt, or why it has none: `quota`, `gone` or `waits`."""

    attempt: Attempt | None = None
    why_not: str = ""


class Claimer:
    """Claims nodes for queued jobs, round after round.

    Args:
        never_clean: attempts whose folders are never removed: no later attempt waits for them.
    """

    def __init__(
        self,
        services: Services,
        launcher: Launcher,
        stopping: threading.Event,
        never_clean: Collection[str] = (),
    ) -> None:
        self._services = services
        self._launcher = launcher
        self._stopping = stopping
        self._never_clean = never_clean

    def claim(self) -> None:
        """One round: start the jobs that may start, then preempt for those that come next."""
        until = self._services.clock.now() + _ROUND
        walk = Walk(self._services.db, self._services.clock.now(), machine.bounds(self._services))
        while not self._stopping.is_set():
            job = walk.next()
            if job is None:
                break
            claim = self._claimed(job)
            if claim.attempt is not None:
                walk.started(job)
                self._launcher.launch(claim.attempt)
            elif claim.why_not == "quota":
                walk.held_back(job)
            elif claim.why_not == "gone":
                walk.gone(job)
            else:
                walk.waits(job)
            if self._services.clock.now() > until:
                self._services.wakeup.set()
                break
        preemption.preempt_for_heads(self._services, walk)

    def _claimed(self, job: Queued) -> Claim:
        """Claim nodes for a job; if that fails with an error of the job, only this job fails."""
        try:
            return self.claim_one(job.id)
        except TorchyardError as error:
            if not isolation.is_job_error(error):
                raise
            self._fail(job.id, error)
        except Exception as error:
            if not isolation.is_job_error(error):
                raise
            _log.exception("job %s could not be claimed; the next round tries again", job.name)
        return Claim(why_not="gone")

    def _fail(self, job_id: int, error: TorchyardError) -> None:
        """Fail the job, for example because its cluster has another size by now."""
        with self._services.db.write() as connection:
            job = store.job_if_any(connection, job_id)
            if job is None or job.status is not Status.QUEUED:
                return
            progress.end(connection, job, Status.FAILED, self._services.clock.now(), error=error)
        self._services.signals.notify(job_key(job))

    def claim_one(self, job_id: int) -> Claim:
        services = self._services
        with services.db.write() as connection:
            services.membership.check(connection)
            job = store.job_by_id(connection, job_id)
            if job.status is not Status.QUEUED:
                return Claim(why_not="gone")
            # The files of an earlier attempt are uploaded when it is cleaned up.
            if job.attempt and not all(
                before.clean or before.id in self._never_clean
                for before in attempt_store.attempts_of(connection, job.id)
            ):
                return Claim(why_not="waits")
            if quota_checks.waiting_reason(connection, job):
                return Claim(why_not="quota")
            if gpus.waiting_reason(services, connection, job) or not self._fits_machine(
                connection, job
            ):
                return Claim(why_not="waits")
            now = services.clock.now()
            attempt = Attempt(
                id=uuid.uuid4().hex,
                job_id=job.id,
                workspace=job.workspace,
                job_name=job.name,
                number=job.attempt + 1,
                node_count=job.node_count,
                created_at=now,
                server=services.membership.id or None,
            )
            reason = computes.try_hold(
                connection,
                job.workspace,
                job.compute,
                job.node_count,
                attempt.id,
                now,
                job.avoided_slots or (),
            )
            if reason:
                return Claim(why_not="waits")
            attempt_store.add_attempt(connection, attempt)
            progress.start_attempt(connection, job, attempt.number, now)
        services.signals.notify(job_key(job))
        return Claim(attempt)

    def _fits_machine(self, connection: Connection, job: Job) -> bool:
        """Check again inside the transaction: another server may have claimed nodes since."""
        bounds = machine.bounds(self._services)
        if not bounds:
            return True
        every = shares.read(connection, bounds)
        free: dict[str, int] = bounds
        for holder in queue_store.held(connection):
            free = queue.less(free, every.needs(holder))
        return queue.fits(free, every.needs(job))
