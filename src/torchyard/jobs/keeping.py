"""What keeps jobs of other types than `command` going: a thread of one of a home's servers.

Owns: start and stop, the lock by which one server of several keeps, what a fault does, which jobs
have news.
Leaves: what a round is to the packages above, rounds of command jobs to scheduler.py.
Always: after a fault the next round comes.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager

from starlette.concurrency import run_in_threadpool

from torchyard.base.errors import DatabaseUnreachable
from torchyard.jobs.actions import job_key_of
from torchyard.jobs.requests import parents
from torchyard.jobs.services import Services
from torchyard.shared import locks

EVERY_S, IDLE_EVERY_S = 1.0, 5.0
_log = logging.getLogger(__name__)


class Keeper(ABC):
    """Runs beside the scheduler, from `start` to `stop`.

    Args:
        name: of its thread and its lock.
        threads: in which `self._pool` runs rounds.
    """

    def __init__(self, services: Services, name: str, threads: int) -> None:
        self._services = services
        self._name = name
        self._stopping = threading.Event()
        self._wakeup = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def start(self) -> None:
        self._services.signals.listen(self._hear)
        self._thread.start()

    def stop(self) -> None:
        """Stop; what it started goes on, and the next server goes on with it."""
        self._stopping.set()
        self._wakeup.set()
        self._services.signals.ignore(self._hear)
        if self._thread.is_alive():
            self._thread.join(10)
        self._pool.shutdown(wait=True, cancel_futures=True)

    @abstractmethod
    def _keep(self) -> None:
        """Start the rounds that are due, and wait for more."""

    @abstractmethod
    def _hear(self, key: str) -> None:
        """Wake up if a signal is of what is kept."""

    def _not_kept_here(self) -> None:  # noqa: B027
        """Another server keeps."""

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                with locks.held_if_free(self._services.lock(self._name)) as is_held:
                    if not is_held:
                        self._not_kept_here()
                    while is_held and not self._stopping.is_set():
                        self._keep()
            except DatabaseUnreachable:
                pass  # the scheduler's rounds say so
            except Exception:
                _log.exception("%s could not be kept; will retry", self._name)
            self._stopping.wait(EVERY_S)


class Rounds(Keeper):
    """Keeps jobs of one type: a round of each that has news, and of all of them once a second.

    A job has one round at a time; one whose round fails has another one.

    Args:
        type: that of the jobs.
        news: the signal for a new one, or a change that its children don't tell.
    """

    def __init__(self, services: Services, name: str, threads: int, type: str, news: str) -> None:
        super().__init__(services, name, threads)
        self._type = type
        self._news_of_type = news
        self._running: dict[int, Future[None]] = {}
        self._lock = threading.Lock()
        # By key of a child, its parent; and the parents that have news.
        self._watched: dict[str, int] = {}
        self._news: set[int] = set()
        self._all_at = 0.0

    @abstractmethod
    def round(self, job_id: int) -> bool:
        """One round of one job; False when it has ended."""

    def run_all(self) -> None:
        """One round of every live job, one after the other; for tests."""
        for job_id in self._live():
            self._one(job_id)

    def watch(self, job_id: int, children: Iterable[int]) -> None:
        """Wake up at news of these jobs, and have a round of the job then."""
        for child in children:
            self._watched[job_key_of(child)] = job_id

    def again(self, job_id: int) -> None:
        """Have another round at once."""
        with self._lock:
            self._news.add(job_id)

    def _hear(self, key: str) -> None:
        job_id = self._watched.get(key)
        if job_id is not None:
            self.again(job_id)
        elif key not in ("", self._news_of_type):
            return
        else:
            self._all_at = 0.0
        self._wakeup.set()

    def _keep(self) -> None:
        self._wakeup.clear()
        now = time.monotonic()
        if now >= self._all_at:
            live = self._live()
            self._all_at = now + (EVERY_S if live else IDLE_EVERY_S)
            with self._lock:
                self._news.update(live)
        with self._lock:
            due = {each for each in self._news if each not in self._running}
            self._news -= due
        for job_id in due:
            self._running[job_id] = self._pool.submit(self._one, job_id)
            self._running[job_id].add_done_callback(lambda _: self._wakeup.set())
        self._wakeup.wait(max(0.0, min(EVERY_S, self._all_at - time.monotonic())))
        for job_id, future in list(self._running.items()):
            if future.done():
                del self._running[job_id]

    def _live(self) -> list[int]:
        with self._services.db.read() as connection:
            return parents.live_ids(connection, self._type)

    def _one(self, job_id: int) -> None:
        try:
            if self.round(job_id):
                return
        except DatabaseUnreachable:
            pass  # the scheduler's rounds say so
        except Exception:
            _log.exception("a round of %s %s failed; the next one comes", self._type, job_id)
        self._forget(job_id)

    def _forget(self, job_id: int) -> None:
        """The job has ended, or what is known of it may be wrong."""
        with self._lock:
            self._watched = {key: of for key, of in self._watched.items() if of != job_id}


@asynccontextmanager
async def kept_by(keeper: Keeper) -> AsyncIterator[None]:
    """The keeper runs within the block."""
    keeper.start()
    try:
        yield
    finally:
        await run_in_threadpool(keeper.stop)
