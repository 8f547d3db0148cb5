"""Keep validations and releases going, and begin those that a schedule is due for.

Owns: which records live, schedules that are due.
Leaves: a round to rounds.py, creating releases to creation.py, the thread to jobs/keeping.py.
Always: a record has one round at a time; what a killed server had begun goes on from the last gate
that was stored, after an interrupted build too; a schedule that was missed for long is due once.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import TYPE_CHECKING

from starlette.datastructures import State

from torchyard.base.errors import DatabaseUnreachable, DiskFull, TorchyardError
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs import keeping as keepers
from torchyard.jobs.keeping import EVERY_S, IDLE_EVERY_S, kept_by
from torchyard.jobs.requests import parents
from torchyard.jobs.services import Services
from torchyard.releases.records import store
from torchyard.releases.records.types import CHANGED, RELEASE, VALIDATION, Schedule
from torchyard.workspaces import rights

if TYPE_CHECKING:
    from torchyard.jobs.records.types import Job

# A build may take minutes.
_THREADS = 2
_log = logging.getLogger(__name__)


def keeping(services: Services, state: State) -> AbstractAsyncContextManager[None]:
    """Keep the validations and releases of a server, within the block."""
    return kept_by(Keeper(services))


class Keeper(keepers.Keeper):
    def __init__(self, services: Services) -> None:
        super().__init__(services, "releases", _THREADS)
        self._running: dict[int, Future[None]] = {}

    def run_all(self) -> None:
        """One round of everything, one after the other; for tests."""
        self.begin_scheduled()
        for job in self._live():
            self._rounds(job)

    def begin_scheduled(self) -> None:
        """Begin the releases that are due."""
        now = self._services.clock.now()
        with self._services.db.read() as connection:
            due = [each for each in store.list_schedules(connection) if each.next_at <= now]
            able = rights.able(connection, [(each.workspace, each.owner) for each in due])
        # The others wait for an owner, and then are due once.
        due = [each for each in due if (each.workspace, each.owner) in able]
        for schedule in due:
            try:
                self._begin(schedule)
            except TorchyardError as error:
                if isinstance(error, DatabaseUnreachable):
                    raise
                _log.warning("release of %s: %s", schedule.environment, error.message)

    def _begin(self, schedule: Schedule) -> None:
        """Create the release and move the schedule on, in one transaction."""
        from torchyard.releases.running import creation

        now = self._services.clock.now()
        every = timedelta(seconds=schedule.every_s)
        missed = (now - schedule.next_at) // every
        next_at = schedule.next_at + (missed + 1) * every
        creation.create_scheduled(self._services, schedule, next_at)

    def _hear(self, key: str) -> None:
        if key in ("", CHANGED):
            self._wakeup.set()

    def _keep(self) -> None:
        self._wakeup.clear()
        self.begin_scheduled()
        live = self._live()
        for job in live:
            if job.id not in self._running:
                self._running[job.id] = self._pool.submit(self._rounds, job)
        self._wakeup.wait(EVERY_S if live else IDLE_EVERY_S)
        for job_id, future in list(self._running.items()):
            if future.done():
                del self._running[job_id]

    def _live(self) -> list[Job]:
        with self._services.db.read() as connection:
            ids = [
                *parents.live_ids(connection, VALIDATION),
                *parents.live_ids(connection, RELEASE),
            ]
            return list(parents.by_id(connection, ids).values())

    def _rounds(self, job: Job) -> None:
        """Rounds of one, until it has ended or waits for its jobs."""
        from torchyard.releases.running import rounds

        try:
            while not self._stopping.is_set():
                if not rounds.run(self._services, job, self._stopping.is_set):
                    return
        except (DatabaseUnreachable, DiskFull, RunnerUnreachable):
            pass  # the scheduler's rounds say so
        except Exception:
            _log.exception("a round of %s failed; the next one comes", job.name)
