"""Start workers and look after their processes: as this process's own user, or through the runner.

Owns: the interface, and both implementations.
Leaves: devices, and which nodes are missing, to local.py; the runner's side to runner/.
Always: whichever it is, the files of an attempt are read and written only here.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torchyard.base import files
from torchyard.executors.bundle import worker_zip
from torchyard.executors.fork_server import ForkServer
from torchyard.executors.runner_client import RunnerClient, RunnerRefused
from torchyard.shared import processes
from torchyard.shared.node_records import NodeRecords, State, receipt
from torchyard.shared.plan import DevicePlan, LaunchPlan

_MACHINE_FILE = "machine"


@dataclass(frozen=True)
class Records:
    """What an attempt's folder says, by node: its worker's record, whether a start has begun, the
    devices that an earlier launch gave it.
    """

    workers: tuple[Mapping[str, Any] | None, ...]
    begun: tuple[bool, ...]
    devices: tuple[tuple[DevicePlan, ...], ...]


class Spawner(Protocol):
    """Start workers; `scratch` is the folder of the attempt, `launched` a receipt for each node."""

    def prepare(self, plan: LaunchPlan) -> None:
        """Make the folder, with the plan in it."""
        ...

    def spawn(self, plan: LaunchPlan, node: int, locks: Sequence[int]) -> dict[str, int]:
        """Start the worker of a node; pid and start_time."""
        ...

    def records(self, scratch: Path, node_count: int) -> Records: ...

    def states(self, scratch: Path, launched: Sequence[Mapping[str, Any]]) -> list[State]: ...

    def reported_states(self, scratch: Path, node_count: int) -> list[State]:
        """The states on another machine, by the files alone."""
        ...

    def signal(self, scratch: Path, launched: Sequence[Mapping[str, Any]], signum: int) -> None: ...

    def machine(self, scratch: Path) -> str:
        """Where the attempt was launched, as `note_machine` wrote it."""
        ...

    def note_machine(self, scratch: Path, machine: str) -> None: ...


class DirectSpawner:
    """Workers are forked by a child of this process, and run as its user.

    Args:
        home: where the worker's zip is kept.
        python: what runs the worker.
        environ: what workers get.
    """

    def __init__(self, home: Path, environ: Mapping[str, str], python: str) -> None:
        self._home = home
        self._fork_server = ForkServer(python, environ)
        self._zip: Path | None = None

    def prepare(self, plan: LaunchPlan) -> None:
        scratch = Path(plan.scratch)
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.write_atomically(scratch / "plan.json", mode=0o600) as file:
            file.write(plan.to_json().encode())

    def spawn(self, plan: LaunchPlan, node: int, locks: Sequence[int]) -> dict[str, int]:
        scratch = Path(plan.scratch)
        folder = scratch / f"node-{node}"
        folder.mkdir(mode=0o700, exist_ok=True)
        return self._fork_server.fork(
            self._worker_zip(), scratch / "plan.json", node, folder / "worker.log", locks
        )

    def records(self, scratch: Path, node_count: int) -> Records:
        files = NodeRecords(str(scratch))
        return Records(
            tuple(files.worker(node) for node in range(node_count)),
            tuple(files.has_begun(node) for node in range(node_count)),
            _devices(files.devices(node_count)),
        )

    def states(self, scratch: Path, launched: Sequence[Mapping[str, Any]]) -> list[State]:
        files = NodeRecords(str(scratch))
        return [files.state(node, process) for node, process in enumerate(launched)]

    def reported_states(self, scratch: Path, node_count: int) -> list[State]:
        files = NodeRecords(str(scratch))
        return [files.reported_state(node) for node in range(node_count)]

    def signal(self, scratch: Path, launched: Sequence[Mapping[str, Any]], signum: int) -> None:
        files = NodeRecords(str(scratch))
        for node, process in enumerate(launched):
            if signum == signal.SIGTERM:
                files.note_stop(node)
            target = receipt(files.worker(node) or process)
            processes.send(target["pid"], target["start_time"], signum)

    def machine(self, scratch: Path) -> str:
        # The folder may have been made by a server that died before it launched anything.
        return _noted_machine(scratch) if any(scratch.glob("node-*/worker.json")) else ""

    def note_machine(self, scratch: Path, machine: str) -> None:
        (scratch / _MACHINE_FILE).write_text(machine)

    def _worker_zip(self) -> Path:
        if self._zip is None or not self._zip.exists():
            self._zip = worker_zip(self._home)
        return self._zip


class RunnerSpawner:
    """Workers are started by the runner, as the Unix account of the plan's person.

    Args:
        home: the server's own folder, which no job can enter; keeps the worker's zip, and on which
            machine attempts were launched.
    """

    def __init__(self, home: Path, runner: RunnerClient) -> None:
        self._home = home
        self._runner = runner
        self._worker = ""

    def prepare(self, plan: LaunchPlan) -> None:
        pass  # the runner makes the folder with the first node

    def spawn(self, plan: LaunchPlan, node: int, locks: Sequence[int]) -> dict[str, int]:
        for _ in range(2):
            if not self._worker:
                self._worker = self._send_worker()
            try:
                return receipt(
                    self._runner.call(
                        "launch",
                        locks,
                        attempt=plan.attempt_id,
                        node=node,
                        person=plan.person,
                        worker=self._worker,
                        plan=plan.to_json(),
                        limits=plan.node_limits,
                    )
                )
            except RunnerRefused as refusal:
                if refusal.code != "no_worker":
                    raise
                self._worker = ""  # somebody cleared the node folder
        raise RunnerRefused("the runner does not keep the worker's program")

    def records(self, scratch: Path, node_count: int) -> Records:
        body = self._runner.call("records", attempt=scratch.name, count=node_count)
        return Records(
            tuple(body["workers"]), tuple(map(bool, body["begun"])), _devices(body["devices"])
        )

    def states(self, scratch: Path, launched: Sequence[Mapping[str, Any]]) -> list[State]:
        states = self._runner.call("states", attempt=scratch.name, count=len(launched))["states"]
        assert len(states) == len(launched)
        return list(states)

    def reported_states(self, scratch: Path, node_count: int) -> list[State]:
        return ["running"] * node_count  # its runner is asked by the servers over there

    def signal(self, scratch: Path, launched: Sequence[Mapping[str, Any]], signum: int) -> None:
        for node in range(len(launched)):
            self._runner.call("signal", attempt=scratch.name, node=node, signal=int(signum))

    def machine(self, scratch: Path) -> str:
        return _noted_machine(self._own_folder(scratch))

    def note_machine(self, scratch: Path, machine: str) -> None:
        folder = self._own_folder(scratch)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / _MACHINE_FILE).write_text(machine)

    def _own_folder(self, scratch: Path) -> Path:
        return self._home / "scratch" / scratch.name

    def _send_worker(self) -> str:
        with open(worker_zip(self._home), "rb") as file:
            return str(self._runner.call("keep_worker", [file.fileno()])["worker"])


def _noted_machine(folder: Path) -> str:
    try:
        return (folder / _MACHINE_FILE).read_text()
    except FileNotFoundError:
        return ""


def _devices(nodes: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[tuple[DevicePlan, ...], ...]:
    return tuple(tuple(DevicePlan(**device) for device in node) for node in nodes)
