"""Keep sweeps going: rounds of those that have news, and of all of them once a second.

Owns: which sweeps have news, what is in memory of each.
Leaves: a round to rounds.py, the thread to jobs/keeping.py.
Always: a sweep has one round at a time; one whose round fails is loaded again and goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from starlette.datastructures import State

from torchyard.base.errors import DatabaseUnreachable
from torchyard.jobs import keeping as keepers
from torchyard.jobs.actions import job_key_of
from torchyard.jobs.keeping import EVERY_S, IDLE_EVERY_S, kept_by
from torchyard.jobs.requests import parents
from torchyard.jobs.services import Services
from torchyard.sweeps.records import trial_store
from torchyard.sweeps.running import news

if TYPE_CHECKING:
    from torchyard.sweeps.running.state import SweepState
    from torchyard.sweeps.search.search import Search

_THREADS = 4
_log = logging.getLogger(__name__)


def keeping(services: Services, state: State) -> AbstractAsyncContextManager[None]:
    """Keep the sweeps of a server, within the block."""
    return kept_by(Keeper(services))


class Keeper(keepers.Keeper):
    def __init__(self, services: Services, search: Search | None = None) -> None:
        super().__init__(services, "sweeps", _THREADS)
        self._search = search
        self._states: dict[int, SweepState] = {}
        self._running: dict[int, Future[bool]] = {}
        self._lock = threading.Lock()
        # By key of a trial's job, its sweep; and those that have news.
        self._watched: dict[str, int] = {}
        self._news: set[int] = set()
        self._all_at = 0.0

    def stop(self) -> None:
        """Trials go on; processes of the search end."""
        super().stop()
        if self._search is not None:
            self._search.close()

    def run_all(self) -> None:
        """One round of every live sweep, one after the other; for tests."""
        for sweep_id in self._live():
            self._round(sweep_id)

    def _hear(self, key: str) -> None:
        sweep_id = self._watched.get(key)
        if sweep_id is not None:
            with self._lock:
                self._news.add(sweep_id)
        elif key not in ("", news.SWEEPS):
            return
        else:
            self._all_at = 0.0
        self._wakeup.set()

    def _not_kept_here(self) -> None:
        self._states.clear()

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
        for sweep_id in due:
            self._running[sweep_id] = self._pool.submit(self._round, sweep_id)
            self._running[sweep_id].add_done_callback(lambda _: self._wakeup.set())
        self._wakeup.wait(max(0.0, min(EVERY_S, self._all_at - time.monotonic())))
        for sweep_id, future in list(self._running.items()):
            if future.done():
                del self._running[sweep_id]

    def _live(self) -> list[int]:
        with self._services.db.read() as connection:
            return parents.live_ids(connection, trial_store.TYPE)

    def _round(self, sweep_id: int) -> bool:
        """Whether the sweep goes on."""
        from torchyard.sweeps.running import rounds
        from torchyard.sweeps.search.search import Search

        if self._search is None:
            with self._lock:
                self._search = self._search or Search()
        state = self._states.get(sweep_id) or rounds.load(self._services, sweep_id)
        if state is None:
            return False
        try:
            self._states[sweep_id] = state
            self._watch(state)
            goes_on = rounds.run(self._services, self._search, state)
        except DatabaseUnreachable:
            self._forget(sweep_id)
            return True
        except Exception:
            _log.exception("a round of sweep %s failed; the next one comes", state.job.name)
            self._forget(sweep_id)
            return True
        if goes_on:
            self._watch(state)
            return True
        self._forget(sweep_id)
        if state.job.status.ended:
            self._search.forget(str(sweep_id))
            return False
        with self._lock:  # somebody else changed it: load it at once
            self._news.add(sweep_id)
        return True

    def _watch(self, state: SweepState) -> None:
        for trial in state.live:
            self._watched[job_key_of(trial.job_id)] = state.job.id

    def _forget(self, sweep_id: int) -> None:
        self._states.pop(sweep_id, None)
        with self._lock:
            self._watched = {key: of for key, of in self._watched.items() if of != sweep_id}
