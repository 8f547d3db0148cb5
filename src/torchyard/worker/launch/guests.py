"""Processes beside the ranks of a node: the shells and services of people.

Owns: which wait to be started or signaled, and which run.
Leaves: starting and reaping them to ranks.py, in the main thread; what they are for to
worker/interactive/.
Always: a guest ends with the node's ranks; signals go to the processes of its session, never to a
pid that has been reaped.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchyard.shared.processes import send
from torchyard.worker.system import processes

NOT_STARTED = "its ranks have not started yet, or have ended"


@dataclass
class Guest:
    """One process, in the surroundings of a rank.

    Args:
        words: the command; an empty first word is the shell of these surroundings.
        local_rank: whose environment, folder and namespaces it gets.
        variables: added to those of the rank; None removes one.
        actions: what posix_spawn does with the files.
        isolated: the rank's namespaces are not entered, where the program is not inside of them.
    """

    words: Sequence[str]
    local_rank: int = 0
    variables: Mapping[str, str | None] = field(default_factory=dict)
    actions: Sequence[tuple[Any, ...]] = ()
    isolated: bool = False
    pid: int = 0
    error: str = ""
    exit_code: int | None = None
    _started: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def has_ended(self) -> bool:
        return self._ended.is_set()

    def wait_for_start(self) -> bool:
        """Whether it runs, or ran; `error` says why not."""
        self._started.wait()
        return bool(self.pid)

    def wait_for_end(self, timeout_s: float | None = None) -> bool:
        return self._ended.wait(timeout_s)

    def started(self, pid: int) -> None:
        self.pid = pid
        self._started.set()

    def refused(self, error: str) -> None:
        self.error = error
        self._started.set()
        self._ended.set()

    def ended(self, status: int) -> None:
        """
        Args:
            status: as wait4 returns it.
        """
        code = os.waitstatus_to_exitcode(status)
        self.exit_code = code if code >= 0 else 128 - code
        self._ended.set()


class Guests:
    """`start` and `send` are for any thread, the rest for the main thread.

    `wake` is called when there is something for the main thread to do.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self._waiting: deque[Guest] = deque()
        self._signals: deque[tuple[Guest, int]] = deque()
        self._running: dict[int, Guest] = {}
        self._is_open = False
        self._lock = threading.Lock()

    def start(self, guest: Guest) -> None:
        """Have it started; `guest.wait_for_start` says whether it was."""
        with self._lock:
            if self._is_open:
                self._waiting.append(guest)
                self.wake()
                return
        guest.refused(NOT_STARTED)

    def send(self, guest: Guest, signum: int) -> None:
        """Have a signal sent to all processes of its session, also when it has ended itself."""
        self._signals.append((guest, signum))
        self.wake()

    def open(self) -> None:
        """There are ranks whose surroundings guests can have."""
        with self._lock:
            self._is_open = True

    def close(self) -> None:
        """The node ends."""
        with self._lock:
            self._is_open = False
            waiting, self._waiting = list(self._waiting), deque()
        for guest in waiting:
            guest.refused(NOT_STARTED)

    def serve(self, spawn: Callable[[Guest], int]) -> None:
        """Start and signal those that wait."""
        while self._waiting:
            guest = self._waiting.popleft()
            try:
                pid = spawn(guest)
            except (OSError, ValueError) as error:
                guest.refused(f"{guest.words[0] or 'the shell'} could not be started: {error}")
                continue
            self._running[pid] = guest
            guest.started(pid)
        while self._signals:
            guest, signum = self._signals.popleft()
            _signal_session(guest.pid, signum)

    def reaped(self, pid: int, status: int) -> bool:
        """Whether that was a guest."""
        guest = self._running.pop(pid, None)
        if guest is None:
            return False
        guest.ended(status)
        return True

    @property
    def pids(self) -> list[int]:
        return list(self._running)


def _signal_session(leader: int, signum: int) -> None:
    """Only descendants of this process: nobody else's session can have that number among them."""
    for process in processes.below(os.getpid()):
        try:
            if leader and os.getsid(process.pid) == leader:
                send(process.pid, process.start_time, signum)
        except OSError:
            continue  # it ends just now
