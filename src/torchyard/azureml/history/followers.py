"""Which person follows which job, as long as they ask for it.

Owns: telling a client's first request about a job from its later ones; which person has learned
that a job has ended.
Leaves: the responses to run_routes.py.
Always: forgetting costs nobody more than one request; nothing is stored on disk.

azure-ai-ml's `stream` and SDK v1's `wait_for_completion(show_output=True)` print logs only while
the job is running, and a job may have ended before their first request: then they would print
nothing. SDK v1's scripts send the same request as its `wait_for_completion`: only a person who has
not learned of the job's end is told that it is still running.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

# A client waits at most a minute between two requests.
_FORGOTTEN_AFTER_S = 180.0
_MAX_ENTRIES = 10_000


class Followers:
    """
    Args:
        now_s: a monotonic clock.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._last_requests_s: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._know_end: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def starts(self, workspace: str, job: str, user: str) -> bool:
        """Whether this is that person's first request about that job for some time."""
        key, now_s = (workspace, job, user), self._now_s()
        with self._lock:
            last_s = self._last_requests_s.pop(key, None)
            self._last_requests_s[key] = now_s
            while len(self._last_requests_s) > _MAX_ENTRIES:
                self._last_requests_s.popitem(last=False)
        return last_s is None or now_s - last_s > _FORGOTTEN_AFTER_S

    def ends(self, workspace: str, job: str, user: str) -> None:
        """They have learned that the job has ended: their next request is a first one."""
        with self._lock:
            self._last_requests_s.pop((workspace, job, user), None)

    def learn_end(self, workspace: str, job: str, user: str) -> bool:
        """Note that a person learns of the job's end; whether they knew it before."""
        key = (workspace, job, user)
        with self._lock:
            knew_end = key in self._know_end
            self._know_end[key] = None
            self._know_end.move_to_end(key)
            while len(self._know_end) > _MAX_ENTRIES:
                self._know_end.popitem(last=False)
        return knew_end
