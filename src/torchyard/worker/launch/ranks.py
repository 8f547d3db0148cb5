"""The ranks of one node: started together, watched, ended together.

Owns: spawning, exit codes, taking the whole gang down at the first failure or stop order.
Leaves: finding and signalling processes to system/processes.py, why one failed to
diagnosis/diagnosis.py.
Always: each rank is a session of its own; when `supervise` returns, nothing a rank ever started
is left on this node.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torchyard.shared.failures import Failure
from torchyard.shared.processes import Process
from torchyard.worker.server.control import PEER_LOST, TIMEOUT, Orders
from torchyard.worker.system import cgroups, processes
from torchyard.worker.system import mounts as mounts_of
from torchyard.worker.system.mounts import Mount

if TYPE_CHECKING:
    from torchyard.worker.launch.image_root import Root

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_LOOK_EVERY_S = 5.0
# Long enough for a Python with torch to end, short beside the 5 seconds that a gang has.
_SETTLE_S = 1.0
# Python ignores SIGPIPE, and a server started in the background ignores SIGINT: ranks shall not.
_RESET = (
    signal.SIGPIPE,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)


@dataclass(frozen=True)
class Rank:
    """`log` is the file that takes what the rank prints, `log_name` its name at the server."""

    rank: int
    local_rank: int
    log: Path
    log_name: str


@dataclass(frozen=True)
class RankExit:
    """`signal` is 0 for a rank that ended by itself.

    `at` counts seconds since 1970; `memory_bytes` is the most that its largest process had;
    `ordered` says that it had been told to end.
    """

    rank: Rank
    exit_code: int
    signal: int
    pid: int = 0
    at: float = 0.0
    memory_bytes: int = 0
    ordered: bool = False


class Watch(Protocol):
    """Looks at ranks that run, given by pid."""

    def look(self, running: Mapping[int, Rank]) -> float:
        """Called now and then; returns in how many seconds to come again.

        Raises:
            Failure: they must end, for this reason.
        """
        ...

    def ending(self, running: Mapping[int, Rank]) -> None:
        """Called just before those that still run are told to end."""
        ...


class Gang:
    """The ranks of this node. Used by the main thread alone, the only one that has children."""

    def __init__(
        self,
        mark: str,
        grace_s: float,
        on_exit: Callable[[RankExit], None],
        on_stop: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._mark = mark
        self._grace_s = grace_s
        self._on_exit = on_exit
        self._on_stop = on_stop
        self._running: dict[int, Rank] = {}
        self._first_failure: RankExit | None = None
        self._ending = False
        self._launcher = 0
        self.launcher_status: int | None = None
        self._stop_told = False
        self.exits: list[RankExit] = []
        self.ending_at = 0.0

    def start(
        self,
        command: str,
        environments: Mapping[Rank, Mapping[str, str]],
        mounts: Sequence[Mount] = (),
        root: Root | None = None,
    ) -> dict[int, Rank]:
        """Start ranks in the current folder, each within the mounts; returns all by pid.

        Args:
            root: the image that they run in, which has the mounts in it.

        Raises:
            Failure: the system would not start one; those already started are ended.
        """
        try:
            with cgroups.inside(self._mark):
                for rank, environment in environments.items():
                    self._running[_spawn(command, rank, environment, mounts, root)] = rank
        except OSError as error:
            self.end()
            raise Failure(
                "launch_failed",
                f"rank {rank.rank} could not be started: {error.strerror or error}",
                "very long environment variables or inputs can be why",
            ) from error
        return dict(self._running)

    def start_launcher(
        self, words: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Start the program that ranks need beside them for as long as they run.

        Raises:
            OSError: the system would not start it.
        """
        with cgroups.inside(self._mark):
            self._launcher = _spawn_in_root(words, environment, log)

    def look(self) -> bool:
        """Take note of what ended; False once a rank failed or the launcher is gone."""
        self._reap()
        return self._first_failure is None and self.launcher_status is None

    @property
    def launcher_failed(self) -> bool:
        """Whether it ended badly, or before the ranks that need it."""
        return self.launcher_status is not None and bool(self.launcher_status or self._running)

    def supervise(
        self,
        orders: Orders,
        timeout_s: float,
        is_consequence: Callable[[RankExit], bool] = lambda _: False,
        watch: Watch | None = None,
    ) -> RankExit | None:
        """Return when all is over: the failure that ended the gang, None when there was none.

        Args:
            is_consequence: says of a failed rank whether another one's end may be behind it.

        Raises:
            Failure: what `watch` says; the gang is ended all the same.
        """
        deadline = time.monotonic() + timeout_s if timeout_s > 0 else float("inf")
        try:
            while self._awaits() and not self._first_failure and not orders.stopped:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    orders.stop(TIMEOUT)
                    break
                look_s = watch.look(self._running) if watch is not None else _LOOK_EVERY_S
                orders.wait(min(look_s, left_s))
                self._reap()
            if (
                orders.reason == PEER_LOST
                or (self._first_failure is not None and is_consequence(self._first_failure))
                or (self._first_failure is None and self.launcher_failed)
            ):
                self._settle(orders, is_consequence)
            # First, so that the other nodes need not wait for the stacks of this one.
            self._tell_stop(orders)
            if watch is not None:
                watch.ending(self._running)
        finally:
            self._tell_stop(orders)
            self.end()
        return self._first_failure

    def _tell_stop(self, orders: Orders) -> None:
        if orders.stopped and not self._stop_told:
            self._stop_told = True
            self._on_stop(orders.reason)

    def _settle(self, orders: Orders, is_consequence: Callable[[RankExit], bool]) -> None:
        """Let the rank that is to blame end by itself: it may be slower to go than its victims."""
        until = time.monotonic() + _SETTLE_S
        known = len(self.exits)
        while self._running and orders.reason in ("", PEER_LOST):
            left_s = until - time.monotonic()
            if left_s <= 0:
                return
            orders.wait(left_s)
            self._reap()
            new, known = self.exits[known:], len(self.exits)
            if any(exit.exit_code and not is_consequence(exit) for exit in new):
                return

    def end(self) -> None:
        """End every process of this node: the ranks and whatever they started."""
        if not self._ending:
            self._ending, self.ending_at = True, time.time()
        own = os.getpid()
        if self._launcher and self.launcher_status is None:
            # Ranks that save their work in the grace may still need it to talk to each other.
            processes.end(self._without_launcher, self._grace_s, self._reap)
        processes.end(lambda: processes.family(own, self._mark), self._grace_s, self._reap)
        # Here too: a guardian that was killed removes nothing.
        cgroups.remove(self._mark)
        self._reap()

    def _awaits(self) -> bool:
        """Whether anybody runs whose end is the gang's: ranks, then their launcher."""
        if self.launcher_failed:
            return False
        return bool(self._running) or bool(self._launcher and self.launcher_status is None)

    def _without_launcher(self) -> list[Process]:
        spared = {one.pid for one in processes.below(self._launcher)}
        found = processes.family(os.getpid(), self._mark)
        return [one for one in found if one.pid not in spared]

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            if pid == self._launcher:
                self.launcher_status = os.waitstatus_to_exitcode(status)
                continue
            # Whoever else is reaped is a rank's orphan, adopted by this process.
            rank = self._running.pop(pid, None)
            if rank is not None:
                self._note(_rank_exit(rank, status, pid, usage.ru_maxrss * 1024, self._ending))

    def _note(self, exit: RankExit) -> None:
        self.exits.append(exit)
        if exit.exit_code and not self._ending and self._first_failure is None:
            self._first_failure = exit
        self._on_exit(exit)


