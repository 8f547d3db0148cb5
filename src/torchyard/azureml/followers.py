"""Who follows which job, for as long as they ask.

Owns: telling the first question of a client that follows a job from its later ones.
Leaves: what is told to history_routes.py.
Always: forgetting costs nobody more than one round; nothing is kept on disk.

azure-ai-ml's `stream` prints logs only while it is told that the job goes on, and a job here may
have ended before it asks for the first time: then it would show nothing of it.
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
