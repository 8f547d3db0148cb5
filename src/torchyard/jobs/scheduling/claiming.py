"""Decide which jobs get nodes.

Owns: a round through the queue, how many jobs are claimed together, failures of single ones.
Leaves: the order of the queue to admission/queue.py and queue_walk.py, holding nodes to claims.py,
making room to preemption.py and shrinking.py, more nodes for running jobs to growing.py, starting
to attempts/launching.py.
Always: nodes are held all or none, in one transaction; a round costs what it starts, not what
waits; a job that can't be claimed keeps no other from its nodes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from torchyard.base.errors import TorchyardError
from torchyard.jobs.actions import job_key, job_key_of
from torchyard.jobs.admission import machine
from torchyard.jobs.admission.queue_store import Queued
from torchyard.jobs.attempts.launching import Launcher
from torchyard.jobs.records import isolation, progress, store
from torchyard.jobs.records.types import Attempt, Status
from torchyard.jobs.scheduling import growing, preemption, shrinking
from torchyard.jobs.scheduling.claims import Claims, MostNodes, no_more_nodes
from torchyard.jobs.scheduling.queue_walk import Walk
from torchyard.jobs.services import Services

_log = logging.getLogger(__name__)
# Running jobs need attention, too: what is left waits for the next round.
_ROUND = timedelta(seconds=1)
# Jobs claimed in one transaction: other writers wait for it.
_LARGEST_BATCH = 32
# How long the executor may take to launch them.
_BATCH = timedelta(seconds=0.25)


@dataclass(frozen=True)
class Claim:
    """The result for a job: an attempt, or why it has none: `quota`, `gone` or `waits`; of an
    elastic job its `size`, in nodes and GPUs of each.
    """

    attempt: Attempt | None = None
    why_not: str = ""
    size: tuple[int, int] | None = None


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
        # How many jobs are claimed in one transaction now: fewer where launching takes long.
        self._batch = 1

    def claim(self) -> None:
        """One round: start the jobs that may start, then preempt for those that come next."""
        until = self._services.clock.now() + _ROUND
        together = not self._services.devices.whole_devices
        try:
            walk = self._walk(until, together)
        except Exception as error:
            if not together or not isolation.is_job_error(error):
                raise
            # It took the others of its transaction with it.
            _log.warning(
                "jobs could not be claimed together, so they are claimed singly: %r", error
            )
            walk = self._walk(until, together=False)
        preemption.preempt_for_heads(self._services, walk)
        shrinking.shrink(self._services, walk)
        growing.grow(self._services, walk)

    def _walk(self, until: datetime, together: bool) -> Walk:
        """Start jobs until the queue's end or the time.

        Args:
            together: claim several in one transaction. Not where jobs take devices: which ones are
                free is known once those of the job before are locked.
        """
        walk = Walk(self._services.db, self._services.clock.now(), machine.bounds(self._services))
        while not self._stopping.is_set():
            job = walk.next()
            if job is None:
                break
            if together:
                self._start_some(walk, job, self._batch)
            else:
                self._start_one(walk, job)
            if self._services.clock.now() > until:
                self._services.wakeup.set()
                break
        return walk

    def _start_some(self, walk: Walk, first: Queued, most: int) -> None:
        """Start the jobs from `first` on that may start."""
        failed: list[tuple[int, TorchyardError]] = []
        job: Queued | None = first
        with self._services.db.write() as connection:
            claims = Claims(self._services, connection, self._never_clean)
            for number in range(most):
                if job is None:
                    break
                try:
                    most_nodes = partial(walk.most_nodes, job)
                    why_not = claims.add(job.id, walk.following(job, most - number), most_nodes)
                except TorchyardError as error:
                    if not isolation.is_job_error(error):
                        raise
                    failed.append((job.id, error))
                    why_not = "gone"
                walk.passed(job, why_not, claims.sizes.get(job.id))
                job = walk.next() if number + 1 < most else None
            attempts = claims.write()
        for job_id, reason in failed:
            self._fail(job_id, reason)
        self._launch(attempts)

    def _start_one(self, walk: Walk, job: Queued) -> None:
        """Start a job; if that fails with an error of the job, only this job fails."""
        claim = Claim(why_not="gone")
        try:
            claim = self.claim_one(job.id, partial(walk.most_nodes, job))
        except TorchyardError as error:
            if not isolation.is_job_error(error):
                raise
            self._fail(job.id, error)
        except Exception as error:
            if not isolation.is_job_error(error):
                raise
            _log.exception("job %s could not be claimed; the next round tries again", job.name)
        walk.passed(job, claim.why_not, claim.size)
        if claim.attempt is not None:
            self._launch([claim.attempt])

    def claim_one(self, job_id: int, most_nodes: MostNodes = no_more_nodes) -> Claim:
        with self._services.db.write() as connection:
            claims = Claims(self._services, connection, self._never_clean)
            why_not = claims.add(job_id, most_nodes=most_nodes)
            attempts = claims.write()
        return Claim(attempts[0] if attempts else None, why_not, claims.sizes.get(job_id))

    def _launch(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self._services.signals.notify(job_key_of(attempt.job_id))
        took = self._launcher.launch_all(attempts)
        self._batch = _next_batch(self._batch, took)

    def _fail(self, job_id: int, error: TorchyardError) -> None:
        """Fail the job, for example because its cluster has another size by now."""
        with self._services.db.write() as connection:
            job = store.job_if_any(connection, job_id)
            if job is None or job.status is not Status.QUEUED:
                return
            progress.end(connection, job, Status.FAILED, self._services.clock.now(), error=error)
        self._services.signals.notify(job_key(job))


def _next_batch(size: int, took: timedelta) -> int:
    if took > _BATCH:
        return max(1, size // 4)
    return min(_LARGEST_BATCH, size * 2)
