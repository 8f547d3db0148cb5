"""Who follows which job, for as long as they ask.

Owns: telling the first question of a client that follows a job from its later ones; who was told
already that a job has ended.
Leaves: what is told to routes.py.
Always: forgetting costs nobody more than one round; nothing is kept on disk.

azure-ai-ml's `stream` and SDK v1's `wait_for_completion(show_output=True)` print logs only while
they are told that the job goes on, and a job here may have ended before they ask for the first
time: then they would show nothing of it. What SDK v1 asks so, scripts ask, too: only those are told
that it goes on who never heard of its end.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

# A client waits a minute between two questions at the most.
_FORGOTTEN_S = 180.0
_MOST = 10_000


class Followers:
    """
    Args:
        now_s: a clock that never goes back.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._asked: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._told: OrderedDict[tuple[str, str, str], None] = OrderedDict()

    def begins(self, workspace: str, job: str, user: str) -> bool:
        """Whether this is the first question of that person about that job, for a while."""
        key, now_s = (workspace, job, user), self._now_s()
        with self._lock:
            last_s = self._asked.pop(key, None)
            self._asked[key] = now_s
            while len(self._asked) > _MOST:
                self._asked.popitem(last=False)
        return last_s is None or now_s - last_s > _FORGOTTEN_S

    def ends(self, workspace: str, job: str, user: str) -> None:
        """They were told that the job has ended: they begin anew when they ask again."""
        with self._lock:
            self._asked.pop((workspace, job, user), None)

    def knew_end(self, workspace: str, job: str, user: str) -> bool:
        """Whether that person was told before that the job has ended; now they are."""
        key = (workspace, job, user)
        with self._lock:
            known = key in self._told
            self._told[key] = None
            self._told.move_to_end(key)
            while len(self._told) > _MOST:
                self._told.popitem(last=False)
        return known
