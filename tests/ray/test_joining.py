"""Machines join with `yard node join`, train, are drained, unplugged and leave: all for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ray.ray_cluster import wait_until
from torchyard.executors.ray.ray_environment import RayEnvironment, RayVersion
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import processes

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1800)]
_YARD = str(Path(sys.executable).with_name("yard"))
# Says where it is, then trains until it is told to end.
_SCRIPT = """
import os, pathlib, sys, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], flush=True)
pathlib.Path("outputs", "rank-" + os.environ["RANK"]).write_text("here")
if os.environ.get("LONG") and os.environ["TORCHYARD_ATTEMPT_NUMBER"] == "1":
    time.sleep(300)
"""


class Site:
    """A server that others reach, and machines that join it, each with a folder of its own."""

    def __init__(self, folder: Path, environment: RayEnvironment) -> None:
        self.folder = folder
        self.home = folder / "h"
        self._engines = environment.folder.parent
        self._machines: dict[str, subprocess.Popen[bytes]] = {}
        self.home.mkdir(mode=0o700)
        self._share_ray(self.home)
        self.yard("server", "start", "--listen", "--jobs-as-server-user")

    @property
    def url(self) -> str:
        return str(json.loads((self.home / "server.json").read_text())["url"])

    def yard(self, *words: str) -> str:
        return self._run(self.home, *words)

    def json(self, *words: str) -> Any:
        return json.loads(self.yard(*words, "-o", "json"))

    def _run(self, home: Path, *words: str) -> str:
        ended = subprocess.run(
            [_YARD, *words],
            env=self._variables(home),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def _variables(self, home: Path) -> dict[str, str]:
        return {
            **os.environ,
            "TORCHYARD_HOME": str(home),
            "TORCHYARD_NODE_FOLDER": str(home / "node"),
            "HOME": str(home),
        }

    def _share_ray(self, engines: Path) -> None:
        """What is installed already is not installed for each."""
        (engines / "engines").mkdir()
        name = RayVersion().folder
        (engines / "engines" / name).symlink_to(self._engines / name)

    def join(self, name: str) -> None:
        home = self.folder / name
        if not home.exists():
            (home / "node").mkdir(parents=True, mode=0o700)
            self._share_ray(home / "node")
        words = [_YARD, "node", "join", self.url]
        with open(home / "agent.log", "ab") as log:
            self._machines[name] = subprocess.Popen(
                [*words, "--name", name, "--token-file", self.home / "token"],
                env=self._variables(home),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        wait_until(lambda: self.states().get(name) == "joined", 90, f"{name} has joined")

    def states(self) -> dict[str, str]:
        return {machine["name"]: machine["state"] for machine in self.json("node", "list")}

    def machines(self) -> int:
        """How many Ray has; none while its head is being started."""
        try:
            return len(self.json("compute", "list-nodes", "-n", "machines"))
        except AssertionError:
            return 0

    def submit(self, name: str, nodes: int, **variables: str) -> None:
        code = self.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(_SCRIPT)
        document = {
            "name": name,
            "command": "python train.py",
            "code": str(code),
            "environment": "azureml:python@latest",
            "compute": "azureml:machines",
            "resources": {"instance_count": nodes},
            "distribution": {"type": "pytorch", "process_count_per_instance": 1},
            "environment_variables": variables,
            "properties": {"torchyard.retry.max_attempts": 2, "torchyard.retry.backoff_s": 0},
        }
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(document))
        self.yard("job", "create", "-f", str(file))

    def status(self, name: str) -> str:
        return str(self.json("job", "show", "-n", name)["status"])

    def wait_for(self, name: str, status: str, limit_s: float = 90) -> None:
        wait_until(lambda: self.status(name) == status, limit_s, f"{name} is {status}")

    def unplug(self, name: str) -> None:
        """Kill the agent and all of Ray there at once, as a power cut does."""
        agent = self._machines.pop(name)
        below = _below(agent.pid)
        for pid in [agent.pid, *below]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        agent.wait()
        for leader in below:
            for process in processes_of_session(leader):
                processes.send(process.pid, process.start_time, signal.SIGKILL)

    def close(self) -> None:
        for agent in self._machines.values():
            agent.send_signal(signal.SIGTERM)
        for agent in self._machines.values():
            agent.wait(100)
        self.yard("server", "stop")
        for file in self.home.glob("engines/heads/*/head.json"):
            head = json.loads(file.read_text())
            for process in processes_of_session(head["pid"]):
                processes.send(process.pid, process.start_time, signal.SIGKILL)


def _below(ancestor: int) -> list[int]:
    """The processes below this one, parents first: `yard node join` runs its agent in a child."""
    found = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    parents = {each.pid: each.parent for each in map(processes.read, found) if each is not None}
    below = [ancestor]
    for parent in below:
        below += [pid for pid, of in parents.items() if of == parent]
    return below[1:]


@pytest.fixture
def site(ray_environment: RayEnvironment) -> Iterator[Site]:
    # The paths of Ray's sockets are short.
    with tempfile.TemporaryDirectory(prefix="ty-j") as folder:
        made = Site(Path(folder), ray_environment)
        try:
            yield made
        finally:
            made.close()


def test_machines_join_train_are_unplugged_drained_and_leave(site: Site) -> None:
    site.join("one")
    site.join("two")
    wait_until(lambda: site.machines() == 2, 60, "Ray has both machines")

    site.submit("both", 2)
    site.wait_for("both", "Completed")
    output = site.yard("job", "stream", "-n", "both")
    assert "rank 0 of 2" in output and "rank 1 of 2" in output

    # One is unplugged in the middle, and comes back.
    site.submit("long", 2, LONG="1")
    site.wait_for("long", "Running")
    written = "until grep -s here outputs/rank-1; do sleep 0.2; done"
    words = ("job", "shell", "long", "--rank", "1", "--", "sh", "-c", written)
    assert site.yard(*words) == "here\n"
    site.unplug("two")
    site.join("two")
    site.wait_for("long", "Completed", 150)

    site.yard("node", "drain", "one")
    site.yard("node", "drain", "two")
    site.submit("waiting", 1)
    wait_until(lambda: site.status("waiting") == "Provisioning", 30, "it waits for a machine")
    # What waits goes to the machine that takes jobs again.
    site.yard("node", "drain", "two", "--undo")
    site.wait_for("waiting", "Completed")

    agent = site._machines["one"]
    site.yard("node", "leave", "one", "--yes")
    assert agent.wait(100) == 0
    assert list(site.states()) == ["two"]

    # The head ends with its cluster, and the agent with its machine's.
    head = json.loads(next(site.home.glob("engines/heads/*/head.json")).read_text())
    site.yard("compute", "delete", "-n", "machines", "--yes")
    wait_until(
        lambda: not processes.is_running(head["pid"], head["start_time"]), 40, "the head has ended"
    )
