"""A machine that shares nothing with the server's: joined, trained on, unplugged, drained, left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end import namespaces
from ray.own_machine import USER_ID, OwnMachine
from ray.ray_cluster import lend_environment, wait_until
from torchyard.executors.ray.ray_environment import RayEnvironment
from torchyard.executors.server_for_nodes import own_addresses
from torchyard.node_agent import port_probe
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import processes

_WHY_NOT = namespaces.why_not()
pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "they can be made"),
]
_YARD = str(Path(sys.executable).with_name("yard"))
# A line fitted by gradient descent, with a checkpoint after each step.
_TRAIN = """
import json, os, pathlib, socket, sys, time
state = pathlib.Path("outputs", "state.json")
saved = json.loads(state.read_text()) if state.exists() else {"step": 0, "a": 0.0, "b": 0.0}
print("host", socket.gethostname(), "user", os.getuid(), "from step", saved["step"], flush=True)
print("sees the server", os.path.exists(sys.argv[2]), flush=True)
points = [(x / 10, 3 * x / 10 + 1) for x in range(-10, 11)]
step, a, b = saved["step"], saved["a"], saved["b"]
while step < int(sys.argv[1]):
    for x, y in points:
        error = a * x + b - y
        a, b = a - 0.1 * error * x, b - 0.1 * error
    step += 1
    draft = state.with_name("draft")
    draft.write_text(json.dumps({"step": step, "a": a, "b": b}))
    draft.replace(state)
    time.sleep(0.2)
print("line %.2f %.2f" % (a, b), flush=True)
"""


class Site:
    """A server that other machines reach, and one machine that shares nothing with it."""

    def __init__(self, folder: Path, network: namespaces.Site, environment: RayEnvironment) -> None:
        self.folder = folder
        self.home = folder / "h"
        self.home.mkdir(mode=0o700)
        lend_environment(self.home, environment)
        self.yard("server", "start", "--listen", "--jobs-as-server-user")
        self.machine = OwnMachine(folder, network, 0, [environment.folder.resolve()])
        # What is installed already is not installed again: it has no way to a package index.
        node = self.machine.home / "node"
        lend_environment(node, environment)
        for made in (node, node / "engines"):
            os.chown(made, USER_ID, USER_ID)
        self.port = int((self.home / "tls-port").read_text())
        self._url = f"https://{own_addresses()[0]}:{self.port}"
        self.network = network
        self.agent: subprocess.Popen[bytes] | None = None

    def yard(self, *words: str) -> str:
        ended = subprocess.run(
            [_YARD, *words],
            env={**os.environ, "TORCHYARD_HOME": str(self.home), "HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.yard(*words, "-o", "json"))

    def join(self) -> None:
        machine = self.machine
        token = machine.give("token", (self.home / "token").read_text())
        trusted = machine.give("ca.pem", (self.home / "tls" / "ca.pem").read_text())
        words = [_YARD, "node", "join", self._url, "--name", "far", "--token-file", token]
        environ = {"TORCHYARD_NODE_FOLDER": "/home/ada/node"}
        log = self.folder / "agent.log"
        self.agent = machine.start([*words, "--ca-cert", trusted], log, environ)

    def state(self) -> str:
        return {each["name"]: str(each["state"]) for each in self.json("node", "list")}.get(
            "far", ""
        )

    def submit(self, name: str, steps: int) -> None:
        code = self.folder / "code"
        code.mkdir(exist_ok=True)
        (code / "train.py").write_text(_TRAIN)
        document = {
            "name": name,
            "command": f"python train.py {steps} {self.home}",
            "code": str(code),
            "environment": "azureml:python@latest",
            "compute": "azureml:machines",
            "properties": {"torchyard.retry.max_attempts": 3, "torchyard.retry.backoff_s": 0},
        }
        file = self.folder / f"{name}.json"
        file.write_text(json.dumps(document))
        self.yard("job", "create", "-f", str(file))

    def job(self, name: str) -> Any:
        return self.json("job", "show", "-n", name)

    def wait_for(self, name: str, status: str, limit_s: float = 200) -> Any:
        wait_until(lambda: self.job(name)["status"] == status, limit_s, f"{name} is {status}")
        return self.job(name)

    def ranks(self) -> list[int]:
        """What runs of jobs on the machine, of its user."""
        chosen = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _is_rank(entry):
                chosen.append(int(entry.name))
        return chosen

    def close(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.agent.kill()  # and all that runs there with it
            self.agent.wait(60)
        self.yard("server", "stop")
        for file in self.home.glob("engines/heads/*/head.json"):
            head = json.loads(file.read_text())
            for process in processes_of_session(head["pid"]):
                processes.send(process.pid, process.start_time, signal.SIGKILL)


def _is_rank(entry: Path) -> bool:
    try:
        return entry.stat().st_uid == USER_ID and b"train.py" in (entry / "cmdline").read_bytes()
    except OSError:
        return False


def _without(port: int, first: int, last: int) -> list[tuple[int, int]]:
    """The ranges that a range is without a port."""
    if not first <= port <= last:
        return [(first, last)]
    return [(low, high) for low, high in ((first, port - 1), (port + 1, last)) if low <= high]


@pytest.fixture
def site(ray_environment: RayEnvironment, tmp_path: Path) -> Iterator[Site]:
    # The paths of Ray's sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="ty-o"))
    with namespaces.Site(tmp_path, 1) as network:
        made = Site(folder, network, ray_environment)
        try:
            yield made
        finally:
            made.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_machine_with_its_own_root_joins_trains_is_unplugged_drained_and_leaves(
    site: Site,
) -> None:
    # Its firewall lets nothing in that Ray would open from the server's machine.
    first, last = port_probe.port_range()
    for low, high in _without(site.port, first, last):
        site.network.prohibit(0, low, high)
    site.join()
    assert site.agent is not None
    site.agent.wait(300)
    log = (site.folder / "agent.log").read_text()
    assert "error: the server's machine can't connect to `far` at " in log, log
    assert f"to ports {first} to {last} of `far`" in log and site.json("node", "list") == []
    site.network.mend()

    site.join()
    wait_until(lambda: site.state() == "joined", 120, "it has joined")

    site.submit("first", 20)
    site.wait_for("first", "Completed")
    output = site.yard("job", "stream", "-n", "first")
    assert f"host far user {USER_ID} from step 0" in output and "sees the server False" in output
    assert "line 3.00 1.00" in output
    assert not list((site.machine.home / "node" / "scratch").iterdir())

    # The cable is pulled in the middle, for longer than every time-out, and put back.
    site.submit("second", 200)
    site.wait_for("second", "Running")
    wait_until(lambda: len(site.ranks()) == 1, 30, "it trains")
    site.machine.plug(False)
    wait_until(lambda: site.state() == "away", 90, "it is unreachable")
    wait_until(lambda: site.job("second")["attempt"] == 2, 240, "its attempt is given up")
    site.machine.plug(True)
    wait_until(lambda: site.state() == "joined", 120, "it is back")
    site.wait_for("second", "Completed", 300)
    assert "line 3.00 1.00" in site.yard("job", "stream", "-n", "second")
    assert not site.ranks()

    site.yard("node", "drain", "far")
    site.submit("third", 1)
    site.wait_for("third", "Provisioning", 60)
    site.yard("node", "drain", "far", "--undo")
    site.wait_for("third", "Completed")

    agent = site.agent
    assert agent is not None
    site.yard("node", "leave", "far", "--yes")
    assert agent.wait(120) == 0
    assert site.json("node", "list") == []
