"""The process above the worker that outlives it.

Owns: the node's lock, the split into guardian and worker, ending the ranks of a killed worker.
Leaves: everything else to the worker, its only child.
Always: it adopts what a killed worker leaves behind, so it finds the ranks by the process tree
alone; it holds the lock until nobody of this node lives; when it is killed itself, the worker
takes that for a stop order.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from torchyard.worker import processes, temporary

_WAIT_FOR_OTHER_S = 5.0


def claim(folder: Path) -> bool:
    """Take this node's lock for life; False when the node was started before."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        _wait_for(folder / "worker.json")
        return False
    # The lock of a worker that ended is free again, but an attempt's node runs only once.
    return not (folder / "worker.json").exists()


def split(work: Callable[[], int], mark: str, grace_s: float, folder: Path) -> int:
    """Run `work` in a child and stay behind as its guardian; returns in the guardian only.

    Called before any thread is started: a fork carries over no other.
    """
    processes.adopt_orphans()
    guardian = os.getpid()
    worker = os.fork()
    if worker == 0:
        os._exit(_as_worker(work, guardian))
    for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, lambda *_: os.kill(worker, signal.SIGTERM))
    exit_code = _wait_for_child(worker)
    processes.end(lambda: processes.family(guardian, mark), grace_s, reap_all)
    temporary.forget(folder)
    return exit_code


def record(folder: Path) -> None:
    """Write who the worker is and who guards it."""
    who = {}
    for key, pid in (("worker", os.getpid()), ("guardian", os.getppid())):
        found = processes.read(pid)
        who[key] = {"pid": pid, "start_time": found.start_time if found else 0}
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


def _as_worker(work: Callable[[], int], guardian: int) -> int:
    exit_code = 1
    try:
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
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _wait_for(file: Path) -> None:
    deadline = time.monotonic() + _WAIT_FOR_OTHER_S
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
