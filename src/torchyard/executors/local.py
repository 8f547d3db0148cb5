"""A cluster of node slots on this machine.

Owns: one detached worker process per node, its handle, its end.
Leaves: how many nodes a job may have to compute/, the ranks to the worker.
Always: a worker outlives the server that started it; the worker itself makes sure that an
attempt's node starts once, however often it is launched.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.base import machine as machines
from torchyard.executors.bundle import worker_zip
from torchyard.executors.device_locks import Held, give_back
from torchyard.executors.executor import Capacity, DevicesTaken, Handle, State, Status
from torchyard.executors.machine import Machine
from torchyard.shared import processes
from torchyard.shared.plan import DevicePlan, LaunchPlan

NAME = "local"
_MACHINE_FILE = "machine"
# Tells a worker that the signal which asks it to end is ours.
_STOP_FILE = "stop-requested"
_POLL_S = 0.1
_WORKER_START_LIMIT_S = 5.0
_RESET = (signal.SIGPIPE, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGXFSZ)


class LocalExecutor:
    """Nodes are processes of this machine.

    Args:
        home: where the worker's zip is kept.
        python: what runs the worker, 3.9 or later.
        environ: what workers and, less torchyard's own variables, ranks inherit.
        devices: what is given to nodes.
        machine: the name of this one, where others may have started nodes of the same home;
            empty where only this one does.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        python: str = sys.executable,
        devices: Machine | None = None,
        machine: str = "",
    ) -> None:
        self._home = home
        self._devices = devices or Machine(environ)
        self._python = python
        self._environ = _without_own_environment(environ)
        self._machine = machine
        self._zip: Path | None = None
        self._nodes = 0
        self._children: set[int] = set()
        self._lock = threading.Lock()

    def launch(self, plan: LaunchPlan) -> Handle:
        scratch = _scratch(plan)
        other_machine = self._other_machine(scratch)
        if other_machine:
            return self._handle_there(plan, scratch, other_machine)
        missing = [
            node for node in range(plan.node_count) if _worker(_folder(scratch, node)) is None
        ]
        held = self._take(plan, missing)
        if held is None:
            missing = [node for node in missing if not _appears(_folder(scratch, node))]
            if missing:
                raise _taken(plan, begun=len(missing) < plan.node_count)
            held = []
        try:
            devices = self._assign(plan, missing, held)
            plan_file = scratch / "plan.json"
            _write_private(plan_file, dataclasses.replace(plan, devices=devices).to_json())
            if self._machine:
                (scratch / _MACHINE_FILE).write_text(self._machine)
            locks = _by_node(held, missing, plan.gpus_per_node)
            nodes = [
                self._start(plan_file, node, locks.get(node, ())) for node in range(plan.node_count)
            ]
        finally:
            give_back(held)
        names = [[vars(device) for device in node] for node in devices]
        return _handle(scratch, nodes, self._machine, names)

    def recover(self, plan: LaunchPlan) -> Handle:
        # A recovery worker runs no script: it needs no devices, and ends what still uses some.
        scratch = _scratch(plan)
        other_machine = self._other_machine(scratch)
        if other_machine:
            return self._handle_there(plan, scratch, other_machine)
        plan_file = scratch / "plan.json"
        _write_private(plan_file, plan.to_json())
        nodes = [self._start_recovery(plan_file, node) for node in range(plan.node_count)]
        return _handle(scratch, nodes, self._machine)

    def _handle_there(self, plan: LaunchPlan, scratch: Path, machine: str) -> Handle:
        """Of an attempt whose server died before it stored the handle; launches nothing."""
        nodes = [_receipt(_worker(_folder(scratch, node)) or {}) for node in range(plan.node_count)]
        return _handle(scratch, nodes, machine)

    def _other_machine(self, scratch: Path) -> str:
        """The machine that nodes of the attempt were started on, if it is not seen from here."""
        if not self._machine or not any(scratch.glob("node-*/worker.json")):
            return ""
        try:
            machine = (scratch / _MACHINE_FILE).read_text()
        except FileNotFoundError:
            return ""
        return "" if machines.is_seen(machine, self._machine) else machine

    def _take(self, plan: LaunchPlan, missing: Sequence[int]) -> list[Held] | None:
        """The devices of the nodes that are still to be started; None when too few are free."""
        count = plan.gpus_per_node * len(missing)
        if not count:
            return []
        held = self._devices.take(count, f"job {plan.job} of workspace {plan.workspace}")
        return held or None

    def _assign(
        self, plan: LaunchPlan, missing: Sequence[int], held: Sequence[Held]
    ) -> list[list[DevicePlan]]:
        """The devices of each node; empty on a machine without any."""
        if not self._devices.devices:
            return []
        devices = _assigned_before(Path(plan.scratch) / "plan.json", plan.node_count)
        count = plan.gpus_per_node
        for index, node in enumerate(missing):
            devices[node] = [
                DevicePlan(lock.device.kind, lock.device.index, lock.device.uuid)
                for lock in held[index * count : (index + 1) * count]
            ]
        return devices

    def status(self, handle: Handle) -> Status:
        self._reap()
        scratch = Path(handle.body["scratch"])
        if not self._sees(handle):
            count = len(handle.body["nodes"])
            return Status(
                tuple(_reported_state(_folder(scratch, node)) for node in range(count)), False
            )
        return Status(
            tuple(
                _node_state(_folder(scratch, number), launched)
                for number, launched in enumerate(handle.body["nodes"])
            )
        )

    def _sees(self, handle: Handle) -> bool:
        return not self._machine or machines.is_seen(handle.machine, self._machine)

    def stop(self, handle: Handle, grace_s: float) -> None:
        if not self._sees(handle):
            return  # its number may be another process's here; the stop request reaches it
        if grace_s > 0:
            _announce_stop(handle)
            _signal(handle, signal.SIGTERM)
            if not self.status(handle).over:
                args = (handle, grace_s)
                threading.Thread(target=self._kill_later, args=args, daemon=True).start()
        else:
            _signal(handle, signal.SIGKILL)

    def capacity(self) -> Capacity:
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        gpus = len(self._devices.devices)
        return Capacity(self._nodes, len(os.sched_getaffinity(0)), pages, gpus)

    def scale(self, node_count: int) -> None:
        # A slot is only a number here: it exists as soon as it is requested.
        self._nodes = node_count

    def _start(self, plan_file: Path, node: int, locks: Sequence[int]) -> dict[str, int]:
        worker = _worker(_folder(plan_file.parent, node))
        if worker is not None:
            return _receipt(worker)
        return self._spawn(plan_file, node, locks)

    def _start_recovery(self, plan_file: Path, node: int) -> dict[str, int]:
        folder = _folder(plan_file.parent, node)
        worker = _worker(folder)
        if worker is None:
            return _receipt({})
        if _node_state(folder, worker) == "lost":
            return self._spawn(plan_file, node)
        return _receipt(worker)

    def _spawn(self, plan_file: Path, node: int, locks: Sequence[int] = ()) -> dict[str, int]:
        folder = _folder(plan_file.parent, node)
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
                # Onto itself: kept open there, and there alone. Ranks inherit it in turn, so that
                # a device stays locked until the last process that could use it is gone.
                *((os.POSIX_SPAWN_DUP2, lock, lock) for lock in locks),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=_RESET,
        )
        with self._lock:
            self._children.add(pid)
        return {"pid": pid, "start_time": processes.start_time(pid)}

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
            time.sleep(_POLL_S)


