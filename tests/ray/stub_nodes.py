"""A bootstrap that plays a node's worker, and an engine that uses it.

Owns: what a node did, as lines in a file of a folder.
Leaves: Ray to the real one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from eventually import LIMIT_S, PATIENCE
from ray.ray_cluster import RayCluster
from torchyard.executors.executor import EngineUnreachable, Handle, Status
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.ray.engine import RayEngine
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.shared.plan import LaunchPlan

BOOTSTRAP = """
import json, os, select, signal, sys, time
start = json.loads(sys.stdin.buffer.raw.readline())
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
node = options["--node"]
name = os.path.join(start["folder"], start["attempt_id"] + "." + node)
def write(words):
    with open(name, "a") as file:
        file.write(words + "\\n")
def end(why):
    write("ended by " + why)
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: end("SIGTERM"))
ray = sorted(key for key in os.environ if key.startswith("RAY_"))
write("started %d %s %s %s" % (os.getpid(), options["--address"], options["--devices"], ray))
while True:
    if select.select([0], [], [], 0.05)[0] and not os.read(0, 100):
        end("EOF")
    if os.path.exists(name + ".exit"):
        code, said = open(name + ".exit").read().split(" ", 1)
        write("ended with " + code)
        sys.stderr.write(said)
        sys.exit(int(code))
"""


T = TypeVar("T")


def server(id: str) -> ServerForNodes:
    """One that other machines reach, as far as it knows."""
    return ServerForNodes(id, lambda: NodeAddresses(("https://server.invalid:8766",)))


class Nodes:
    """An engine whose nodes write down what happens to them.

    Args:
        home: where Ray's environment is.
        folder: an empty one for this test's plans and nodes.
    """

    def __init__(self, home: Path, folder: Path, cluster: RayCluster, server: str = "s1") -> None:
        self.folder = folder / "nodes"
        self.folder.mkdir(exist_ok=True)
        self.cluster = cluster
        self.launches = LaunchFiles(folder)
        self._home, self._server = home, server
        self.engine = self.new_engine()

    def new_engine(self) -> RayEngine:
        """As a server that was started again has it."""
        return RayEngine(self._home, os.environ, self.launches, server(self._server), BOOTSTRAP)

    def plan(self, attempt: str, nodes: int = 2, **changes: Any) -> LaunchPlan:
        settings = {**self.cluster.settings, "node_folder": str(self.folder)}
        settings.update(changes.pop("settings", {}))
        return LaunchPlan(
            attempt_id=attempt,
            attempt=1,
            job=f"job-{attempt}",
            workspace="main",
            experiment="e",
            command="true",
            server_url="http://127.0.0.1:9",
            report_token="secret-report-token",
            run_token="secret-run-token",
            scratch="",
            node_count=nodes,
            engine="ray",
            engine_settings=settings,
            **changes,
        )

    def launch(self, plan: LaunchPlan) -> Handle:
        return patiently(lambda: self.engine.launch(plan))

    def lines(self, attempt: str, node: int) -> list[str]:
        file = self.folder / f"{attempt}.{node}"
        return file.read_text().splitlines() if file.exists() else []

    def finish(self, attempt: str, node: int, code: int = 0, words: str = "") -> None:
        (self.folder / f"{attempt}.{node}.exit").write_text(f"{code} {words}")

    def status(self, handle: Handle) -> Status:
        return patiently(lambda: self.engine.status(handle))

    def wait(
        self, handle: Handle, states: tuple[str, ...], limit_s: float = LIMIT_S * PATIENCE
    ) -> Status:
        """Until the nodes are in these states."""
        deadline = time.monotonic() + limit_s
        while True:
            status = self.status(handle)
            has_started = all(
                self.lines(handle.body["attempt"], node)
                for node, state in enumerate(status.nodes)
                if state == "running"
            )
            if status.nodes == states and has_started:
                return status
            assert time.monotonic() < deadline, status
            time.sleep(0.1)


def patiently(ask: Callable[[], T], limit_s: float = LIMIT_S * PATIENCE) -> T:
    """As the server's rounds do: an engine that does not answer is asked again."""
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return ask()
        except EngineUnreachable:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
