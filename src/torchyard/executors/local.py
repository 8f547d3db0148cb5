"""A cluster of node slots on this machine.

Owns: one detached worker process per node, its handle, its end.
Leaves: how many nodes a job may have to compute/, starting processes to spawner.py, the ranks to
the worker.
Always: a worker outlives the server that started it; the worker itself makes sure that an
attempt's node starts once, however often it is launched.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torchyard.base import machine as machines
from torchyard.executors.device_locks import LockedDevice, give_back
from torchyard.executors.executor import DevicesTaken, Handle, Status
from torchyard.executors.machine import Machine
from torchyard.executors.spawner import DirectSpawner, Records, Spawner
from torchyard.shared import unix_sockets
from torchyard.shared.node_records import receipt
from torchyard.shared.plan import LOCAL, DevicePlan, LaunchPlan

NAME = LOCAL
_POLL_S = 0.1
_WORKER_START_LIMIT_S = 5.0


class LocalExecutor:
    """Nodes are processes of this machine.

    Args:
        home: where the worker's zip is kept; see base/home/node_folder.py.
        python: what runs the worker, 3.9 or later.
        environ: what workers and, less torchyard's own variables, ranks inherit.
        devices: what is given to nodes.
        machine: the name of this one, where others may have started nodes of the same home;
            empty where only this one does.
        spawner: starts the workers; as this process's own user when it is None.
    """

    def __init__(
        self,
        home: Path,
        environ: Mapping[str, str],
        python: str = sys.executable,
        devices: Machine | None = None,
        machine: str = "",
        spawner: Spawner | None = None,
    ) -> None:
        self._devices = devices or Machine(environ)
        self._machine = machine
        self._spawner = spawner or DirectSpawner(home, _without_own_environment(environ), python)

    def launch(self, plan: LaunchPlan) -> Handle:
        scratch = Path(plan.scratch)
        other_machine = self._other_machine(scratch)
        if other_machine:
            return self._handle_there(plan, other_machine)
        records = self._spawner.records(scratch, plan.node_count)
        missing = [node for node, worker in enumerate(records.workers) if worker is None]
        device_locks = self._take(plan, missing)
        if device_locks is None:
            missing = self._without_starting(scratch, plan.node_count, missing)
            if missing:
                raise _taken(plan, begun=len(missing) < plan.node_count)
            device_locks = []
        try:
            devices = self._assign(plan, records, missing, device_locks)
            plan = dataclasses.replace(plan, devices=devices)
            self._spawner.prepare(plan)
            if self._machine:
                self._spawner.note_machine(scratch, self._machine)
            locks = _by_node(device_locks, missing, plan.gpus_per_node)
            nodes = self._start(plan, locks)
        finally:
            give_back(device_locks)
        names = [[vars(device) for device in node] for node in devices]
        return _handle(scratch, nodes, self._machine, names)

    def recover(self, plan: LaunchPlan) -> Handle:
        # A recovery worker runs no script: it needs no devices, and ends what still uses some.
        scratch = Path(plan.scratch)
        other_machine = self._other_machine(scratch)
        if other_machine:
            return self._handle_there(plan, other_machine)
        self._spawner.prepare(plan)
        workers = self._spawner.records(scratch, plan.node_count).workers
        states = self._spawner.states(scratch, [worker or {} for worker in workers])
        nodes = []
        for node, worker in enumerate(workers):
            is_lost = worker is not None and states[node] == "lost"
            nodes.append(self._spawner.spawn(plan, node, ()) if is_lost else receipt(worker or {}))
        return _handle(scratch, nodes, self._machine)

    def _start(self, plan: LaunchPlan, locks: Mapping[int, Sequence[int]]) -> list[dict[str, int]]:
        workers = self._spawner.records(Path(plan.scratch), plan.node_count).workers
        return [
            self._spawn(plan, node, locks.get(node, ())) if worker is None else receipt(worker)
            for node, worker in enumerate(workers)
        ]

    def _spawn(self, plan: LaunchPlan, node: int, locks: Sequence[int]) -> dict[str, int]:
        """Start a node with its locks, and with the sockets that its script serves at."""
        with ExitStack() as stack:
            descriptors = list(locks)
            for service in plan.services:
                if service.socket and node == 0:
                    listener = unix_sockets.listen(Path(service.socket))
                    if listener is not None:  # else a start that began before has it
                        descriptors.append(stack.enter_context(listener).fileno())
            return self._spawner.spawn(plan, node, descriptors)

    def _handle_there(self, plan: LaunchPlan, machine: str) -> Handle:
        """Of an attempt whose server died before it stored the handle; launches nothing."""
        scratch = Path(plan.scratch)
        workers = self._spawner.records(scratch, plan.node_count).workers
        return _handle(scratch, [receipt(worker or {}) for worker in workers], machine)

    def _other_machine(self, scratch: Path) -> str:
        """The machine that nodes of the attempt were started on, if it is not seen from here."""
        machine = self._spawner.machine(scratch) if self._machine else ""
        return "" if not machine or machines.is_seen(machine, self._machine) else machine

    def _take(self, plan: LaunchPlan, missing: Sequence[int]) -> list[LockedDevice] | None:
        """The devices of the nodes that are still to be started; None when too few are free."""
        count = plan.gpus_per_node * len(missing)
        if not count:
            return []
        device_locks = self._devices.take(count, f"job {plan.job} of workspace {plan.workspace}")
        return device_locks or None

    def _assign(
        self,
        plan: LaunchPlan,
        records: Records,
        missing: Sequence[int],
        device_locks: Sequence[LockedDevice],
    ) -> list[list[DevicePlan]]:
        """The devices of each node; empty on a machine without any."""
        if not self._devices.devices:
            return []
        devices = [list(node) for node in records.devices]
        count = plan.gpus_per_node
        for index, node in enumerate(missing):
            devices[node] = [
                DevicePlan(lock.device.kind, lock.device.index, lock.device.uuid)
                for lock in device_locks[index * count : (index + 1) * count]
            ]
        return devices

    def _without_starting(self, scratch: Path, count: int, missing: Sequence[int]) -> list[int]:
        """Those of the missing nodes whose worker does not record itself soon after all."""
        deadline = time.monotonic() + _WORKER_START_LIMIT_S
        while True:
            records = self._spawner.records(scratch, count)
            left = [node for node in missing if records.workers[node] is None]
            starting = any(records.begun[node] for node in left)
            if not starting or time.monotonic() > deadline:
                return left
            time.sleep(_POLL_S)

    def status(self, handle: Handle) -> Status:
        scratch, nodes = Path(handle.body["scratch"]), handle.body["nodes"]
        if not self._sees(handle):
            return Status(tuple(self._spawner.reported_states(scratch, len(nodes))), False)
        return Status(tuple(self._spawner.states(scratch, nodes)))

    def _sees(self, handle: Handle) -> bool:
        return not self._machine or machines.is_seen(handle.machine, self._machine)

    def stop(self, handle: Handle, grace_s: float) -> None:
        if not self._sees(handle):
            return  # its number may be another process's here; the stop request reaches it
        if grace_s > 0:
            self._signal(handle, signal.SIGTERM)
            if not self.status(handle).over:
                args = (handle, grace_s)
                threading.Thread(target=self._kill_later, args=args, daemon=True).start()
        else:
            self._signal(handle, signal.SIGKILL)

    def _signal(self, handle: Handle, signum: int) -> None:
        self._spawner.signal(Path(handle.body["scratch"]), handle.body["nodes"], signum)

    def _kill_later(self, handle: Handle, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        while not self.status(handle).over:
            if time.monotonic() >= deadline:
                self._signal(handle, signal.SIGKILL)
                return
            time.sleep(_POLL_S)


def _handle(
    scratch: Path, nodes: list[dict[str, int]], machine: str, devices: Any = None
) -> Handle:
    body: dict[str, Any] = {"scratch": str(scratch), "nodes": nodes}
    if devices is not None:
        body["devices"] = devices
    if machine:
        body["machine"] = machine
    return Handle(NAME, body)


def _taken(plan: LaunchPlan, begun: bool) -> DevicesTaken:
    count = plan.gpus_per_node * plan.node_count
    return DevicesTaken(f"needs {count} GPUs of this machine, and others took them first", begun)


def _by_node(
    device_locks: Sequence[LockedDevice], nodes: Sequence[int], count: int
) -> dict[int, list[int]]:
    """The open locks that each node inherits."""
    return {
        node: [lock.descriptor for lock in device_locks[index * count : (index + 1) * count]]
        for index, node in enumerate(nodes)
    }


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
