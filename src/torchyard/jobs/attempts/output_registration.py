"""End attempts whose outputs become assets, outside the scheduler's rounds.

Owns: the threads that do it, one per attempt.
Leaves: what is registered to files/output_assets.py, the end to endings.py.
Always: neither a round nor a request waits for a large model to be copied; what a killed server
had begun is started again in the next round.
"""

from __future__ import annotations

import logging
import threading
import time

from torchyard.base.errors import DatabaseUnreachable
from torchyard.jobs.attempts import endings
from torchyard.jobs.services import Services

_log = logging.getLogger(__name__)
_AT_ONCE = 4
_LEAVE_S = 5.0
# Between two tries of one that fails: rounds come as fast as the server can make them.
_PAUSE_S = 5.0


class Finisher:
    """The registrations that one server has under way."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._under_way: dict[str, threading.Thread] = {}

    def finish(self, attempt_id: str) -> None:
        """Start ending an attempt, unless it is under way or too many others are."""
        with self._lock:
            if attempt_id in self._under_way or len(self._under_way) >= _AT_ONCE:
                return
            # A daemon thread: a copy that takes minutes must not keep the server from exiting.
            thread = threading.Thread(
                target=self._finish, args=(attempt_id,), name="finisher", daemon=True
            )
            thread.start()
            self._under_way[attempt_id] = thread

    def close(self) -> None:
        """Wait a moment for what is under way."""
        self._closing.set()
        until = time.monotonic() + _LEAVE_S
        with self._lock:
            threads = list(self._under_way.values())
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _finish(self, attempt_id: str) -> None:
        try:
            endings.finish(self._services, attempt_id, registers=True)
        except DatabaseUnreachable:
            self._closing.wait(_PAUSE_S)
        except Exception:
            _log.exception("attempt %s could not be ended; it will be retried", attempt_id)
            self._closing.wait(_PAUSE_S)
        finally:
            with self._lock:
                del self._under_way[attempt_id]
            self._services.wakeup.set()
