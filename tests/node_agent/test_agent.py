"""The agent against a server that answers what the test says, with a `ray` that only waits."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from eventually import LIMIT_S, eventually
from torchyard.base.errors import InvalidInput
from torchyard.base.home import ray_archive
from torchyard.base.http import Transport
from torchyard.executors.ray.ray_environment import RayVersion
from torchyard.node_agent import agent as agents
from torchyard.node_agent.ray_node import processes_of_session
from torchyard.shared import node_agents, processes

TOKEN = "t0ken-of-ray"
# Writes how it was called, then waits as `ray start --block` does, with a process below it.
RAY = """#!/bin/sh
{ echo "pid $$"; echo "args $*"; env; cat "$RAY_AUTH_TOKEN_PATH"; echo; } > "$HOME/started.new"
mv "$HOME/started.new" "$HOME/started-$$"
[ -e "$HOME/fails" ] && { echo "wrong version"; exit 1; }
[ -e "$HOME/is-slow" ] && { rm "$HOME/is-slow"; echo "The node timed out during startup."; exit 1; }
echo "Ray runtime started."
sleep 1000 &
wait
"""


class Server:
    """Answers `ray`; 404 once `removed`."""

    def __init__(self) -> None:
        self.head = socket.create_server(("127.0.0.1", 0))
        self.head_address = f"127.0.0.1:{self.head.getsockname()[1]}"
        self.seen_at = "2026-01-01T00:00:00Z"
        self.ray: dict[str, Any] = {
            "address": self.head_address,
            "version": RayVersion().ray,
            "python": RayVersion().python,
            "token": TOKEN,
            "labels": {"torchyard-owner": "ann", "torchyard-machine": "lab"},
        }
        self.removed = False
        self.archive = b""
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                size = int(self.headers["Content-Length"] or 0)
                sent = json.loads(self.rfile.read(size) or "{}")
                server.asked.append((self.command, self.path, sent))
                status = 404 if server.removed else 200
                body: dict[str, Any] = {"ray": server.ray, "machine": server.machine}
                if server.removed:
                    body = {"error": {"code": "machine_not_found", "message": "gone"}}
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_DELETE = do_PUT

            def do_GET(self) -> None:
                content, status = b"{}", 200
                if urlsplit(self.path).path.endswith("/ray"):
                    server.asked.append((self.command, self.path, {}))
                    refusal = {"code": "no_ray_to_carry", "message": "it has none"}
                    content, status = json.dumps({"error": refusal}).encode(), 404
                    if server.archive:
                        content, status = server.archive, 200
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *words: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http.server_port}"

    @property
    def machine(self) -> dict[str, str]:
        return {"joined_at": "2026-01-01T00:00:00Z", "seen_at": self.seen_at}

    def close_head(self) -> None:
        self.head.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()
    made.close_head()


class Joined:
    """`python -m torchyard.node_agent` below a folder; `started` are the calls of `ray`."""

    def __init__(
        self, folder: Path, server: Server, address: str = "127.0.0.9", has_ray: bool = True
    ) -> None:
        if has_ray:
            self._install(folder)
        self.folder = folder
        self._start(server, address)

    @staticmethod
    def _install(folder: Path) -> None:
        environment = folder / "engines" / RayVersion().folder
        (environment / "bin").mkdir(parents=True)
        (environment / "torchyard-complete").touch()
        program = environment / "bin" / "ray"
        program.write_text(RAY)
        program.chmod(0o755)

    def _start(self, server: Server, address: str) -> None:
        folder = self.folder
        request = {
            "url": server.url,
            "token": "yard_p_x",
            "ca_cert": "",
            "workspace": "default",
            "compute": "machines",
            "name": "lab",
            "address": address,
            "folder": str(folder),
        }
        (folder / "address").write_text("127.0.0.9")
        program_text = (
            "import sys, pathlib; from torchyard.node_agent import agent, facts, __main__;"
            "agent.REPORT_EVERY_S = 0.2;"
            f"file = pathlib.Path({str(folder)!r}, 'address');"
            "facts.has_address = lambda address: address == file.read_text();"
            "facts.address_towards = lambda url: file.read_text();"
            "sys.exit(__main__.main())"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program_text],
            env={
                **os.environ,
                "HOME": str(folder),
                "RAY_ADDRESS": "elsewhere",
                "UV_OFFLINE": "1",
                "UV_CACHE_DIR": str(folder / "cache"),
            },
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request))
        self.process.stdin.close()
        self.process.stdin = None

    def started(self) -> list[str]:
        files = sorted(self.folder.glob("started-*"), key=lambda file: file.stat().st_mtime_ns)
        return [file.read_text() for file in files]

    def end(self) -> str:
        """Wait for its end; what it said."""
        return self.process.communicate(timeout=LIMIT_S)[1]


@pytest.fixture
def joined(tmp_path: Path, server: Server) -> Iterator[Joined]:
    made = Joined(tmp_path, server)
    yield made
    made.process.terminate()
    made.end()
    for text in made.started():
        pid = pid_of(text)
        wait_for(lambda: not processes_of_session(pid))  # noqa: B023


def pid_of(started: str) -> int:
    return int(started.split("\n", 1)[0].split()[1])


def wait_for(condition: Callable[[], Any]) -> Any:
    outcome = eventually(condition, "what the agent is to come to")
    return outcome


def test_the_agent_joins_with_the_token_in_a_file(joined: Joined, server: Server) -> None:
    (started,) = wait_for(joined.started)
    arguments = next(line for line in started.splitlines() if line.startswith("args "))
    assert f"--address={server.head_address}" in arguments
    assert "--node-ip-address=127.0.0.9" in arguments
    assert "--min-worker-port=0 --max-worker-port=0" in arguments
    assert "--labels=torchyard-machine=lab,torchyard-owner=ann" in arguments
    lines = started.splitlines()
    assert TOKEN not in "".join(lines[:-1]) and lines[-1] == TOKEN
    assert "RAY_AUTH_MODE=token" in lines and "RAY_ADDRESS=elsewhere" not in lines
    token_file = joined.folder / "ray-token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    method, path, body = server.asked[0]
    assert (method, path) == ("PUT", "/v1/workspaces/default/machines/machines/lab")
    assert body["facts"]["cpus"] >= 1 and body["address"] == "127.0.0.9"
    first, last = body["probe"]["range"]
    assert first <= body["probe"]["port"] <= last
    sessions = next(word for word in arguments.split() if word.startswith("--temp-dir="))
    assert Path(sessions.partition("=")[2]).is_dir()
    joined.process.send_signal(signal.SIGTERM)
    assert "Left:" in joined.end() and joined.process.returncode == 0
    # Its path was too long to be in the node's folder.
    assert not Path(sessions.partition("=")[2]).exists()


def test_ray_is_started_again_when_it_ends(joined: Joined, server: Server) -> None:
    (first,) = wait_for(joined.started)
    wait_for(lambda: any(path.endswith("/report") for _, path, _ in server.asked))
    os.kill(pid_of(first), signal.SIGKILL)
    wait_for(lambda: len(joined.started()) == 2)
    assert processes_of_session(pid_of(first)) == []


def test_a_head_that_moves_is_followed(joined: Joined, server: Server) -> None:
    (first,) = wait_for(joined.started)
    server.ray = {**server.ray, "address": "10.0.0.2:7000"}
    wait_for(lambda: len(joined.started()) == 2)
    assert "--address=10.0.0.2:7000" in joined.started()[1]
    assert processes_of_session(pid_of(first)) == []


def test_a_machine_with_another_address_joins_again(tmp_path: Path, server: Server) -> None:
    joined = Joined(tmp_path, server, address="")
    (first,) = wait_for(joined.started)
    assert "--node-ip-address=127.0.0.9" in first
    wait_for(lambda: any(path.endswith("/report") for _, path, _ in server.asked))
    (tmp_path / "address").write_text("")  # without a network nothing changes
    count = len(server.asked)
    wait_for(lambda: len(server.asked) > count + 2)
    draft = tmp_path / "address.new"
    draft.write_text("127.0.0.10")
    draft.replace(tmp_path / "address")
    wait_for(lambda: len(joined.started()) == 2)
    assert "--node-ip-address=127.0.0.10" in joined.started()[1]
    assert processes_of_session(pid_of(first)) == []
    wait_for(lambda: server.asked[-1][2]["address"] == "127.0.0.10")
    joined.process.terminate()
    assert "This machine's address is 127.0.0.10 now" in joined.end()


def test_a_closed_port_of_the_head_is_named_and_the_machine_is_removed(
    tmp_path: Path, server: Server
) -> None:
    port = server.head_address.rpartition(":")[2]
    server.close_head()
    joined = Joined(tmp_path, server)
    text = joined.end()
    assert joined.process.returncode == 2 and joined.started() == []
    assert f"can't connect to the cluster's head at 127.0.0.1, port {port}" in text
    assert f"hint: allow TCP from this machine to port {port}" in text
    assert [(method, path) for method, path, _ in server.asked[1:]] == [
        ("POST", "/v1/workspaces/default/machines/machines/lab/withdraw")
    ]


def test_a_machine_that_was_one_before_stays_when_ray_does_not_join(
    tmp_path: Path, server: Server
) -> None:
    server.seen_at = "2026-02-02T00:00:00Z"
    (tmp_path / "fails").touch()
    joined = Joined(tmp_path, server)
    text = joined.end()
    assert joined.process.returncode == 1
    assert f"Ray does not join the head at {server.head_address}: wrong version" in text
    assert [method for method, _, _ in server.asked] == ["PUT"]


def test_ray_is_started_again_when_a_busy_machine_was_too_slow_for_it(
    tmp_path: Path, server: Server
) -> None:
    (tmp_path / "is-slow").touch()
    joined = Joined(tmp_path, server)
    wait_for(lambda: any(path.endswith("/report") for _, path, _ in server.asked))
    assert len(joined.started()) == 2
    joined.process.terminate()
    text = joined.end()
    assert "Ray has ended (The node timed out during startup.); it is started again" in text
    assert "Joined `machines` as `lab`" in text and joined.process.returncode == 0


def test_an_address_that_is_another_machine_s_is_refused(tmp_path: Path, server: Server) -> None:
    joined = Joined(tmp_path, server, address="192.0.2.77")
    assert "`192.0.2.77` is not an address of this machine" in joined.end()
    assert joined.process.returncode == 2 and server.asked == []


def test_a_machine_that_was_removed_ends(joined: Joined, server: Server) -> None:
    (first,) = wait_for(joined.started)
    server.removed = True
    assert "was removed from the cluster" in joined.end()
    assert joined.process.returncode == 0 and processes_of_session(pid_of(first)) == []


def test_ray_ends_with_a_killed_agent(joined: Joined) -> None:
    (first,) = wait_for(joined.started)
    pid = pid_of(first)
    started = processes.start_time(pid)
    joined.process.kill()
    # The stand-in ends with its signal; Ray ends what is below it by itself.
    wait_for(lambda: not processes.is_running(pid, started))
    for process in processes_of_session(pid):
        processes.send(process.pid, process.start_time, signal.SIGKILL)


def archive_of_ray(folder: Path) -> bytes:
    """As the server sends it: an environment, and the Python that it was made of."""
    base, environment = folder / "python", folder / "made"
    minor = ".".join(RayVersion().python.split(".")[:2])
    (base / "bin").mkdir(parents=True)
    (base / "lib").mkdir()
    program = base / "bin" / f"python{minor}"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "ray").write_text(RAY)
    (environment / "bin" / "ray").chmod(0o755)
    (environment / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    content = io.BytesIO()
    ray_archive.write(environment, base, content)
    return content.getvalue()


def test_a_machine_without_a_package_index_gets_ray_from_the_server(
    tmp_path: Path, server: Server
) -> None:
    server.archive = archive_of_ray(tmp_path / "of-the-server")
    folder = tmp_path / "node"
    folder.mkdir()
    joined = Joined(folder, server, has_ray=False)
    wait_for(lambda: any(path.endswith("/report") for _, path, _ in server.asked))
    joined.process.terminate()
    text = joined.end()
    assert f"can't be installed on `{socket.gethostname()}`" in text, text
    assert "taking it from the server" in text and "Joined `machines`" in text
    (path,) = [path for method, path, _ in server.asked if method == "GET"]
    assert "/machines/machines/lab/ray?system=Linux" in path
    assert not (folder / "engines" / ".arrived").exists()


@pytest.mark.parametrize("archive", [b"", b"no archive"])
def test_why_a_machine_has_no_ray_is_told(tmp_path: Path, server: Server, archive: bytes) -> None:
    server.archive = archive
    joined = Joined(tmp_path, server, has_ray=False)
    text = joined.end()
    expected = "did not arrive whole" if archive else "can't be installed on"
    assert joined.process.returncode and f"error: Ray {RayVersion().ray}" in text
    assert expected in text.partition("error: ")[2]
    assert [method for method, _, _ in server.asked] == ["PUT", "GET", "POST"]


def test_a_killed_agent_is_started_again(joined: Joined, server: Server) -> None:
    (first,) = wait_for(joined.started)
    wait_for(lambda: any(path.endswith("/report") for _, path, _ in server.asked))
    # What runs below Ray knows its agent by this.
    variable = next(line for line in first.splitlines() if line.startswith(node_agents.VARIABLE))
    environ = dict([variable.split("=", 1)])
    assert not node_agents.has_ended(environ)
    agent = int(variable.partition("=")[2].split()[0])
    assert agent != joined.process.pid
    os.kill(agent, signal.SIGKILL)
    wait_for(lambda: len(joined.started()) == 2)
    assert node_agents.has_ended(environ)
    assert processes_of_session(pid_of(first)) == []
    joined.process.terminate()
    text = joined.end()
    assert "the node's program was killed by SIGKILL; it is started again" in text
    assert joined.process.returncode == 0


def test_an_agent_that_ends_by_itself_is_not_started_again(tmp_path: Path, server: Server) -> None:
    server.removed = True
    joined = Joined(tmp_path, server)
    assert "started again" not in joined.end() and joined.process.returncode == 2


def test_a_second_agent_of_a_machine_is_refused(
    joined: Joined, server: Server, tmp_path: Path
) -> None:
    wait_for(joined.started)
    machine = agents.Machine("default", "machines", "lab", "127.0.0.9")
    second = agents.Agent(
        Transport(server.url, "x"), machine, tmp_path, lambda: machine.address, "uv", {}, print
    )
    with pytest.raises(InvalidInput, match="is a node already"):
        second.run()
