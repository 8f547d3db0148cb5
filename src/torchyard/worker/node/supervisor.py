"""The process above the worker that outlives it.

Owns: the node's lock, the split into guardian and worker, ending the ranks of a killed worker,
its heir: a child that delivers what the worker owed and tells of its death.
Leaves: everything else to the worker or its heir, its only child.
Always: it adopts what a killed worker leaves behind, so it finds the ranks by the process tree
alone; it holds the lock until nobody of this node lives; when it is killed itself, the worker
takes that for a stop order.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared import locks
from torchyard.shared.processes import start_time
from torchyard.worker.system import cgroups, processes, temporary

_WAIT_FOR_OTHER_S = 5.0
FREE, TAKEN, LEFT = "free", "taken", "left"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True)
class Guarded:
    """A node: the mark of its processes, the grace they get, its folder."""

    mark: str
    grace_s: float
    folder: Path


def claim(folder: Path) -> str:
    """Take this node's lock for life.

    Returns:
        FREE: nobody started this node before. TAKEN: somebody did, and it is not ours. LEFT: its
        worker and guardian died, and nobody has told of it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not locks.try_lock(locks.open_lock(folder / "lock")):
        _wait_for(folder / "worker.json")
        return TAKEN
    # The lock of a worker that ended is free again, but an attempt's node runs only once.
    if not (folder / "worker.json").exists():
        return FREE
    return TAKEN if _has_told(folder) else LEFT


def split(work: Callable[[], int], inherit: Callable[[str], int], guarded: Guarded) -> int:
    """Run `work` in a child and stay behind as its guardian; returns in the guardian only.

    Called before any thread is started: a fork carries over no other.

    Args:
        inherit: run in another child when the first one was killed; is told how that was.
    """
    processes.adopt_orphans()
    exit_code = _wait_for_child(_fork(work))
    _end_all(guarded)
    if not _has_told(guarded.folder):
        exit_code = _wait_for_child(_fork(lambda: inherit(_how(exit_code))))
        _end_all(guarded)
    temporary.forget(guarded.folder)
    return exit_code


def succeed(inherit: Callable[[str], int], guarded: Guarded) -> int:
    """What `split` does from the death of the worker on, where guardian and worker both died."""
    processes.adopt_orphans()
    _end_all(guarded)
    exit_code = _wait_for_child(_fork(lambda: inherit("died with its guardian")))
    _end_all(guarded)
    temporary.forget(guarded.folder)
    return exit_code


def record(folder: Path) -> None:
    """Write who the worker is and who guards it."""
    who = {}
    for key, pid in (("worker", os.getpid()), ("guardian", os.getppid())):
        who[key] = {"pid": pid, "start_time": start_time(pid)}
    text = json.dumps({**who["worker"], "guardian": who["guardian"]})
    temporary = folder / f"worker.json.{os.getpid()}"
    temporary.write_text(text)
    temporary.replace(folder / "worker.json")


def reap_all() -> None:
    """Take note of every child that ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _fork(work: Callable[[], int]) -> int:
    guardian = os.getpid()
    # What comes before either has a handler waits for it: see `Orders.listen_to_signals`.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    child = os.fork()
    if child == 0:
        os._exit(_as_worker(work, guardian))
    for signum in _SIGNALS:
        signal.signal(signum, lambda *_: _pass_on(child))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return child


def _pass_on(child: int) -> None:
    try:
        os.kill(child, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it ended a moment ago


def _as_worker(work: Callable[[], int], guardian: int) -> int:
    exit_code = 1
    try:
        for signum in _SIGNALS:
            signal.signal(signum, signal.SIG_DFL)
        os.setsid()
        processes.adopt_orphans()
        processes.die_with_parent(signal.SIGTERM)
        if os.getppid() == guardian:
            exit_code = work()
    except BaseException:
        import traceback

        traceback.print_exc()
    return exit_code


def _wait_for_child(child: int) -> int:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            # Its number may be another process's from now on.
            for signum in _SIGNALS:
                signal.signal(signum, signal.SIG_IGN)
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _end_all(guarded: Guarded) -> None:
    own = os.getpid()
    find = lambda: processes.family(own, guarded.mark)  # noqa: E731
    processes.end(find, guarded.grace_s, reap_all)
    cgroups.remove(guarded.mark)


def _has_told(folder: Path) -> bool:
    # Nothing is removed there before the last word was taken.
    return (folder / "exit.json").exists() or not folder.exists()


def _how(exit_code: int) -> str:
    if exit_code <= 128:
        return f"ended with code {exit_code}"
    try:
        name = signal.Signals(exit_code - 128).name
    except ValueError:
        name = "unknown"
    return f"was killed by signal {exit_code - 128} ({name})"


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _WAIT_FOR_OTHER_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
