"""The ranks of one node: started, supervised and stopped together.

Owns: spawning, exit codes, stopping the whole gang at the first failure or stop request.
Leaves: finding and signalling processes to system/processes.py, why a rank failed to
diagnosis/diagnosis.py.
Always: each rank has its own session; when `supervise` returns, no process that a rank started is
left on this node.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torchyard.shared.failures import Failure
from torchyard.shared.processes import Process, start_time
from torchyard.worker.launch.guests import Guest, Guests
from torchyard.worker.server.control import PEER_LOST, TIMEOUT, Control
from torchyard.worker.system import cgroups, processes
from torchyard.worker.system import mounts as mounts_of
from torchyard.worker.system.mounts import Mount
from torchyard.worker.system.rank_limits import RankLimits

if TYPE_CHECKING:
    from torchyard.worker.launch.image_root import Root
    from torchyard.worker.system.network_space import NetworkSpace

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_POLL_EVERY_S = 5.0
# Long enough for a Python with torch to exit, short compared with the grace period.
_SETTLE_S = 1.0
# Python ignores SIGPIPE, and a background server ignores SIGINT; ranks should ignore neither.
_RESET_SIGNALS = (
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
    """`log` is the file that receives the rank's output, `log_name` its name on the server."""

    rank: int
    local_rank: int
    log: Path
    log_name: str


@dataclass(frozen=True)
class RankExit:
    """How a rank ended; `signal` is 0 for a rank that exited by itself.

    `at` counts seconds since 1970; `memory_bytes` is the peak memory of its largest process;
    `stop_requested` says that it had been told to stop, `aborted_late` that it was aborted after
    its script had ended successfully, so that its exit code is 0 all the same.
    """

    rank: Rank
    exit_code: int
    signal: int
    pid: int = 0
    at: float = 0.0
    memory_bytes: int = 0
    stop_requested: bool = False
    aborted_late: bool = False


class Watch(Protocol):
    """Checks running ranks, given by pid."""

    def check(self, running: Mapping[int, Rank]) -> float:
        """Called regularly; returns the seconds until the next call.

        Raises:
            Failure: the reason why the ranks must be stopped.
        """
        ...

    def ending(self, running: Mapping[int, Rank]) -> None:
        """Called just before running ranks are told to stop."""
        ...


