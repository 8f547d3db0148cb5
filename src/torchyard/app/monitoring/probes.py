"""Whether the server lives, and whether it can serve.

Owns: the checks of `/livez` and `/readyz`, and how long their result is kept.
Leaves: the scheduler's rounds to jobs/scheduler.py, HTTP to routes.py.
Always: a result says which part fails and never why, because anybody may ask; however many ask, the
database is asked once a second at most.

Source: the meaning of both is Kubernetes': a server that is not live has to be restarted, one that
is not ready gets no requests. https://kubernetes.io/docs/reference/using-api/health-checks/
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from torchyard.base import disk
from torchyard.base.errors import TorchyardError
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import FileServices

KEPT_S = 1.0
ROUND_LIMIT_S = 120.0
OK, FAILING = "ok", "failing"


class Probes:
    """Of one server process; for any thread."""

    def __init__(self, services: FileServices, scheduler: Scheduler) -> None:
        self._services = services
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._checks: Mapping[str, str] = {}
        self._checked_at = float("-inf")

    def is_live(self) -> bool:
        """Whether a restart would not help: the scheduler's thread has not died."""
        return self._scheduler.is_alive

    def checks(self) -> Mapping[str, str]:
        """`ok` or `failing` by part: database, disk, scheduler."""
        with self._lock:
            if time.monotonic() - self._checked_at >= KEPT_S:
                self._checks = {
                    "database": _word(self.ping_database() is not None),
                    "disk": _word(not disk.is_full(self._services.home)),
                    "scheduler": _word(self._schedules()),
                }
                self._checked_at = time.monotonic()
            return self._checks

    def ping_database(self) -> float | None:
        """The seconds that the smallest query took; None when the database does not answer."""
        started = time.perf_counter()
        try:
            with self._services.db.read() as connection:
                connection.execute(text("SELECT 1"))
        except (TorchyardError, SQLAlchemyError):
            return None
        return time.perf_counter() - started

    def _schedules(self) -> bool:
        scheduler = self._scheduler
        return scheduler.is_alive and scheduler.rounds.age_s() < ROUND_LIMIT_S


def _word(is_ok: bool) -> str:
    return OK if is_ok else FAILING
