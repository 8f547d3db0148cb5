"""Hosts joined from one place by a real ssh to real sshds: trained on, left, and all that fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ray import ssh_hosts
from ray.ray_cluster import lend_environment, wait_until
from ray.ssh_hosts import SshHosts
from torchyard.base.home.ray_archive import RayArchives
from torchyard.executors.ray.ray_environment import RayEnvironment, RayVersion
from torchyard.executors.server_for_nodes import own_addresses
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import processes

_WHY_NOT = ssh_hosts.why_not()
pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "they can be made"),
]
_YARD = str(Path(sys.executable).with_name("yard"))
_COMMAND = "python -c \"import os; print('rank', os.environ['RANK'], 'at', os.environ['HOME'])\""


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


class Site:
    """A server that others reach, and hosts with an sshd each."""

    def __init__(self, folder: Path, environment: RayEnvironment) -> None:
        self.home = folder / "h"
        self.home.mkdir(mode=0o700)
        self._environment = environment
        lend_environment(self.home, environment)
        self.hosts = SshHosts(folder / "hosts")
        assert self.yard("server", "start", "--listen", "--jobs-as-server-user").code == 0

    def add(self, name: str, address: str) -> Path:
        """A host; the folder of its node."""
        home = self.hosts.add(name, address)
        lend_environment(home / ".torchyard" / "node", self._environment)
        return home / ".torchyard" / "node"

    def yard(self, *words: str) -> Answer:
        environ = {key: os.environ[key] for key in os.environ if not key.startswith("TORCHYARD_")}
        environ["PATH"] = f"{self.hosts.bin}:{environ['PATH']}"
        ended = subprocess.run(
            [_YARD, *words],
            env={**environ, "TORCHYARD_HOME": str(self.home), "HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        return Answer(ended.returncode, ended.stdout, ended.stderr)

    def json(self, *words: str) -> Any:
        answer = self.yard(*words, "-o", "json")
        assert answer.code in (0, 1) and answer.out, answer
        return json.loads(answer.out)

    def create(self, hosts: str, *more: str) -> list[dict[str, Any]]:
        words = ("compute", "create", "--engine", "ray", "--hosts", hosts, *more)
        outcomes = self.json(*words)
        return sorted(outcomes, key=lambda outcome: str(outcome["host"]))

    def machines(self) -> dict[str, str]:
        return {each["name"]: each["state"] for each in self.json("node", "list")}

    def computes(self) -> list[str]:
        return [each["name"] for each in self.json("compute", "list")]

    def close(self) -> None:
        for file in self.hosts.folder.glob("*/.torchyard/node/agent.json"):
            record = json.loads(file.read_text())
            if processes.is_running(record["pid"], record["start_time"]):
                processes.send(record["pid"], record["start_time"], signal.SIGTERM)
                wait_until(
                    lambda: not processes.is_running(record["pid"], record["start_time"]),  # noqa: B023
                    100,
                    "the agent has ended",
                )
        self.hosts.close()
        self.yard("server", "stop")
        for file in self.home.glob("engines/heads/*/head.json"):
            head = json.loads(file.read_text())
            for process in processes_of_session(head["pid"]):
                processes.send(process.pid, process.start_time, signal.SIGKILL)


@pytest.fixture(scope="module")
def site(ray_environment: RayEnvironment) -> Iterator[Site]:
    # The paths of Ray's sockets are short.
    folder = Path(tempfile.mkdtemp(prefix="ty-h"))
    made = Site(folder, ray_environment)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_hosts_join_train_and_leave(site: Site) -> None:
    folders = [site.add("lab-1", "127.0.0.2"), site.add("lab-2", "127.0.0.3")]

    # One of three can't be reached: the others join all the same.
    outcomes = site.create("lab-1,lab-2,nobody.invalid")
    assert [outcome["state"] for outcome in outcomes] == ["joined", "joined", "failed"], outcomes
    assert "its name is not known here" in outcomes[2]["message"]
    assert site.machines() == {"lab-1": "joined", "lab-2": "joined"}
    for folder in folders:
        record = json.loads((folder / "agent.json").read_text())
        command = Path(f"/proc/{record['pid']}/cmdline").read_bytes()
        variables = Path(f"/proc/{record['pid']}/environ").read_bytes()
        logs = b"".join(file.read_bytes() for file in folder.glob("agent*"))
        assert b"yard_m_" not in command + variables + logs
        # Accounts here have no uv: it came from this machine.
        assert os.access(folder / "bin" / "uv", os.X_OK)

    # Again: only those that are missing.
    again = site.create("lab-1,lab-2")
    assert [outcome["state"] for outcome in again] == ["was joined", "was joined"]

    file = site.home / "both.json"
    document = {
        "name": "both",
        "command": _COMMAND,
        "environment": "azureml:python@latest",
        "compute": "azureml:machines",
        "resources": {"instance_count": 2},
        "distribution": {"type": "pytorch", "process_count_per_instance": 1},
    }
    file.write_text(json.dumps(document))
    submitted = site.yard("job", "create", "-f", str(file), "--stream")
    assert submitted.code == 0, submitted
    output = site.yard("job", "stream", "-n", "both").out
    assert "rank 0 at" in output and "rank 1 at" in output

    # One ends by ssh at once, the other with its cluster.
    pids = [json.loads((folder / "agent.json").read_text()) for folder in folders]
    left = site.json("node", "leave", "--host", "lab-1,lab-3.invalid", "--yes")
    states = {outcome["host"]: outcome["state"] for outcome in left}
    assert states == {"lab-1": "left", "lab-3.invalid": "failed"}
    assert not processes.is_running(pids[0]["pid"], pids[0]["start_time"])
    # What was there before is there still, and nothing else.
    assert [entry.name for entry in folders[0].iterdir()] == ["engines"]
    assert site.machines() == {"lab-2": "joined"}
    assert site.yard("compute", "delete", "-n", "machines", "--yes").code == 0
    wait_until(
        lambda: not processes.is_running(pids[1]["pid"], pids[1]["start_time"]), 100, "it ended"
    )


def test_a_host_without_python_uv_and_package_index_gets_them(site: Site) -> None:
    version = RayVersion()
    with RayArchives(site.home) as archives:
        if archives.get(version.ray, version.python) is None:
            pytest.skip("Ray's environment here is made of the system's own Python")
    variables = {"UV_OFFLINE": "1", "UV_PYTHON_PREFERENCE": "only-managed"}
    home = site.hosts.add("offline", "127.0.0.8", variables)
    (outcome,) = site.create("offline", "-n", "offline")
    assert outcome["state"] == "joined", outcome
    assert (home / ".torchyard" / "node" / "engines" / version.folder / "bin" / "ray").exists()
    (left,) = site.json("node", "leave", "--host", "offline", "--compute", "offline", "--yes")
    assert left["state"] == "left"
    assert list(home.iterdir()) == []
    assert site.yard("compute", "delete", "-n", "offline", "--yes").code == 0


def test_a_host_that_fails_is_left_as_it_was(site: Site) -> None:
    home = site.hosts.add("far", "127.0.0.4")
    with socket.socket() as closed:
        closed.bind((own_addresses()[0], 0))
        url = f"https://{own_addresses()[0]}:{closed.getsockname()[1]}"
        (outcome,) = site.create("far", "-n", "away", "--set", f"torchyard.server_urls=[{url}]")
    assert outcome["state"] == "failed" and "no way back to the server" in outcome["message"]
    assert f"`curl -k {url}/livez`" in outcome["hint"]
    assert list(home.iterdir()) == []
    assert "away" not in site.computes()


def test_what_ssh_refuses_is_told_with_what_to_type(site: Site) -> None:
    empty = site.hosts.folder / "no-python"
    empty.mkdir()
    for program in ("sh", "bash"):
        (empty / program).symlink_to(shutil.which(program) or "")
    bare = site.hosts.add("bare", "127.0.0.5", {"PATH": str(empty)})
    site.hosts.add("known", "127.0.0.6")
    with socket.socket() as closed:
        closed.bind(("127.0.0.7", 0))
        site.hosts.alias("shut", "127.0.0.7", closed.getsockname()[1])
        bare_outcome, shut = site.create("bare,shut", "-n", "lab")
    assert "no Python 3.9 or later" in bare_outcome["message"]
    assert "`ssh bare sudo apt-get install python3`" in bare_outcome["hint"]
    assert "no ssh server answers there" in shut["message"] and "host:2222" in shut["hint"]
    assert list(bare.iterdir()) == []

    known_hosts = site.hosts.known.read_text()
    site.hosts.known.write_text("")
    (stranger,) = site.create("known", "-n", "lab")
    assert "host key is not known here" in stranger["message"]
    assert "run `ssh known` once" in stranger["hint"]
    site.hosts.known.write_text(known_hosts)
    site.hosts.use_key("other")
    (refused,) = site.create("known", "-n", "lab")
    assert "does not accept your key" in refused["message"]
    assert "ssh-copy-id known" in refused["hint"]
    assert site.machines() == {} and "lab" not in site.computes()
