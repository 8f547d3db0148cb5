"""What keeps jobs of other types than `command` going: a thread of one of a home's servers.

Owns: start and stop, the lock by which one server of several keeps, what a fault does.
Leaves: what a round is to the packages above, rounds of command jobs to scheduler.py.
Always: after a fault the next round comes.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from starlette.concurrency import run_in_threadpool

from torchyard.base.errors import DatabaseUnreachable
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


@asynccontextmanager
async def kept_by(keeper: Keeper) -> AsyncIterator[None]:
    """The keeper runs within the block."""
    keeper.start()
    try:
        yield
    finally:
        await run_in_threadpool(keeper.stop)
