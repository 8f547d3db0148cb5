"""The real router and small model servers, each in a process of its own."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from eventually import eventually
from torchyard.endpoints.router import control
from torchyard.endpoints.router.table import (
    Auth,
    DeploymentRow,
    EndpointRow,
    InstanceRow,
    Table,
    to_text,
)
from torchyard.shared import unix_sockets

KEY = "the-primary-key"
AUTH = Auth("key", (hashlib.sha256(KEY.encode()).digest(),))
BEARER = {"Authorization": f"Bearer {KEY}"}
PATH = "/endpoints/vision/digits"
_LIMIT_S = 60.0


class ModelServer:
    """One instance."""

    def __init__(self, name: str, path: Path) -> None:
        program = Path(__file__).with_name("model_server.py")
        self.name = name
        self.path = path
        listener = unix_sockets.listen(path)
        assert listener is not None
        with listener:
            number = listener.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", program, name, str(number)],
                stdout=subprocess.PIPE,
                pass_fds=[number],
            )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n"

    def row(self, is_draining: bool = False) -> InstanceRow:
        return InstanceRow(self.name, str(self.path), is_draining)

    def seen(self) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection("model")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(_LIMIT_S)
        unix_sockets.connect(connection.sock, str(self.path))
        connection.request("GET", "/seen")
        seen: list[dict[str, Any]] = json.loads(connection.getresponse().read())
        connection.close()
        return seen

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class RouterProcess:
    """A router of a home of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "router"
        self.folder.mkdir(parents=True)
        self.port = 0
        self._version = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._servers: list[ModelServer] = []

    def start(self, *more: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "torchyard.endpoints.router", "--home", self.home, *more],
            start_new_session=True,
        )
        wait_until(self._is_up)
        self.port = control.ask(self.folder, {"ask": "hello"})["port"]

    def replace(self) -> None:
        """Start another one that takes over; returns when the first one has ended."""
        before = self._process
        assert before is not None
        self.start("--replace")
        assert before.wait(_LIMIT_S) == 0

    def _is_up(self) -> bool:
        assert self._process is not None and self._process.poll() is None
        try:
            hello = control.ask(self.folder, {"ask": "hello"})
        except control.RouterAway:
            return False
        return bool(hello["pid"] == self._process.pid)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(_LIMIT_S)

    def model(self, name: str) -> ModelServer:
        # Longer than an address may be.
        path = self.home / ("m" * 120) / f"{len(self._servers)}-{name}"
        self._servers.append(ModelServer(name, path))
        return self._servers[-1]

    def write(
        self,
        deployments: Mapping[str, DeploymentRow],
        traffic: Mapping[str, int] | None = None,
        **more: Any,
    ) -> None:
        """Write a table of the one endpoint `vision/digits`; returns when the router has it."""
        weights = {next(iter(deployments)): 100} if traffic is None else traffic
        row = replace(EndpointRow(AUTH, weights, {}, deployments), **more)
        self.write_table(Table(endpoints={"vision/digits": row}))

    def write_table(self, table: Table) -> None:
        self._version += 1
        self.write_text(to_text(replace(table, version=self._version)))
        if self._process is not None:
            wait_until(lambda: self.ask("hello")["table_version"] == self._version)

    def write_text(self, text: bytes) -> None:
        draft = self.folder / "draft"
        draft.write_bytes(text)
        os.replace(draft, self.folder / "table.json")

    def ask(self, question: str, **more: Any) -> dict[str, Any]:
        return control.ask(self.folder, {"ask": question, **more}, timeout_s=_LIMIT_S)

    def statistics(self, deployment: str) -> dict[str, Any]:
        endpoints = self.ask("statistics")["endpoints"]
        counted: dict[str, Any] = endpoints["vision/digits"]["deployments"][deployment]
        return counted

    def log(self) -> str:
        return (self.folder / "router.log").read_text()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=_LIMIT_S)

    def request(
        self,
        path: str = "/score",
        body: bytes | None = b"{}",
        headers: Mapping[str, str] | None = None,
        method: str = "",
    ) -> Response:
        """One request on a connection of its own, with the right key."""
        connection = self.connection()
        try:
            return send(connection, path, body, {**BEARER, **(headers or {})}, method)
        finally:
            connection.close()

    def raw(self, data: bytes) -> bytes:
        """What comes back until the router closes the connection."""
        with self.open() as opened:
            opened.sendall(data)
            return read_all(opened)

    def open(self) -> socket.socket:
        opened = socket.create_connection(("127.0.0.1", self.port), timeout=_LIMIT_S)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened

    def close(self) -> None:
        for server in self._servers:
            server.stop()
        if self._process is not None and self._process.poll() is None:
            self.kill()


class Response:
    """A whole answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def send(
    connection: http.client.HTTPConnection,
    path: str = "/score",
    body: bytes | None = b"{}",
    headers: Mapping[str, str] = BEARER,
    method: str = "",
) -> Response:
    connection.request(method or ("GET" if body is None else "POST"), PATH + path, body, headers)
    return Response(connection.getresponse())


def read_all(opened: socket.socket) -> bytes:
    parts = []
    while True:
        try:
            data = opened.recv(65536)
        except ConnectionResetError:
            break
        if not data:
            break
        parts.append(data)
    return b"".join(parts)


def read_until(opened: socket.socket, end: bytes) -> bytes:
    data = b""
    while end not in data:
        more = opened.recv(65536)
        assert more, data
        data += more
    return data


def wait_until(holds: Callable[[], bool]) -> None:
    eventually(holds, "what the router is to come to")
