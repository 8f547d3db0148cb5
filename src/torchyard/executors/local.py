"""A cluster of node slots on this machine.

Owns: one worker a node as a detached process, its handle, its end.
Leaves: how many nodes a job may have to compute/, the ranks to the worker.
Always: a worker outlives the server that started it; the worker itself sees to it that an
attempt's node starts once, however many launch it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.base import machine as machines
from torchyard.executors import processes
from torchyard.executors.bundle import worker_zip
from torchyard.executors.executor import Capacity, Handle, State, Status
from torchyard.plan import LaunchPlan

NAME = "local"
_MACHINE_FILE = "machine"
_LOOK_EVERY_S = 0.1
_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGXFSZ)


class LocalExecutor:
    """Nodes are processes of this machine.

    Args:
        home: where the worker's zip is kept.
        python: what runs the worker, 3.9 or later.
        environ: what workers and, less torchyard's own variables, ranks inherit.
        machine: what this one is called, where others may have started nodes of the same home;
            empty where only this one does.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        python: str = sys.executable,
        machine: str = "",
    ) -> None:
        self._home = home
        self._python = python
        self._environ = _of_the_machine(environ)
        self._machine = machine
        self._zip: Path | None = None
        self._nodes = 0
        self._children: set[int] = set()
        self._lock = threading.Lock()

    def launch(self, plan: LaunchPlan) -> Handle:
        return self._on_each(plan, self._start)

    def inherit(self, plan: LaunchPlan) -> Handle:
        return self._on_each(plan, self._start_heir)

    def _on_each(self, plan: LaunchPlan, start: Callable[[Path, int], dict[str, int]]) -> Handle:
        scratch = Path(plan.scratch)
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = self._started_elsewhere(scratch)
        if there:
            # Its server died before it could say so; whoever is there now only reports.
            return _handle(scratch, [_receipt(_who(n) or {}) for n in _folders(plan)], there)
        plan_file = scratch / "plan.json"
        _write_private(plan_file, plan.to_json())
        if self._machine:
            (scratch / _MACHINE_FILE).write_text(self._machine)
        nodes = [start(plan_file, node) for node in range(plan.node_count)]
        return _handle(scratch, nodes, self._machine)

    def _started_elsewhere(self, scratch: Path) -> str:
        """The machine that nodes of the attempt were started on, if it is not seen from here."""
        if not self._machine or not any(scratch.glob("node-*/worker.json")):
            return ""
        try:
            there = (scratch / _MACHINE_FILE).read_text()
        except FileNotFoundError:
            return ""
        return "" if machines.is_seen(there, self._machine) else there

    def status(self, handle: Handle) -> Status:
        self._reap()
        scratch = Path(handle.body["scratch"])
        if not self._sees(handle):
            count = len(handle.body["nodes"])
            return Status(tuple(_told_state(scratch / f"node-{k}") for k in range(count)), False)
        return Status(
            tuple(
                _node_state(scratch / f"node-{number}", launched)
                for number, launched in enumerate(handle.body["nodes"])
            )
        )

    def _sees(self, handle: Handle) -> bool:
        return not self._machine or machines.is_seen(handle.machine, self._machine)

    def stop(self, handle: Handle, grace_s: float) -> None:
        if not self._sees(handle):
            return  # its number may be another process's here; the order to stop reaches it
        if grace_s > 0:
            _signal(handle, signal.SIGTERM)
            if not self.status(handle).over:
                args = (handle, grace_s)
                threading.Thread(target=self._kill_later, args=args, daemon=True).start()
        else:
            _signal(handle, signal.SIGKILL)

    def capacity(self) -> Capacity:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        gpus = sum(name[6:].isdigit() for name in os.listdir("/dev") if name.startswith("nvidia"))
        return Capacity(self._nodes, len(os.sched_getaffinity(0)), pages, gpus)

    def scale(self, node_count: int) -> None:
        # A slot is nothing but a number here: it is there as soon as it is asked for.
        self._nodes = node_count

    def _start(self, plan_file: Path, node: int) -> dict[str, int]:
        folder = plan_file.parent / f"node-{node}"
        started_before = _who(folder)
        if started_before is not None:
            return _receipt(started_before)
        return self._spawn(plan_file, node)

    def _start_heir(self, plan_file: Path, node: int) -> dict[str, int]:
        folder = plan_file.parent / f"node-{node}"
        left = _who(folder)
        if left is None:
            return _receipt({})
        return (
            self._spawn(plan_file, node) if _node_state(folder, left) == "lost" else _receipt(left)
        )

    def _spawn(self, plan_file: Path, node: int) -> dict[str, int]:
        folder = plan_file.parent / f"node-{node}"
        folder.mkdir(mode=0o700, exist_ok=True)
        program = [self._python, "-I", "-S", str(self._worker_zip())]
        pid = os.posix_spawn(
            self._python,
            [*program, "--plan", str(plan_file), "--node", str(node)],
            self._environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (
                    os.POSIX_SPAWN_OPEN,
                    1,
                    str(folder / "worker.log"),
                    os.O_WRONLY | os.O_CREAT | os.O_APPEND,
                    0o600,
                ),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET,
        )
        with self._lock:
            self._children.add(pid)
        return {"pid": pid, "start_time": processes.start_time(pid) or 0}

    def _worker_zip(self) -> Path:
        if self._zip is None or not self._zip.exists():
            self._zip = worker_zip(self._home)
        return self._zip

    def _reap(self) -> None:
        with self._lock:
            for pid in list(self._children):
                ended = True
                with contextlib.suppress(ChildProcessError):
                    ended = os.waitpid(pid, os.WNOHANG)[0] == pid
                if ended:
                    self._children.discard(pid)

    def _kill_later(self, handle: Handle, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        while not self.status(handle).over:
            if time.monotonic() >= deadline:
                _signal(handle, signal.SIGKILL)
                return
            time.sleep(_LOOK_EVERY_S)


def _node_state(folder: Path, launched: Mapping[str, Any]) -> State:
    # Looked at in this order: a worker is recorded, writes its exit, and then ends.
    who = _who(folder)
    if who is not None and _lives(who):
        return "running"
    if (folder / "exit.json").exists():
        # Its guardian still reads what is there; an heir must not find an emptied folder.
        return "ending" if who is not None and _lives(who.get("guardian") or {}) else "exited"
    if who is None and _lives(launched):
        return "running"
    if who is not None and (_lives(launched) or _lives(who.get("guardian") or {})):
        return "ending"
    # It may have been recorded, or have ended, between two looks.
    if _who(folder) != who or (folder / "exit.json").exists():
        return _node_state(folder, launched)
    return "lost"


def _told_state(folder: Path) -> State:
    """Of a node on another machine, by its files alone."""
    return "exited" if (folder / "exit.json").exists() else "running"


def _handle(scratch: Path, nodes: list[dict[str, int]], machine: str) -> Handle:
    there = {"machine": machine} if machine else {}
    return Handle(NAME, {"scratch": str(scratch), "nodes": nodes, **there})


def _folders(plan: LaunchPlan) -> list[Path]:
    return [Path(plan.scratch) / f"node-{node}" for node in range(plan.node_count)]


def _receipt(who: Mapping[str, Any]) -> dict[str, int]:
    return {key: int(who.get(key, 0)) for key in ("pid", "start_time")}


def _lives(who: Mapping[str, Any]) -> bool:
    return processes.lives(int(who.get("pid", 0)), int(who.get("start_time", 0)))


def _signal(handle: Handle, signum: int) -> None:
    scratch = Path(handle.body["scratch"])
    for number, launched in enumerate(handle.body["nodes"]):
        who = _who(scratch / f"node-{number}") or launched
        processes.send(int(who["pid"]), int(who["start_time"]), signum)


def _who(folder: Path) -> dict[str, Any] | None:
    return _read(folder / "worker.json")


def _read(file: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _write_private(file: Path, text: str) -> None:
    """Write a file that holds tokens: readable by its owner only, whole or not at all."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
    draft.replace(file)


def _of_the_machine(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the virtual environment that torchyard itself runs in.

    A job that asks for `pip` or `python` must get its own environment's or the machine's.
    """
    if sys.prefix == sys.base_prefix:
        return dict(environ)
    own = os.path.join(sys.prefix, "bin")
    path = os.pathsep.join(
        folder for folder in environ.get("PATH", "").split(os.pathsep) if folder != own
    )
    return {**environ, "PATH": path}