def _node_state(folder: Path, launched: Mapping[str, Any]) -> State:
    # Read in this order: a worker is recorded, writes its exit, and then ends.
    worker = _worker(folder)
    supervisor = (worker or {}).get("supervisor") or {}
    if worker is not None and _is_running(worker):
        return "running"
    if (folder / "exit.json").exists():
        # Its supervisor still reads the folder, which must not be emptied before.
        return "ending" if _is_running(supervisor) else "exited"
    if worker is None and _is_running(launched):
        return "running"
    if worker is not None and (_is_running(launched) or _is_running(supervisor)):
        return "ending"
    # It may have been recorded, or have ended, since the first read.
    if _worker(folder) != worker or (folder / "exit.json").exists():
        return _node_state(folder, launched)
    return "lost"


def _reported_state(folder: Path) -> State:
    """The state of a node on another machine, by its files alone."""
    return "exited" if (folder / "exit.json").exists() else "running"


def _handle(
    scratch: Path, nodes: list[dict[str, int]], machine: str, devices: Any = None
) -> Handle:
    body: dict[str, Any] = {"scratch": str(scratch), "nodes": nodes}
    if devices is not None:
        body["devices"] = devices
    if machine:
        body["machine"] = machine
    return Handle(NAME, body)


def _receipt(process: Mapping[str, Any]) -> dict[str, int]:
    return {key: int(process.get(key, 0)) for key in ("pid", "start_time")}


