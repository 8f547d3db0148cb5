"""The supervisor: the parent process of a node's worker, which outlives it.

Owns: the node's lock and the worker process. If the worker is killed, the supervisor stops its
ranks and starts a recovery worker, which uploads what is left and reports the worker's death.
Leaves: everything else to the worker or the recovery worker, its only child.
Always: it adopts the processes of a killed worker, so it finds the ranks by the process tree alone;
it holds the lock until no process of this node is left; if the supervisor itself is killed, the
worker stops its ranks and reports that. A signal that asks it to end goes to the worker, with its
sender's name.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared import locks
from torchyard.shared.node_records import STARTER_DIED
from torchyard.shared.processes import start_time
from torchyard.worker.system import cgroups, processes, signals, temporary

_WAIT_FOR_OTHER_S = 5.0
FREE, TAKEN, ABANDONED = "free", "taken", "abandoned"
_AWAITED = (*signals.ENDING, signal.SIGCHLD)
_RECEIVED_FILE = "supervisor-signal.json"
STARTER_FILE = "starter-signal.json"
AGENT_DIED = "agent-died"
AGENT_WAS_KILLED = (
    "the program that keeps its machine a node (`yard node join`) was killed, and Ray ended with it"
)
"""The signal by which a node's engine ended it; see starter.py."""


class _Supervisor:
    """The supervisor's pid, in itself and in its children: a parent that ended has none.

    `starter` is the pid of its own parent, 0 where the server started it.
    """

    pid = 0
    starter = 0


@dataclass(frozen=True)
class SupervisedNode:
    """A node: the mark of its processes, their grace period, its folder, the descriptors that are
    for the worker alone.
    """

    mark: str
    grace_s: float
    folder: Path
    handed: tuple[int, ...] = ()


def claim(folder: Path) -> str:
    """Lock this node for the lifetime of this process.

    Returns:
        FREE: no worker was started on this node before. TAKEN: another worker runs or has ended.
        ABANDONED: worker and supervisor both died, and nobody has reported it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = locks.open_lock(folder / "lock")
    deadline = time.monotonic() + _WAIT_FOR_OTHER_S
    while not locks.try_lock(lock):
        # Another one that dies before its worker is recorded leaves the node free.
        if (folder / "worker.json").exists() or time.monotonic() > deadline:
            return TAKEN
        time.sleep(0.01)
    # A worker that ended has released the lock, but an attempt runs only once on a node.
    if not (folder / "worker.json").exists():
        return FREE
    return TAKEN if _has_reported(folder) else ABANDONED


def supervise(
    work: Callable[[], int], run_recovery: Callable[[str], int], node: SupervisedNode
) -> int:
    """Run `work` in a child process and supervise it; return the node's exit code.

    Must be called before any thread is started, because a fork copies only the current one.

    Args:
        run_recovery: run in another child if the worker was killed; receives how it died.
    """
    processes.become_subreaper()
    began = start_time(os.getpid())
    try:
        worker = _fork(work)
        for descriptor in node.handed:
            os.close(descriptor)
        exit_code = _wait_for_child(worker, node.folder)
        _end_processes(node, began)
        if not _has_reported(node.folder):
            exit_code = _wait_for_child(
                _fork(lambda: run_recovery(_describe_exit(exit_code))), node.folder
            )
            _end_processes(node, began)
    finally:
        temporary.forget(node.folder)
    return exit_code


def recover(run_recovery: Callable[[str], int], node: SupervisedNode) -> int:
    """Recover a node whose worker and supervisor both died."""
    processes.become_subreaper()
    try:
        _end_processes(node)
        exit_code = _wait_for_child(
            _fork(lambda: run_recovery("died together with its supervisor")), node.folder
        )
        _end_processes(node)
    finally:
        temporary.forget(node.folder)
    return exit_code


def follow_starter(starter: int) -> None:
    """End as if asked to when the process ends that started this one, however it ends.

    Args:
        starter: its pid; it may have ended already.
    """
    _Supervisor.starter = starter
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    processes.die_with_parent(signal.SIGTERM)
    if is_without_starter():
        os.kill(os.getpid(), signal.SIGTERM)


def is_without_starter() -> bool:
    """Whether the process that started this one has ended."""
    return os.getppid() != _Supervisor.starter


def record_pids(folder: Path) -> None:
    """Record the processes of the worker and its supervisor in `worker.json`."""
    body = {}
    # Not `os.getppid()`: if the supervisor has ended, that is another process by now.
    for key, pid in (("worker", os.getpid()), ("supervisor", _Supervisor.pid)):
        body[key] = {"pid": pid, "start_time": start_time(pid)}
    text = json.dumps({**body["worker"], "supervisor": body["supervisor"]})
    temporary = folder / f"worker.json.{os.getpid()}"
    temporary.write_text(text)
    temporary.replace(folder / "worker.json")


def describe_signal(folder: Path, received: signals.Received) -> str:
    """Who told this worker to end: the sender of a signal, or the end of its supervisor."""
    if received.pid != _Supervisor.pid:
        return f"it received {received.text}"
    if (folder / STARTER_DIED).exists():
        return "the process that its engine had started there was killed"
    if (folder / AGENT_DIED).exists():
        return AGENT_WAS_KILLED
    by_engine = signals.load(folder / STARTER_FILE)
    if by_engine is not None:
        return f"its engine ended the node by {by_engine.text}"
    forwarded = signals.load(folder / _RECEIVED_FILE)
    if forwarded is not None:
        return f"its supervisor received {forwarded.text}"
    return "its supervisor was killed"


def reap_all() -> None:
    """Reap all children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _fork(work: Callable[[], int]) -> int:
    _Supervisor.pid = os.getpid()
    # Signals stay pending until this process waits for them, or the worker does.
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    # Also SIGCHLD: where it is ignored, the end of a child goes unnoticed.
    for signum in _AWAITED:
        signal.signal(signum, signal.SIG_DFL)
    child = os.fork()
    if child == 0:
        os._exit(_run_child(work))
    return child