def plan_ranks(node: int, processes_per_node: int, world_size: int, folder: Path) -> list[Rank]:
    """The ranks of a node with their logs, named as Azure ML names them."""
    ranks = []
    for local_rank in range(processes_per_node):
        rank = node * processes_per_node + local_rank
        name = "std_log.txt"
        if world_size > 1:
            name = f"std_log_process_{rank:0{len(str(world_size - 1))}d}.txt"
        ranks.append(Rank(rank, local_rank, folder / name, f"user_logs/{name}"))
    return ranks


def _spawn(
    command: str,
    rank: Rank,
    environment: Mapping[str, str],
    mounts: Sequence[Mount],
    root: Root | None,
) -> int:
    if root is not None:
        words = root.command([root.shell, "-c", command])
        return _spawn_words(words, root.hidden(environment), rank.log)
    shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh")
    words = mounts_of.command(mounts, [shell, "-c", command])
    return _spawn_words(words, environment, rank.log)


def _spawn_words(words: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    return os.posix_spawn(
        words[0],
        list(words),
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (
                os.POSIX_SPAWN_OPEN,
                1,
                str(log),
                os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                0o644,
            ),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


def _spawn_in_root(words: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """From the root folder: its own current folder may not be there on other nodes."""
    here = os.getcwd()
    os.chdir("/")
    try:
        return _spawn_words(words, environment, log)
    finally:
        os.chdir(here)


def _rank_exit(rank: Rank, status: int, pid: int, memory_bytes: int, ordered: bool) -> RankExit:
    signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    exit_code = 128 + signum if signum else os.WEXITSTATUS(status)
    return RankExit(rank, exit_code, signum, pid, time.time(), memory_bytes, ordered)
