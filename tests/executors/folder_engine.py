"""An engine whose nodes are processes of this machine that share no folder with the server.

Owns: starting the bootstrap program with a node folder of its own, and ending it.
Leaves: everything else to the programs under test.
Always: a node gets a `NodeStart` on its standard input and nothing else of the server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.executors import bootstrap_program, bundle
from torchyard.executors.executor import (
    EngineCluster,
    Handle,
    NodeState,
    Status,
)
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.server_for_nodes import ServerForNodes
from torchyard.shared.node_start import NodeStart
from torchyard.shared.plan import LaunchPlan

NAME = "folder"
PROGRAM = Path(bootstrap_program.__file__)


class FolderEngine:
    """
    Args:
        home: the server's.
        folder: of a node; by default all have the same, as on one machine.
        before: words that precede a node's command, such as `ip netns exec …`.
    """

    def __init__(
        self,
        home: Path,
        server: ServerForNodes,
        folder: Callable[[int], Path],
        before: Callable[[int], Sequence[str]] = lambda _: (),
        environ: Mapping[str, str] | None = None,
        address: Callable[[int], str] = lambda node: f"127.0.0.{node + 2}",
        python: str = sys.executable,
    ) -> None:
        self._python = python
        self._home = home
        self._server = server
        self._launches = LaunchFiles(home)
        self._folder = folder
        self._before = before
        self._environ = dict(os.environ if environ is None else environ)
        self._address = address
        self.nodes: dict[str, list[subprocess.Popen[bytes]]] = {}
        self.released: list[str] = []

    def launch(self, plan: LaunchPlan) -> Handle:
        self._launches.keep(plan)
        if plan.attempt_id not in self.nodes:
            self.nodes[plan.attempt_id] = [
                self.start(plan, node) for node in range(plan.node_count)
            ]
        return Handle(NAME, {"attempt": plan.attempt_id})

    def start(self, plan: LaunchPlan, node: int) -> subprocess.Popen[bytes]:
        start = NodeStart(
            attempt_id=plan.attempt_id,
            server_urls=self._server.urls,
            report_token=plan.report_token,
            worker=bundle.sha256_of(bundle.worker_zip(self._home)),
            server_id=plan.server_id,
            server_certificate=self._server.certificate,
            folder=str(self._folder(node)),
        )
        words = [*self._before(node), self._python, str(PROGRAM), "--node", str(node)]
        words += ["--address", self._address(node), "--until-eof"]
        log = open(self._home / f"engine-{plan.attempt_id}-{node}.log", "wb")
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environ, cwd="/"
        )
        log.close()
        assert process.stdin is not None
        process.stdin.write(start.to_json().encode() + b"\n")
        process.stdin.flush()
        return process

    def log(self, attempt_id: str, node: int = 0) -> str:
        return (self._home / f"engine-{attempt_id}-{node}.log").read_text()

    def recover(self, plan: LaunchPlan) -> Handle:
        return Handle(NAME, {"attempt": plan.attempt_id})

    def status(self, handle: Handle) -> Status:
        nodes = self.nodes.get(str(handle.body["attempt"]), [])
        states: list[NodeState] = [_state(node) for node in nodes]
        return Status(tuple(states))

    def stop(self, handle: Handle, grace_s: float) -> None:
        for node in self.nodes.get(str(handle.body["attempt"]), []):
            if node.poll() is None:
                node.send_signal(signal.SIGTERM if grace_s > 0 else signal.SIGKILL)

    def release(self, handle: Handle) -> None:
        attempt = str(handle.body["attempt"])
        self.released.append(attempt)
        self._launches.remove(attempt)

    def describe(self, settings: Mapping[str, Any]) -> EngineCluster:
        return EngineCluster(NAME, "1", ())

    def close(self) -> None:
        for node in [node for nodes in self.nodes.values() for node in nodes]:
            if node.stdin is not None:
                node.stdin.close()
            try:
                node.wait(60)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()


def _state(node: subprocess.Popen[bytes]) -> NodeState:
    code = node.poll()
    if code is None:
        return "running"
    return "exited" if code >= 0 else "lost"
