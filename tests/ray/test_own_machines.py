"""Machines that share nothing with the server's: joined, trained on, unplugged, drained, left."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from end_to_end import namespaces
from end_to_end.shared_torch import kept_or_temporary
from end_to_end.yard_under_test import REPOSITORY
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
    """A server that other machines reach, and machines that share nothing with it or each other."""

    def __init__(self, folder: Path, network: namespaces.Site, environment: RayEnvironment) -> None:
        self.folder = folder
        self.home = folder / "h"
        self.home.mkdir(mode=0o700)
        lend_environment(self.home, environment)
        self.yard("server", "start", "--listen", "--jobs-as-server-user")
        programs = [environment.folder.resolve()]
        self.machines = [
            OwnMachine(folder, network, number, programs) for number in range(len(network.names))
        ]
        for machine in self.machines:
            # What is installed already is not installed again: it has no way to a package index.
            node = machine.home / "node"
            lend_environment(node, environment)
            for made in (node, node / "engines"):
                os.chown(made, USER_ID, USER_ID)
        self.port = int((self.home / "tls-port").read_text())
        self._address = own_addresses()[0]
        self._lines: dict[str, str] = {}
        self.network = network
        self.agents: dict[str, subprocess.Popen[bytes]] = {}

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

    def join(self, machine: OwnMachine) -> subprocess.Popen[bytes]:
        """Switch a machine on, and type there what the server's machine printed for it."""
        if machine.name not in self._lines:
            invited = self.json("node", "invite", machine.name, "--address", self._address)
            self._lines[machine.name] = invited["line"]
        variable, yard, *words = shlex.split(self._lines[machine.name])
        assert yard == "yard"
        environ = {"TORCHYARD_NODE_FOLDER": "/home/ada/node", **dict([variable.split("=", 1)])}
        agent = machine.start([_YARD, *words], self.log_of(machine), environ)
        self.agents[machine.name] = agent
        return agent

    def log_of(self, machine: OwnMachine) -> Path:
        return self.folder / f"{machine.name}.log"

    def state(self, machine: OwnMachine) -> str:
        states = {each["name"]: str(each["state"]) for each in self.json("node", "list")}
        return states.get(machine.name, "")

    def wait_for_machine(self, machine: OwnMachine, state: str) -> None:
        goal = f"{machine.name} is {state}"
        try:
            wait_until(lambda: self.state(machine) == state, 120, goal)
        except AssertionError:
            print(self.log_of(machine).read_text())
            raise

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
        for agent in self.agents.values():
            if agent.poll() is None:
                agent.kill()  # and all that runs there with it
                agent.wait(60)
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


@contextmanager
def _site_of(machines: int, environment: RayEnvironment, folder: Path) -> Iterator[Site]:
    # The paths of Ray's sockets are short.
    short = Path(tempfile.mkdtemp(prefix="ty-o"))
    with namespaces.Site(folder, machines) as network:
        made = Site(short, network, environment)
        try:
            yield made
        finally:
            made.close()
    shutil.rmtree(short, ignore_errors=True)


def test_a_machine_with_its_own_root_joins_trains_is_unplugged_drained_and_leaves(
    ray_environment: RayEnvironment, tmp_path: Path
) -> None:
    with _site_of(1, ray_environment, tmp_path) as site:
        _join_train_unplug_drain_and_leave(site, site.machines[0])


def _join_train_unplug_drain_and_leave(site: Site, machine: OwnMachine) -> None:
    # Its firewall lets nothing in that Ray would open from the server's machine.
    first, last = port_probe.port_range()
    for low, high in _without(site.port, first, last):
        site.network.prohibit(0, low, high)
    site.join(machine).wait(300)
    log = site.log_of(machine).read_text()
    name = machine.name
    assert f"error: the server's machine can't connect to `{name}` at " in log, log
    assert f"to ports {first} to {last} of `{name}`" in log and site.json("node", "list") == []
    site.network.mend()

    agent = site.join(machine)
    site.wait_for_machine(machine, "joined")

    site.submit("first", 20)
    site.wait_for("first", "Completed")
    output = site.yard("job", "stream", "-n", "first")
    assert f"host {name} user {USER_ID} from step 0" in output and "sees the server False" in output
    assert "line 3.00 1.00" in output
    assert not list((machine.home / "node" / "scratch").iterdir())

    # The cable is pulled in the middle, for longer than every time-out, and put back.
    site.submit("second", 200)
    site.wait_for("second", "Running")
    wait_until(lambda: len(site.ranks()) == 1, 30, "it trains")
    machine.plug(False)
    site.wait_for_machine(machine, "away")
    wait_until(lambda: site.job("second")["attempt"] == 2, 240, "its attempt is given up")
    machine.plug(True)
    site.wait_for_machine(machine, "joined")
    site.wait_for("second", "Completed", 300)
    assert "line 3.00 1.00" in site.yard("job", "stream", "-n", "second")
    assert not site.ranks()

    site.yard("node", "drain", name)
    site.submit("third", 1)
    site.wait_for("third", "Provisioning", 60)
    site.yard("node", "drain", name, "--undo")
    site.wait_for("third", "Completed")

    site.yard("node", "leave", name, "--yes")
    assert agent.wait(120) == 0
    assert site.json("node", "list") == []


def test_the_examples_train_on_two_machines_that_share_no_folder(
    ray_environment: RayEnvironment, tmp_path: Path
) -> None:
    examples = tmp_path / "examples"
    shutil.copytree(REPOSITORY / "examples", examples)
    subprocess.run([examples / "fashion_mnist/get_data.sh"], check=True)
    with _site_of(2, ray_environment, tmp_path) as site:
        with kept_or_temporary() as torch:
            environment = torch.lend(site.home)["pip_requirements"]
        for machine in site.machines:
            site.join(machine)
        for machine in site.machines:
            site.wait_for_machine(machine, "joined")
        for example, accuracy in (("digits", 0.9), ("fashion_mnist", 0.8)):
            # Nothing changes but its compute; the environment's versions are the tests'.
            changes = (
                f"name={example}",
                "compute=azureml:machines",
                f"environment.pip_requirements={environment}",
            )
            sets = [word for change in changes for word in ("--set", change)]
            site.yard("job", "create", "-f", str(examples / example / "job.yml"), *sets)
            site.wait_for(example, "Completed", 900)
            printed = site.yard("job", "stream", "-n", example)
            [reached] = re.findall(r"test accuracy ([\d.]+)", printed)
            assert float(reached) > accuracy
