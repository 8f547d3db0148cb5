"""A lock that threads get in the order in which they came.

Owns: whose turn it is.
Leaves: what is done meanwhile to those who hold it.
Always: a thread that lets go and comes back at once waits behind all that came before; the thread
that holds it may take it again.
"""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class Turns:
    """Like `threading.RLock`, which prefers the thread that runs: a busy one would keep it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, threading.Lock]] = deque()
        self._holder = 0
        self._depth = 0

    def __enter__(self) -> None:
        thread = threading.get_ident()
        if self._holder == thread:
            self._depth += 1
            return
        with self._lock:
            if not self._depth:
                self._holder, self._depth = thread, 1
                return
            gate = threading.Lock()
            gate.acquire()
            self._waiting.append((thread, gate))
        gate.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth:
                return
            self._holder = 0
            if self._waiting:
                self._holder, gate = self._waiting.popleft()
                self._depth = 1
                gate.release()
