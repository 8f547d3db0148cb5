"""Keep pipelines going.

Leaves: a round to rounds.py, when one is due to jobs/keeping.py.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from starlette.datastructures import State

from torchyard.jobs.keeping import Rounds, kept_by
from torchyard.jobs.services import Services
from torchyard.pipelines.records import step_store
from torchyard.pipelines.running import news

_THREADS = 4


def keeping(services: Services, state: State) -> AbstractAsyncContextManager[None]:
    """Keep the pipelines of a server, within the block."""
    return kept_by(Keeper(services))


class Keeper(Rounds):
    def __init__(self, services: Services) -> None:
        super().__init__(services, "pipelines", _THREADS, step_store.TYPE, news.PIPELINES)

    def round(self, job_id: int) -> bool:
        from torchyard.pipelines.running import rounds

        done = rounds.run(self._services, job_id)
        self.watch(job_id, done.live)
        if done.is_more:
            self.again(job_id)
        return not done.is_over
