"""The ranks of one node: started together, watched, ended together.

Owns: spawning, exit codes, taking the whole gang down at the first failure or stop order.
Leaves: finding and signalling processes to processes.py.
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

from torchyard.worker import mounts as mounts_of
from torchyard.worker import processes
from torchyard.worker.failures import Failure
from torchyard.worker.mounts import Mount
from torchyard.worker.orders import Orders

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_LOOK_EVERY_S = 5.0
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
    """`signal` is 0 for a rank that ended by itself."""

    rank: Rank
    exit_code: int
    signal: int


class Gang:
    """The ranks of this node. Used by the main thread alone, the only one that has children."""

    def __init__(self, mark: str, grace_s: float, on_exit: Callable[[RankExit], None]) -> None:
        self._mark = mark
        self._grace_s = grace_s
        self._on_exit = on_exit
        self._running: dict[int, Rank] = {}
        self._first_failure: RankExit | None = None
        self._ending = False

    def start(
        self,
        command: str,
        environments: Mapping[Rank, Mapping[str, str]],
        mounts: Sequence[Mount] = (),
    ) -> dict[int, Rank]:
        """Start all ranks in the current folder, each within the mounts; returns them by pid.

        Raises:
            Failure: the system would not start one; those already started are ended.
        """
        for rank, environment in environments.items():
            try:
                self._running[_spawn(command, rank, environment, mounts)] = rank
            except OSError as error:
                self.end()
                raise Failure(
                    "launch_failed",
                    f"rank {rank.rank} could not be started: {error.strerror or error}",
                    "very long environment variables or inputs can be why",
                ) from error
        return dict(self._running)

    def supervise(self, orders: Orders, timeout_s: float) -> RankExit | None:
        """Return when all is over: the failure that ended the gang, None when there was none."""
        deadline = time.monotonic() + timeout_s if timeout_s > 0 else float("inf")
        while self._running and not self._first_failure and not orders.stopped:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                orders.stop("timeout")
                break
            orders.wait(min(_LOOK_EVERY_S, left_s))
            self._reap()
        self.end()
        return self._first_failure

    def end(self) -> None:
        """End every process of this node: the ranks and whatever they started."""
        self._ending = True
        own = os.getpid()
        processes.end(lambda: processes.family(own, self._mark), self._grace_s, self._reap)
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            # Whoever else is reaped is a rank's orphan, adopted by this process.
            rank = self._running.pop(pid, None)
            if rank is not None:
                self._note(_rank_exit(rank, status))

    def _note(self, exit: RankExit) -> None:
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


def describe(exit: RankExit, node: int) -> Failure:
    """The error object of a node whose rank failed."""
    who = f"rank {exit.rank.rank} on node {node}"
    hint = f"see {exit.rank.log_name}"
    if not exit.signal:
        message = f"{who} exited with code {exit.exit_code}"
        return Failure("rank_failed", message, hint, exit.exit_code)
    if exit.signal == signal.SIGKILL:
        hint += "; a machine that runs out of memory kills this way"
    try:
        name = signal.Signals(exit.signal).name
    except ValueError:
        name = "unknown"
    message = f"{who} was killed by signal {exit.signal} ({name})"
    return Failure("rank_failed", message, hint, exit.exit_code)


def _spawn(
    command: str, rank: Rank, environment: Mapping[str, str], mounts: Sequence[Mount]
) -> int:
    shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh")
    words = mounts_of.command(mounts, [shell, "-c", command])
    return os.posix_spawn(
        words[0],
        words,
        dict(environment),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (
                os.POSIX_SPAWN_OPEN,
                1,
                str(rank.log),
                os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                0o644,
            ),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET,
    )


def _rank_exit(rank: Rank, status: int) -> RankExit:
    if os.WIFSIGNALED(status):
        signum = os.WTERMSIG(status)
        return RankExit(rank, 128 + signum, signum)
    return RankExit(rank, os.WEXITSTATUS(status), 0)