class Gang:
    """The ranks of this node. Used only by the main thread, which owns all child processes.

    `limits` and `network` are those of ranks that are yet to be started; `guests` are beside them.

    Args:
        grace_s: how long ranks have after SIGTERM, asked once they are to end.
        forgive: the exit that a rank with an exit code other than 0 is to be recorded with.
    """

    def __init__(
        self,
        mark: str,
        grace_s: Callable[[], float],
        on_exit: Callable[[RankExit], None],
        on_stop: Callable[[str], None] = lambda _: None,
        is_urgent: Callable[[], bool] = lambda: False,
        forgive: Callable[[RankExit], RankExit] = lambda exit: exit,
    ) -> None:
        self.limits = RankLimits()
        self.network: NetworkSpace | None = None
        self.guests = Guests()
        self._surroundings: dict[int, _Surroundings] = {}
        self._mark = mark
        # What this process has started came after it.
        self._began = start_time(os.getpid())
        self._grace_s = grace_s
        self._on_exit = on_exit
        self._on_stop = on_stop
        self._is_urgent = is_urgent
        self._forgive = forgive
        # Pids of processes for whose end nobody waits.
        self.bystanders: Callable[[], Collection[int]] = tuple
        self._running: dict[int, Rank] = {}
        self._first_failure: RankExit | None = None
        self._ending = False
        self._launcher = 0
        self.launcher_status: int | None = None
        self._stop_reported = False
        self.exits: list[RankExit] = []
        self.ending_at = 0.0

    def start(
        self,
        command: str,
        environments: Mapping[Rank, Mapping[str, str]],
        mounts: Sequence[Mount] = (),
        root: Root | None = None,
    ) -> dict[int, Rank]:
        """Start ranks in the current folder, each within the mounts; return all by pid.

        Args:
            root: the image that they run in, which includes the mounts.

        Raises:
            Failure: a rank could not be started; those already started are stopped.
        """
        try:
            with cgroups.inside(self._mark), self.limits.inherited():
                for rank, environment in environments.items():
                    around = _Surroundings(environment, mounts, root, self.network)
                    pid = _spawn(*around.command(command), _to_log(rank.log))
                    self._running[pid] = rank
                    self._surroundings[rank.local_rank] = around
                    self.limits.apply(pid)
        except OSError as error:
            self.end()
            message = f"rank {rank.rank} could not be started: {error.strerror or error}"
            if error.errno == errno.EAGAIN:
                hint = "the machine or the job reached its limit of processes: see `ulimit -u`"
                raise Failure("too_many_processes", message, hint) from error
            hint = "environment variables or inputs may be too long"
            raise Failure("launch_failed", message, hint) from error
        self.guests.open()
        return dict(self._running)

    def start_launcher(
        self, words: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Start the program that the ranks need as long as they run.

        Raises:
            OSError: it could not be started.
        """
        with cgroups.inside(self._mark), self.limits.inherited():
            self._launcher = _spawn_in_root(words, environment, log)
            self.limits.apply(self._launcher)

    def rank_numbers(self) -> dict[int, int]:
        """Of the running ranks, by pid; may be called from another thread."""
        return {pid: rank.rank for pid, rank in self._running.copy().items()}

    @property
    def first_failure(self) -> RankExit | None:
        return self._first_failure

    def poll(self) -> bool:
        """Reap ended processes; return False once a rank failed or the launcher ended."""
        self._reap()
        return self._first_failure is None and self.launcher_status is None

    @property
    def launcher_failed(self) -> bool:
        """Whether the launcher failed, or ended before the ranks that need it."""
        return self.launcher_status is not None and bool(self.launcher_status or self._running)

    def supervise(
        self,
        control: Control,
        timeout_s: float,
        is_consequence: Callable[[RankExit], bool] = lambda _: False,
        watch: Watch | None = None,
        hold: Callable[[], None] | None = None,
    ) -> RankExit | None:
        """Wait until all ranks have ended; return the first failure, None without one.

        Args:
            is_consequence: whether a failed rank may have failed because of another one.
            hold: called when the ranks have ended by themselves, before everything else ends.

        Raises:
            Failure: raised by `watch`; the gang has been stopped.
        """
        deadline = time.monotonic() + timeout_s if timeout_s > 0 else float("inf")
        try:
            while self._is_active() and not self._first_failure and not control.stopped:
                remaining_s = deadline - time.monotonic()
                if remaining_s <= 0:
                    control.stop(TIMEOUT)
                    break
                interval_s = watch.check(self._running) if watch is not None else _POLL_EVERY_S
                control.wait(min(interval_s, remaining_s))
                self._reap()
            if (
                control.reason == PEER_LOST
                or (self._first_failure is not None and is_consequence(self._first_failure))
                or (self._first_failure is None and self.launcher_failed)
            ):
                self._wait_for_cause(control, is_consequence)
            # First, so that other nodes need not wait for this node's stacks.
            self._report_stop(control)
            if watch is not None:
                watch.ending(self._running)
            if hold is not None and (self._first_failure is not None or not control.stopped):
                self.end_ranks()
                hold()
        finally:
            self._report_stop(control)
            self.end()
        return self._first_failure

    def _report_stop(self, control: Control) -> None:
        if control.stopped and not self._stop_reported:
            self._stop_reported = True
            self._on_stop(control.reason)

    def _wait_for_cause(self, control: Control, is_consequence: Callable[[RankExit], bool]) -> None:
        """Wait briefly for the rank that failed first: it may exit later than its victims."""
        deadline = time.monotonic() + _SETTLE_S
        seen_count = len(self.exits)
        while self._running and control.reason in ("", PEER_LOST):
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            control.wait(remaining_s)
            self._reap()
            new_exits, seen_count = self.exits[seen_count:], len(self.exits)
            if any(exit.exit_code and not is_consequence(exit) for exit in new_exits):
                return

    def end(self) -> None:
        """Stop every process of this node: the ranks and everything they started."""
        self._note_ending()
        self.guests.close()
        if self._launcher and self.launcher_status is None:
            # Ranks that save their work in the grace period may need it to communicate.
            self._end_all(self._without_launcher)
        self._end_all(self._family)
        # Also done here, because a supervisor that was killed removes nothing.
        cgroups.remove(self._mark)
        self._reap()

    def end_ranks(self) -> None:
        """Stop the ranks and what they started; guests stay."""
        self._note_ending()
        self._end_all(self._without_guests)

    def _note_ending(self) -> None:
        if not self._ending:
            self._ending, self.ending_at = True, time.time()

    def _without_guests(self) -> list[Process]:
        guests = {process.pid for pid in self.guests.pids for process in processes.below(pid)}
        return [process for process in self._family() if process.pid not in guests]

    def _family(self) -> list[Process]:
        bystanders = self.bystanders()
        family = processes.family(os.getpid(), self._mark, self._began)
        return [process for process in family if process.pid not in bystanders]

    def _end_all(self, find: Callable[[], list[Process]]) -> None:
        processes.end(find, self._grace_s(), self._reap, self._is_urgent)

    def _is_active(self) -> bool:
        """Whether ranks or their launcher still run, unless the launcher failed."""
        if self.launcher_failed:
            return False
        return bool(self._running) or bool(self._launcher and self.launcher_status is None)

    def _without_launcher(self) -> list[Process]:
        launcher_pids = {process.pid for process in processes.below(self._launcher)}
        return [process for process in self._family() if process.pid not in launcher_pids]

    def reap(self) -> None:
        """Take note of processes that have ended, and start guests."""
        self._reap()

    def _start_guest(self, guest: Guest) -> int:
        around = self._surroundings.get(guest.local_rank)
        if around is None:
            raise ValueError(f"this node has no local rank {guest.local_rank}")
        with cgroups.inside(self._mark), self.limits.inherited():
            pid = _spawn(*around.guest(guest), guest.actions)
            self.limits.apply(pid)
        return pid

    def _reap(self) -> None:
        self.guests.serve(self._start_guest)
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
            if self.guests.reaped(pid, status):
                continue
            # Any other child is a process that a rank left behind, adopted by this process.
            rank = self._running.pop(pid, None)
            if rank is not None:
                exit = _rank_exit(rank, status, pid, usage.ru_maxrss * 1024, self._ending)
                self._record_exit(self._forgive(exit) if exit.exit_code else exit)

    def _record_exit(self, exit: RankExit) -> None:
        self.exits.append(exit)
        if exit.exit_code and not self._ending and self._first_failure is None:
            self._first_failure = exit
        self._on_exit(exit)


def plan_ranks(node: int, processes_per_node: int, world_size: int, folder: Path) -> list[Rank]:
    """The ranks of a node with their logs, which have Azure ML's names."""
    ranks = []
    for local_rank in range(processes_per_node):
        rank = node * processes_per_node + local_rank
        name = "std_log.txt"
        if world_size > 1:
            name = f"std_log_process_{rank:0{len(str(world_size - 1))}d}.txt"
        ranks.append(Rank(rank, local_rank, folder / name, f"user_logs/{name}"))
    return ranks


@dataclass(frozen=True)
class _Surroundings:
    """What a rank was started in, for the processes beside it, too."""

    environment: Mapping[str, str]
    mounts: Sequence[Mount]
    root: Root | None
    network: NetworkSpace | None

    def command(self, command: str) -> tuple[list[str], Mapping[str, str]]:
        """What starts the shell that runs the job's command in them, and its environment."""
        return self._within([*self._shell_words(), "-c", command], self.environment)

    def guest(self, guest: Guest) -> tuple[list[str], Mapping[str, str]]:
        """As `shell`, for a process beside the rank."""
        variables = {**self.environment, **guest.variables}
        environment = {name: value for name, value in variables.items() if value is not None}
        if guest.isolated:
            network = self.network.command if self.network is not None else list
            return network(guest.words), environment
        words = list(guest.words)
        if not words[0]:
            words = [*self._shell_words(), *words[1:]]
        else:
            words = [*self._shell_words(), "-c", 'exec "$@"', "sh", *words]
        return self._within(words, environment)

    def _shell_words(self) -> list[str]:
        if self.root is not None:
            return [self.root.shell]
        return [next((path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh")]

    def _within(
        self, words: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[list[str], Mapping[str, str]]:
        enter = self.network.command if self.network is not None else list
        if self.root is not None:
            return enter(self.root.command(words)), self.root.hide_loader_variables(environment)
        return enter(mounts_of.command(self.mounts, words)), environment


def _to_log(log: Path) -> list[tuple[Any, ...]]:
    """Nothing to read, all output to a file."""
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]


def _spawn(
    words: Sequence[str], environment: Mapping[str, str], actions: Sequence[tuple[Any, ...]]
) -> int:
    return os.posix_spawn(
        words[0],
        list(words),
        dict(environment),
        file_actions=list(actions),
        setsid=True,
        setsigmask=(),
        setsigdef=_RESET_SIGNALS,
    )


def _spawn_in_root(words: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """Spawn in the root folder, because the current folder may not exist on other nodes."""
    previous_folder = os.getcwd()
    os.chdir("/")
    try:
        return _spawn(words, environment, _to_log(log))
    finally:
        os.chdir(previous_folder)


def _rank_exit(
    rank: Rank, status: int, pid: int, memory_bytes: int, stop_requested: bool
) -> RankExit:
    signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    exit_code = 128 + signum if signum else os.WEXITSTATUS(status)
    return RankExit(rank, exit_code, signum, pid, time.time(), memory_bytes, stop_requested)
