"""Measure how long a running job has been idle, over all of its nodes.

Owns: comparing an attempt's stored output and metrics with what was stored before.
Leaves: acting on idle jobs to the workers.
Always: decided from what is stored, so that each server of several sees all nodes; a server that
restarts counts from zero.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from torchyard.jobs.history import history_store
from torchyard.jobs.records.types import Attempt
from torchyard.jobs.services import FileServices

_OWN_LOGS = "user_logs/stacks_rank_"
_KEPT = 1000


class IdleTime:
    """The idle time of attempts whose workers ask for it."""

    def __init__(self, services: FileServices, now: Callable[[], float] = time.monotonic) -> None:
        self._services = services
        self._now = now
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        self._lock = threading.Lock()

    def seconds(self, attempt: Attempt) -> float:
        """Seconds since a rank of any node last printed or logged something."""
        stored = self._stored(attempt)
        now = self._now()
        with self._lock:
            before = self._seen.get(attempt.id)
            if before is None or before[0] != stored:
                # Recently used entries stay; those of ended attempts are never used again.
                self._seen.pop(attempt.id, None)
                self._seen[attempt.id] = (stored, now)
                while len(self._seen) > _KEPT:
                    self._seen.pop(next(iter(self._seen)))
                return 0.0
            return now - before[1]

    def _stored(self, attempt: Attempt) -> tuple[int, int]:
        logs, here = self._services.logs, (attempt.workspace, attempt.job_name)
        # A full log no longer grows: its modification time shows that ranks still print.
        printed = sum(
            log.size_bytes + logs.file(*here, log.attempt, log.path).stat().st_mtime_ns
            for log in logs.list(*here)
            if log.attempt == attempt.number and not log.path.startswith(_OWN_LOGS)
        )
        with self._services.db.read() as connection:
            logged = history_store.received(connection, attempt.id, attempt.job_id)
        return printed, logged
