"""Run the scheduler: round after round, start queued jobs and watch running ones.

Owns: the rounds, one after the other, and the last round's failure.
Leaves: environment and inputs to scheduling/preparing.py, claiming nodes to scheduling/claiming.py,
starting to attempts/launching.py, watching workers to attempts/monitoring.py.
Always: environment and inputs are ready before nodes are held; what a killed server had begun is
resumed, by itself or by another server that shares the home.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta

from torchyard.base import disk
from torchyard.base.errors import DatabaseUnreachable
from torchyard.executors.executor import Executor
from torchyard.executors.runner_client import RunnerUnreachable
from torchyard.jobs import owners
from torchyard.jobs.attempts import takeover
from torchyard.jobs.attempts.heartbeats import Heartbeats
from torchyard.jobs.attempts.launching import Launcher
from torchyard.jobs.attempts.monitoring import Watcher
from torchyard.jobs.cleanup import removal, retention
from torchyard.jobs.records import text_index
from torchyard.jobs.scheduling import clusters, spilling
from torchyard.jobs.scheduling.claiming import Claimer
from torchyard.jobs.scheduling.preparing import Preparer
from torchyard.jobs.services import Services
from torchyard.servers.types import LeaseLost

_log = logging.getLogger(__name__)
_INDEX_EVERY_S = 2.0
_RETENTION_EVERY = timedelta(hours=1)
# Many short jobs wake the scheduler far more often than this, and nothing waits for the chores.
_CHORES_EVERY_S = 0.25
# Between two tries of deletions that fail.
_LONGEST_PAUSE_S = 60.0


class Rounds:
    """What the rounds of one scheduler came to; written by its thread, read by any."""

    def __init__(self) -> None:
        self.count = 0
        self.failed = 0
        self.total_s = 0.0
        self._ended_at = time.monotonic()

    def add(self, took_s: float, is_failed: bool) -> None:
        self.count += 1
        self.failed += is_failed
        self.total_s += took_s
        self._ended_at = time.monotonic()

    def age_s(self) -> float:
        """Since the last round ended, or since the server started."""
        return time.monotonic() - self._ended_at


class Scheduler:
    """One thread that runs a round when it is woken, and at least once a second.

    Attributes:
        trouble: what went wrong in the last round, empty if nothing did.
        rounds: how many there were, and when the last one ended.
        executor, preparer, claimer, watcher: what the rounds are made of.
    """

    def __init__(
        self, services: Services, executor: Executor, server_url: str, every_s: float = 1.0
    ):
        self._services = services
        self._every_s = every_s
        self._stopping = threading.Event()
        self.executor = executor
        self.preparer = Preparer(services, self._stopping)
        launcher = Launcher(services, executor, server_url)
        self.watcher = Watcher(services, executor, launcher)
        self.claimer = Claimer(services, launcher, self._stopping, self.watcher.broken_history)
        self._heartbeats = Heartbeats(services, executor, self.watcher.engine_nodes.pending)
        self._forgetter = ThreadPoolExecutor(1, thread_name_prefix="forgetter")
        self._forgetting: Future[None] | None = None
        self._text_index = text_index.TextIndex(services.db)
        self._retention_at: datetime | None = None
        # How often in a row deletion failed, and until when it is not retried.
        self._stuck, self._stuck_until = 0, 0.0
        # When a round has chores again; what went wrong in the last ones.
        self._chores_at, self._chores_trouble = 0.0, ""
        self.trouble = ""
        self.rounds = Rounds()
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._indexer = threading.Thread(target=self._index_texts, name="text-index", daemon=True)

    def start(self) -> None:
        self._thread.start()
        self._indexer.start()

    @property
    def is_alive(self) -> bool:
        """Whether rounds go on; False before the start and after the end."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Stop; running jobs go on, builds are canceled and started again later."""
        self._stopping.set()
        self._services.wakeup.set()
        self._thread.join(10)
        self._forgetter.shutdown(wait=True, cancel_futures=True)
        if self._indexer.is_alive():
            self._indexer.join()
        self.preparer.close()
        self.watcher.close()

    def run_round(self, has_chores: bool = True) -> None:
        """One round; a failure is logged and does not stop the other parts.

        Args:
            has_chores: do what may wait a moment as well: silent workers, deletions and the like.
        """
        trouble = "" if has_chores else self._chores_trouble
        self._chores_trouble = trouble
        chores = (
            self._stop_unable,
            self._spill_over,
            self._heartbeats.check,
            self._services.history.settle_ended,
            self._forget,
        )
        parts = (
            self._take_over,
            self._stop_unable,
            self.preparer.prepare,
            self.claimer.claim,
            self.preparer.tell_queued,
            self._spill_over,
            self.watcher.watch,
            self._heartbeats.check,
            self.watcher.clean,
            self._services.history.settle_ended,
            self._forget,
            self._scale,
        )
        for part in parts if has_chores else (part for part in parts if part not in chores):
            try:
                part()
            except LeaseLost as error:
                _log.warning("%s", error.message)
                break
            except (DatabaseUnreachable, RunnerUnreachable) as error:
                trouble = error.message
                if trouble != self.trouble:
                    cause = str(error.__cause__).partition("\n")[0]
                    _log.warning("%s: %s", trouble, cause)
                break
            except Exception as error:
                full = disk.meaning(error)
                if full is not None:
                    trouble = full.message
                    if trouble != self.trouble:
                        _log.warning("%s: %r", trouble, error)
                else:
                    name = part.__name__
                    _log.exception("the scheduler failed at %s; the next round comes", name)
                    trouble = f"{type(error).__name__}: {error}".partition("\n")[0]
                if part in chores:
                    self._chores_trouble = trouble
        self.trouble = trouble

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._services.wakeup.clear()
            started = time.monotonic()
            has_chores = started >= self._chores_at
            if has_chores:
                self._chores_at = started + _CHORES_EVERY_S
            self.run_round(has_chores)
            now = time.monotonic()
            self.rounds.add(now - started, bool(self.trouble))
            pause_s = self._every_s if has_chores else max(0.0, self._chores_at - now)
            self._services.wakeup.wait(min(self._every_s, pause_s))

    def _take_over(self) -> None:
        takeover.take_over(self._services)

    def _stop_unable(self) -> None:
        """What nobody stopped at once: a role that a sign-in took, a server that was killed."""
        owners.stop_unable(self._services)

    def _spill_over(self) -> None:
        spilling.spill_over(self._services)

    def _scale(self) -> None:
        """Resize clusters after claiming: nodes that are idle then are not needed."""
        clusters.resize_clusters(self._services)

    def _index_texts(self) -> None:
        """Let new names be found by their parts, beside the rounds."""
        while not self._stopping.wait(_INDEX_EVERY_S):
            try:
                while not self._stopping.is_set() and self._text_index.is_due():
                    self._text_index.extend()
            except DatabaseUnreachable:
                pass  # the rounds say so
            except Exception:
                _log.exception("names could not be indexed; will retry")

    def _forget(self) -> None:
        """Continue deletions, and once in a while apply retention, in a thread of its own."""
        if self._forgetting is not None and not self._forgetting.done():
            return
        now = self._services.clock.now()
        over = self._retention_at is None or now >= self._retention_at
        if over:
            self._retention_at = now + _RETENTION_EVERY
            over = retention.is_set(self._services.db)
        waits = time.monotonic() < self._stuck_until
        if over or (not waits and removal.is_due(self._services.db)):
            self._forgetting = self._forgetter.submit(self._forget_now, over)

    def _forget_now(self, retention_due: bool) -> None:
        try:
            if retention_due:
                retention.delete_expired(self._services)
            removed = removal.work(self._services, self._stopping.is_set)
            self._stuck = 0 if removed or not removal.is_due(self._services.db) else self._stuck + 1
            pause_s = (
                min(_LONGEST_PAUSE_S, 0.5 * 2.0 ** (self._stuck - 1)) if self._stuck > 1 else 0
            )
            self._stuck_until = time.monotonic() + pause_s
        except DatabaseUnreachable:
            pass  # the next round starts again
        except Exception:
            _log.exception("jobs could not be deleted; will retry")
