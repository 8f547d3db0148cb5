"""An engine whose machines are folders: nodes are processes that share nothing with the server.

It stands in for Ray and Slurm where neither is installed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.executors import bootstrap_program, bundle
from torchyard.executors.executor import (
    EngineCluster,
    EngineNode,
    EngineUnreachable,
    Handle,
    NodeState,
    Status,
)
from torchyard.executors.launch_files import LaunchFiles
from torchyard.shared.node_start import NodeStart
from torchyard.shared.plan import LaunchPlan

NAME = "folder"
_MARK = "FOLDER_MACHINE"


@dataclass
class Machine:
    """`node` is the attempt's node that runs there."""

    folder: Path
    is_alive: bool = True
    attempt_id: str = ""
    node: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.folder.name

    def start(self, attempt_id: str, node: int, start: NodeStart) -> None:
        self.folder.mkdir(exist_ok=True)
        self.attempt_id, self.node = attempt_id, node
        words = [sys.executable, str(bootstrap_program.__file__), "--node", str(node)]
        log = open(self.folder / "engine.log", "ab")
        with log:
            self.process = subprocess.Popen(
                [*words, "--address", "127.0.0.1"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={
                    "PATH": os.environ["PATH"],
                    "HOME": str(self.folder),
                    _MARK: str(self.folder),
                },
                cwd=self.folder,
                start_new_session=True,
            )
        assert self.process.stdin is not None
        with self.process.stdin as opened:
            opened.write(start.to_json().encode() + b"\n")

    def processes(self) -> list[int]:
        """What runs there."""
        mark = f"{_MARK}={self.folder}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    pids.append(int(entry.name))
        return pids

    def die(self) -> None:
        """As if it were switched off."""
        self.is_alive = False
        while alive := self.processes():
            for pid in alive:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.poll()


@dataclass
class _Submitted:
    node_count: int
    start: NodeStart
    settings: Mapping[str, Any]
    machines: list[Machine] = field(default_factory=list)
    states: dict[int, NodeState] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    stop_at: float | None = None
    is_stopped: bool = False


class FolderCluster:
    """What goes on while servers come and go: the machines, and what runs on them.

    Attributes:
        is_reachable: whether it answers servers.
        starts: how many nodes of each attempt were ever started.
        released: the attempts that were let go.
    """

    def __init__(self, folder: Path, machines: int) -> None:
        self.machines = [Machine(folder / f"machine-{k}") for k in range(machines)]
        self.is_reachable = True
        self.starts: dict[str, int] = {}
        self.released: list[str] = []
        self._attempts: dict[str, _Submitted] = {}

    def submit(self, plan: LaunchPlan, start: NodeStart) -> None:
        if plan.attempt_id not in self._attempts:
            self._attempts[plan.attempt_id] = _Submitted(
                plan.node_count, start, plan.engine_settings
            )
        self._place(plan.attempt_id)

    def _place(self, attempt_id: str) -> None:
        """All of an attempt's nodes together, once that many machines are free."""
        attempt = self._attempts[attempt_id]
        free = [machine for machine in self.machines if machine.is_alive and not machine.attempt_id]
        if attempt.machines or attempt.is_stopped or len(free) < attempt.node_count:
            return
        attempt.machines = free[: attempt.node_count]
        for node, machine in enumerate(attempt.machines):
            self.starts[attempt_id] = self.starts.get(attempt_id, 0) + 1
            machine.start(attempt_id, node, attempt.start)

    def status(self, attempt_id: str) -> Status:
        attempt = self._attempts[attempt_id]
        self._place(attempt_id)
        if not attempt.machines:
            state: NodeState = "lost" if attempt.is_stopped else "pending"
            reason = f"waits for {attempt.node_count} free folders"
            return Status((state,) * attempt.node_count, reason=reason)
        self._kill_if_due(attempt)
        for node, machine in enumerate(attempt.machines):
            if attempt.states.get(node) in ("exited", "lost"):
                continue
            assert machine.process is not None
            code = machine.process.poll()
            if not machine.is_alive:
                attempt.states[node] = "lost"
                attempt.lost[node] = f"{machine.name}: the machine does not respond any more"
            elif code is not None:
                attempt.states[node] = "lost" if code < 0 else "exited"
            else:
                attempt.states[node] = "running"
            if attempt.states[node] != "running":
                machine.attempt_id = ""
        states = tuple(attempt.states[node] for node in range(attempt.node_count))
        return Status(states, lost_because=dict(attempt.lost))

    def stop(self, attempt_id: str, grace_s: float) -> None:
        attempt = self._attempts[attempt_id]
        attempt.is_stopped = True
        attempt.stop_at = time.monotonic() + grace_s
        for machine in attempt.machines:
            if machine.attempt_id == attempt_id and machine.process is not None:
                machine.process.send_signal(signal.SIGTERM)
        self._kill_if_due(attempt)

    def _kill_if_due(self, attempt: _Submitted) -> None:
        if attempt.stop_at is None or time.monotonic() < attempt.stop_at:
            return
        for machine in attempt.machines:
            if machine.process is not None and machine.process.poll() is None:
                for pid in machine.processes():
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)

    def nodes(self) -> tuple[EngineNode, ...]:
        return tuple(
            EngineNode(
                machine.name,
                "127.0.0.1",
                "down" if not machine.is_alive else "running" if machine.attempt_id else "idle",
            )
            for machine in self.machines
        )

    def close(self) -> None:
        for machine in self.machines:
            machine.die()


class FolderEngine:
    """One server's way to the cluster."""

    def __init__(self, cluster: FolderCluster, home: Path) -> None:
        self._cluster = cluster
        self._home = home
        self._launches = LaunchFiles(home)

    def launch(self, plan: LaunchPlan) -> Handle:
        self._reach()
        self._launches.keep(plan)
        start = NodeStart(
            plan.attempt_id,
            plan.server_urls,
            plan.report_token,
            bundle.sha256_of(bundle.worker_zip(self._home)),
            plan.server_id,
            plan.server_certificate,
            folder="~/node",
        )
        self._cluster.submit(plan, start)
        return Handle(NAME, {"attempt_id": plan.attempt_id})

    def recover(self, plan: LaunchPlan) -> Handle:
        return Handle(NAME, {"attempt_id": plan.attempt_id})

    def status(self, handle: Handle) -> Status:
        self._reach()
        return self._cluster.status(str(handle.body["attempt_id"]))

    def stop(self, handle: Handle, grace_s: float) -> None:
        self._reach()
        self._cluster.stop(str(handle.body["attempt_id"]), grace_s)

    def describe(self, settings: Mapping[str, Any]) -> EngineCluster:
        self._reach()
        return EngineCluster(NAME, "1", self._cluster.nodes(), len(self._cluster.machines))

    def release(self, handle: Handle) -> None:
        self._reach()
        self._cluster.released.append(str(handle.body["attempt_id"]))

    def close(self) -> None:
        pass

    def _reach(self) -> None:
        if not self._cluster.is_reachable:
            raise EngineUnreachable("the folders do not answer", "wait")