def _is_running(process: Mapping[str, Any]) -> bool:
    return processes.is_running(int(process.get("pid", 0)), int(process.get("start_time", 0)))


def _signal(handle: Handle, signum: int) -> None:
    scratch = Path(handle.body["scratch"])
    for number, launched in enumerate(handle.body["nodes"]):
        worker = _worker(_folder(scratch, number)) or launched
        processes.send(int(worker["pid"]), int(worker["start_time"]), signum)


def _announce_stop(handle: Handle) -> None:
    for number in range(len(handle.body["nodes"])):
        # A folder that is gone has no worker.
        with contextlib.suppress(FileNotFoundError):
            (_folder(Path(handle.body["scratch"]), number) / _STOP_FILE).touch()


def _worker(folder: Path) -> dict[str, Any] | None:
    return _read(folder / "worker.json")


def _scratch(plan: LaunchPlan) -> Path:
    scratch = Path(plan.scratch)
    scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
    return scratch


def _folder(scratch: Path, node: int) -> Path:
    return scratch / f"node-{node}"


def _appears(folder: Path) -> bool:
    """Whether a worker that an earlier launch started records itself after all."""
    deadline = time.monotonic() + _WORKER_START_LIMIT_S
    # The folder is made just before the worker is started.
    while folder.exists() and _worker(folder) is None and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return _worker(folder) is not None


def _taken(plan: LaunchPlan, begun: bool) -> DevicesTaken:
    count = plan.gpus_per_node * plan.node_count
    return DevicesTaken(f"needs {count} GPUs of this machine, and others took them first", begun)


def _by_node(held: Sequence[Held], nodes: Sequence[int], count: int) -> dict[int, list[int]]:
    """The open locks that each node inherits."""
    return {
        node: [lock.descriptor for lock in held[index * count : (index + 1) * count]]
        for index, node in enumerate(nodes)
    }


def _assigned_before(plan_file: Path, node_count: int) -> list[list[DevicePlan]]:
    """The devices that an earlier launch of the attempt gave its nodes."""
    written = (_read(plan_file) or {}).get("devices") or []
    devices = [[DevicePlan(**device) for device in node] for node in written]
    return devices + [[] for _ in range(node_count - len(devices))]


def _read(file: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _write_private(file: Path, text: str) -> None:
    """Write a file that holds tokens, atomically and readable by its owner only."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(text)
    draft.replace(file)


def _without_own_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without the virtual environment that torchyard itself runs in.

    A job that asks for `pip` or `python` must get its own environment's or the machine's.
    """
    if sys.prefix == sys.base_prefix:
        return dict(environ)
    own_bin = os.path.join(sys.prefix, "bin")
    path = os.pathsep.join(
        folder for folder in environ.get("PATH", "").split(os.pathsep) if folder != own_bin
    )
    return {**environ, "PATH": path}
