"""Keep validations and releases going, and begin those that a schedule is due for.

Owns: the thread, which records live, schedules that are due.
Leaves: a round to rounds.py, creating releases to creation.py.
Always: of several servers of a home one keeps; a record has one round at a time; what a killed
server had begun goes on from the last gate that was stored; a schedule that was missed for long is
due once.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING

from torchyard.base.errors import DatabaseUnreachable, DiskFull, TorchyardError
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs.requests import parents
from torchyard.jobs.services import Services
from torchyard.releases.records import store
from torchyard.releases.records.types import CHANGED, RELEASE, VALIDATION, Schedule
from torchyard.shared import locks
from torchyard.workspaces import rights

if TYPE_CHECKING:
    from torchyard.jobs.records.types import Job

_EVERY_S, _IDLE_EVERY_S = 1.0, 5.0
# A build may take minutes.
_THREADS = 2
_log = logging.getLogger(__name__)


class Keeper:
    """Runs beside the scheduler, from `start` to `stop`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._stopping = threading.Event()
        self._wakeup = threading.Event()
        self._running: dict[int, Future[None]] = {}
        self._thread = threading.Thread(target=self._run, name="releases", daemon=True)
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="release")

    def start(self) -> None:
        self._services.signals.listen(self._hear)
        self._thread.start()

    def stop(self) -> None:
        """Stop; a build is interrupted, jobs go on, and the next server goes on with both."""
        self._stopping.set()
        self._wakeup.set()
        self._services.signals.ignore(self._hear)
        if self._thread.is_alive():
            self._thread.join(10)
        self._pool.shutdown(wait=True, cancel_futures=True)

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

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with locks.held_if_free(self._services.lock("releases")) as is_held:
                    while is_held and not self._stopping.is_set():
                        self._keep()
            except DatabaseUnreachable:
                pass  # the scheduler's rounds say so
            except Exception:
                _log.exception("releases could not be kept; will retry")
            self._stopping.wait(_EVERY_S)

    def _keep(self) -> None:
        """Start the rounds that are due, and wait for more."""
        self._wakeup.clear()
        self.begin_scheduled()
        live = self._live()
        for job in live:
            if job.id not in self._running:
                self._running[job.id] = self._pool.submit(self._rounds, job)
        self._wakeup.wait(_EVERY_S if live else _IDLE_EVERY_S)
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
