"""Keep sweeps going.

Owns: what is in memory of each sweep.
Leaves: a round to rounds.py, when one is due to jobs/keeping.py.
Always: a sweep whose round fails is loaded again and goes on.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from starlette.datastructures import State

from torchyard.jobs.keeping import Rounds, kept_by
from torchyard.jobs.services import Services
from torchyard.sweeps.records import trial_store
from torchyard.sweeps.running import news

if TYPE_CHECKING:
    from torchyard.sweeps.running.state import SweepState
    from torchyard.sweeps.search.search import Search

_THREADS = 4


def keeping(services: Services, state: State) -> AbstractAsyncContextManager[None]:
    """Keep the sweeps of a server, within the block."""
    return kept_by(Keeper(services))


class Keeper(Rounds):
    def __init__(self, services: Services, search: Search | None = None) -> None:
        super().__init__(services, "sweeps", _THREADS, trial_store.TYPE, news.SWEEPS)
        self._search = search
        self._states: dict[int, SweepState] = {}

    def stop(self) -> None:
        """Trials go on; processes of the search end."""
        super().stop()
        if self._search is not None:
            self._search.close()

    def round(self, job_id: int) -> bool:
        from torchyard.sweeps.running import rounds
        from torchyard.sweeps.search.search import Search

        if self._search is None:
            with self._lock:
                self._search = self._search or Search()
        state = self._states.get(job_id) or rounds.load(self._services, job_id)
        if state is None:
            return False
        self._states[job_id] = state
        self._watch(state)
        if rounds.run(self._services, self._search, state):
            self._watch(state)
            return True
        if state.job.status.ended:
            self._search.forget(str(job_id))
        else:  # somebody else changed it: load it at once
            self.again(job_id)
        return False

    def _watch(self, state: SweepState) -> None:
        self.watch(state.job.id, (trial.job_id for trial in state.live))

    def _not_kept_here(self) -> None:
        self._states.clear()

    def _forget(self, job_id: int) -> None:
        self._states.pop(job_id, None)
        super()._forget(job_id)
