"""How many machines the engines of clusters have, over time.

Owns: asking engines now and again, and recording a number that has changed.
Leaves: torchyard's own nodes to scaling.py, which records them as they change.
Always: a cluster without nodes whose engine has no machines is not asked about; an engine that does
not answer changes nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import TorchyardError
from torchyard.compute import scaling, store
from torchyard.compute.types import Compute
from torchyard.executors.executor import EngineCluster, EngineRefused, EngineUnreachable

_EVERY_S = 5.0
# For an engine that keeps its machines when nothing of torchyard's runs there.
_REST_S = 60.0
_DOWN = "down"


class Describing(Protocol):
    """See executors/engines.py."""

    def describe(
        self, engine: str, settings: Mapping[str, Any], max_age_s: float = 0.0
    ) -> EngineCluster: ...


class MachineCounts:
    """Keeps the numbers of machines, in a thread of its own."""

    def __init__(self, db: Database, clock: Clock, engines: Describing) -> None:
        self._db = db
        self._clock = clock
        self._engines = engines
        self._stopping = threading.Event()
        self._due: dict[tuple[str, str], float] = {}

    def start(self) -> None:
        threading.Thread(target=self._run, name="machine-counts", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()

    def record(self) -> None:
        """Ask about every cluster that may have changed, and record what has."""
        with self._db.read() as connection:
            candidates = [each for each in store.everywhere(connection) if not each.is_local]
            in_use = {
                _key(compute): store.count_in(connection, *_key(compute))[0]
                for compute in candidates
            }
            counts = {
                _key(compute): store.last_machines(connection, *_key(compute))
                for compute in candidates
            }
        for compute in candidates:
            if self._stopping.is_set():
                return
            key = _key(compute)
            if not in_use[key] and (not counts[key] or time.monotonic() < self._due.get(key, 0)):
                continue
            self._due[key] = time.monotonic() + _REST_S
            self._record(compute, counts[key])

    def _record(self, compute: Compute, before: int | None) -> None:
        try:
            view = self._engines.describe(compute.engine, compute.settings, _EVERY_S)
        except (EngineUnreachable, EngineRefused):
            return
        count = sum(node.state != _DOWN for node in view.nodes)
        if count == before:
            return
        with self._db.write() as connection:
            if store.get(connection, *_key(compute)) is not None:
                scaling.note_machines(connection, compute, count, self._clock.now())

    def _run(self) -> None:
        while not self._stopping.wait(_EVERY_S):
            try:
                self.record()
            except TorchyardError:
                pass  # the database is unreachable, which the scheduler says


def _key(compute: Compute) -> tuple[str, str]:
    return compute.workspace, compute.name