def _run_child(work: Callable[[], int]) -> int:
    exit_code = 1
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGCHLD,))
        os.setsid()
        processes.become_subreaper()
        processes.die_with_parent(signal.SIGTERM)
        if os.getppid() == _Supervisor.pid:
            exit_code = work()
    except BaseException:
        import traceback

        traceback.print_exc()
    return exit_code


def _wait_for_child(child: int, folder: Path) -> int:
    """Wait until the child has ended; pass signals on to it, which its number still names."""
    while True:
        info = signal.sigwaitinfo(_AWAITED)
        if info.si_signo != signal.SIGCHLD:
            received = signals.received(info)
            print(f"the supervisor received {received.text}", file=sys.stderr, flush=True)
            signals.save(folder / _RECEIVED_FILE, received)
            if _Supervisor.starter and is_without_starter():
                (folder / STARTER_DIED).touch()
            os.kill(child, signal.SIGTERM)
            continue
        status = _reap_until(child)
        if status is not None:
            for signum in signals.ENDING:
                signal.signal(signum, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _reap_until(child: int) -> int | None:
    """Reap what has ended; the child's status if it was among them."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if not pid:
            return None
        if pid == child:
            return status


def _end_processes(node: SupervisedNode, since: int = 0) -> None:
    own_pid = os.getpid()
    processes.end(lambda: processes.family(own_pid, node.mark, since), node.grace_s, reap_all)
    cgroups.remove(node.mark)


def _has_reported(folder: Path) -> bool:
    # Nothing is removed before the last event has been delivered.
    return (folder / "exit.json").exists() or not folder.exists()


def _describe_exit(exit_code: int) -> str:
    if exit_code <= 128:
        return f"exited with code {exit_code}"
    try:
        name = signal.Signals(exit_code - 128).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {exit_code - 128} ({name})"
