"""What runs on a host, with a server that answers what the test says and a `ray` that only waits.

It is started as ssh starts it: its text by standard input, in a Python without torchyard.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eventually import LIMIT_S
from node_agent.test_agent import RAY, Server, pid_of, wait_for
from node_agent.test_agent import server as server
from torchyard.base.home.uv import find_uv
from torchyard.cli.hosts import carried, ssh
from torchyard.executors.ray.ray_environment import RayVersion
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import locks, processes


class HostSide:
    """A machine with a home of its own, where a node was before in parts."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.has_uv = True
        self.node = home / ".torchyard" / "node"
        self._running: list[subprocess.Popen[bytes]] = []

    def install_ray(self) -> None:
        environment = self.node / "engines" / RayVersion().folder
        (environment / "bin").mkdir(parents=True)
        (environment / "torchyard-complete").touch()
        program = environment / "bin" / "ray"
        program.write_text(RAY)
        program.chmod(0o755)

    def start(self, request: dict[str, Any]) -> subprocess.Popen[bytes]:
        program, agent = carried.host_program(), carried.agent_zip()
        line = json.dumps({**request, "agent_bytes": len(agent)}).encode()
        path = f"{os.environ['PATH']}:{os.path.dirname(find_uv())}" if self.has_uv else "/bin"
        environ = {"HOME": str(self.home), "PATH": path}
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ssh._START],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
        )
        assert process.stdin is not None
        process.stdin.write(b"%d\n%b%b\n%b" % (len(program), program, line, agent))
        process.stdin.flush()
        self._running.append(process)
        return process

    def close(self) -> None:
        for process in self._running:
            process.communicate()
        self.run({"action": "leave"})

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The last line of a program that gets nothing more."""
        out, _ = self.start(request).communicate(timeout=LIMIT_S)
        reply: dict[str, Any] = json.loads(out.splitlines()[-1].removeprefix(b"torchyard "))
        return reply

    def started(self) -> str:
        return "".join(file.read_text() for file in self.home.glob("started-*"))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostSide]:
    made = HostSide(tmp_path / "home")
    made.home.mkdir()
    yield made
    made.close()


def request_to(*urls: str) -> dict[str, Any]:
    return {
        "action": "join",
        "server_urls": urls,
        "certificate": "",
        "token": "yard_m_x",
        "workspace": "default",
        "compute": "machines",
        "name": "lab",
        "address": "127.0.0.9",
        "ray": {"version": RayVersion().ray, "python": RayVersion().python},
    }


def read(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    reply: dict[str, Any] = json.loads(process.stdout.readline().removeprefix(b"torchyard "))
    return reply


def test_a_host_joins_stays_without_the_connection_and_leaves(
    host: HostSide, server: Server
) -> None:
    host.install_ray()
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{closed.getsockname()[1]}"
        process = host.start(request_to(dead, server.url))
        assert read(process) == {"started": {"address": "127.0.0.9"}}
    out, _ = process.communicate(b"keep\n", timeout=LIMIT_S)
    assert b'"done"' in out and process.returncode == 0
    ray = pid_of(wait_for(host.started))
    # What jobs bring goes with the node.
    assert f"TORCHYARD_NODE_FOLDER={host.node}/jobs\n" in host.started()
    brought = host.node / "jobs" / "environments"
    brought.mkdir(parents=True)
    (brought / "file").touch()
    brought.chmod(0o500)
    record = json.loads((host.node / "agent.json").read_text())
    assert processes.is_running(record["pid"], record["start_time"])
    assert host.run(request_to(server.url))["error"].startswith("it is a node already")

    assert host.run({"action": "leave"}) == {"done": {"left": True}}
    assert processes_of_session(ray) == []
    assert not processes.is_running(record["pid"], record["start_time"])
    assert [entry.name for entry in host.node.iterdir()] == ["engines"]
    assert host.run({"action": "leave"}) == {"done": {"left": False}}


def test_a_connection_that_ends_before_it_is_kept_undoes_all(
    host: HostSide, server: Server
) -> None:
    host.install_ray()
    process = host.start(request_to(server.url))
    assert "started" in read(process)
    ray = pid_of(wait_for(host.started))
    process.communicate(timeout=LIMIT_S)  # as when ssh is killed
    wait_for(lambda: not processes_of_session(ray))
    assert [entry.name for entry in host.node.iterdir()] == ["engines"]


def test_a_host_without_a_way_back_has_nothing_left(host: HostSide) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        reply = host.run(request_to(url))
    assert "no way back to the server" in reply["error"] and f"curl -k {url}/livez" in reply["hint"]
    assert list(host.home.iterdir()) == []


def test_a_uv_that_does_not_run_there_is_told(host: HostSide, server: Server) -> None:
    host.has_uv = False
    process = host.start(request_to(server.url))
    assert read(process)["need"] == "uv"
    out, _ = process.communicate(b'{"bytes": 4}\nnope', timeout=LIMIT_S)
    reply = json.loads(out.splitlines()[-1].removeprefix(b"torchyard "))
    assert "does not run there" in reply["error"] and "docs.astral.sh/uv" in reply["hint"]
    assert list(host.home.iterdir()) == []


def test_what_the_server_refuses_is_told(host: HostSide, server: Server) -> None:
    server.removed = True
    process = host.start(request_to(server.url))
    assert process.stdout is not None
    reply = json.loads(process.stdout.readlines()[-1].removeprefix(b"torchyard "))
    assert reply["error"] == "the node's program ended: gone"
    assert list(host.home.iterdir()) == []


def test_a_node_that_was_joined_by_hand_is_left_alone(host: HostSide, server: Server) -> None:
    host.install_ray()
    with locks.hold(host.node / "agent.lock"):
        reply = host.run(request_to(server.url))
    assert "`yard node join` runs there" in reply["error"]
    assert sorted(entry.name for entry in host.node.iterdir()) == ["agent.lock", "engines"]
