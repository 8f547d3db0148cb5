"""Decide which jobs get nodes.

Owns: a round through the queue, failures of single jobs.
Leaves: the order of the queue to admission/queue.py and queue_walk.py, holding nodes to claims.py,
making room to preemption.py and shrinking.py, more nodes for running jobs to growing.py, starting
to attempts/launching.py.
Always: nodes are held all or none, in one transaction; a round costs what it starts, not what
waits; a job that can't be claimed keeps no other from its nodes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

from torchyard.base.errors import TorchyardError
from torchyard.compute import actions as computes
from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.jobs.actions import job_key, job_key_of
from torchyard.jobs.admission import machine
from torchyard.jobs.admission.queue_store import Queued
from torchyard.jobs.attempts.launching import Launcher
from torchyard.jobs.records import isolation, progress, store
from torchyard.jobs.records.types import Status
from torchyard.jobs.scheduling import claims, growing, preemption, shrinking
from torchyard.jobs.scheduling.claims import Claim, MostNodes, no_more_nodes
from torchyard.jobs.scheduling.queue_walk import Walk
from torchyard.jobs.services import Services
from torchyard.jobs.spec import elastic

_log = logging.getLogger(__name__)
# Running jobs need attention, too: what is left waits for the next round.
_ROUND = timedelta(seconds=1)


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
        walk = self._walk(self._services.clock.now() + _ROUND)
        preemption.preempt_for_heads(self._services, walk)
        shrinking.shrink(self._services, walk)
        growing.grow(self._services, walk)

    def _walk(self, until: datetime) -> Walk:
        """Start jobs until the queue's end or the time."""
        walk = Walk(self._services.db, self._services.clock.now(), machine.bounds(self._services))
        while not self._stopping.is_set():
            job = walk.next()
            if job is None:
                break
            self._start(walk, job)
            if self._services.clock.now() > until:
                self._services.wakeup.set()
                break
        return walk

    def _start(self, walk: Walk, job: Queued) -> None:
        """Start a job; if that fails with an error of the job, only this job fails."""
        claim = Claim(reason="gone")
        try:
            self._refresh_machines(job)
            claim = self.claim_one(job.id, partial(walk.most_nodes, job))
        except TorchyardError as error:
            if not isolation.is_job_error(error):
                raise
            self._fail(job.id, error)
        except Exception as error:
            if not isolation.is_job_error(error):
                raise
            _log.exception("job %s could not be claimed; the next round tries again", job.name)
        walk.passed(job, claim.reason, claim.size)
        if claim.attempt is not None:
            try:
                self._launcher.launch(claim.attempt)
            finally:
                # After the launch, which the job's followers would slow down.
                self._services.signals.notify(job_key_of(job.id))

    def _refresh_machines(self, queued: Queued) -> None:
        """Have the engine say which machines are free, for a job that takes all that it may have:
        what it said when the job was submitted is old by now.
        """
        with self._services.db.read() as connection:
            job = store.job_if_any(connection, queued.id)
            compute = computes.find(connection, queued.workspace, queued.compute)
        if job is None or compute is None or compute.is_local or not elastic.read(job.properties):
            return
        with suppress(EngineUnreachable, EngineRefused):
            self._services.engines.describe(compute.engine, compute.settings)

    def claim_one(self, job_id: int, most_nodes: MostNodes = no_more_nodes) -> Claim:
        with self._services.db.write() as connection:
            return claims.claim(self._services, connection, job_id, self._never_clean, most_nodes)

    def _fail(self, job_id: int, error: TorchyardError) -> None:
        """Fail the job, for example because its cluster has another size by now."""
        with self._services.db.write() as connection:
            job = store.job_if_any(connection, job_id)
            if job is None or job.status is not Status.QUEUED:
                return
            progress.end(connection, job, Status.FAILED, self._services.clock.now(), error=error)
        self._services.signals.notify(job_key(job))
