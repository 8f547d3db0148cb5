"""A server behind Debian's nginx, with the configuration that the guide names."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from app.nginx_proxy import nginx_before
from app.started_server import started_server

pytestmark = pytest.mark.slow
_MOST_CONNECTIONS = 3
_BEGUN = "PUT /v1/workspaces/default/snapshots HTTP/1.1\r\nHost: localhost\r\n"


@dataclass(frozen=True)
class Proxied:
    home: Path
    port: int
    context: ssl.SSLContext

    @property
    def token(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {(self.home / 'token').read_text().strip()}"}

    def connection(self, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "localhost", self.port, timeout=60, context=self.context, source_address=(source, 0)
        )

    def ask(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes | None = None,
        source: str = "127.0.0.1",
    ) -> int:
        connection = self.connection(source)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def send(self, text: str, source: str) -> ssl.SSLSocket:
        """A connection that has sent this and no more."""
        plain = socket.create_connection(("127.0.0.1", self.port), 60, (source, 0))
        secure = self.context.wrap_socket(plain, server_hostname="localhost")
        secure.sendall(text.encode())
        return secure


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxied")
    options = ("--trusted-proxy", "127.0.0.1", "--jobs-as-server-user")
    with (
        started_server(folder / "home", *options) as (server_port, _),
        nginx_before(server_port, folder / "nginx", 1, _MOST_CONNECTIONS) as (port, certificate),
    ):
        yield Proxied(folder / "home", port, ssl.create_default_context(cafile=certificate))


def test_the_audit_names_the_client_whatever_it_claims(proxied: Proxied) -> None:
    headers = {**proxied.token, "X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http"}
    body = json.dumps({"description": "x"}).encode()
    path = "/v1/workspaces/default/computes/forged"
    # The host's name is refused in requests without TLS, so the scheme arrived as well.
    headers["Host"] = "yard.example.com"
    assert proxied.ask("PUT", path, headers, body, "127.0.0.2") < 500
    lines = "".join(file.read_text() for file in (proxied.home / "audit").iterdir()).splitlines()
    audited = [line for line in map(json.loads, lines) if line["path"] == path]
    assert [line["from"] for line in audited] == ["127.0.0.2"]


@pytest.mark.parametrize(
    "text",
    ["", "GET /health HTTP/1.1\r\nX-Slow: ", f"{_BEGUN}Content-Length: 100\r\n\r\n{{"],
    ids=["silent", "head", "body"],
)
def test_a_client_that_stops_loses_its_connection(proxied: Proxied, text: str) -> None:
    with proxied.send(text, "127.0.0.3") as connection:
        received = b""
        while part := connection.recv(1 << 16):
            received += part
    assert received[9:12] in (b"", b"408")


def test_connections_of_one_address_are_limited(proxied: Proxied) -> None:
    with ExitStack() as open_connections:
        streams = []
        for _ in range(_MOST_CONNECTIONS):
            streams.append(proxied.connection("127.0.0.4"))
            open_connections.callback(streams[-1].close)
            _open_stream(proxied, streams[-1])
        assert proxied.ask("GET", "/health", {}, source="127.0.0.4") == 503
        assert proxied.ask("GET", "/health", {}, source="127.0.0.5") == 200


def _open_stream(proxied: Proxied, connection: http.client.HTTPSConnection) -> bytes:
    """The first line of a stream that goes on."""
    headers = {**proxied.token, "Accept": "text/event-stream"}
    connection.request("GET", "/v1/workspaces/default/events", headers=headers)
    response = connection.getresponse()
    assert response.status == 200
    return response.readline()


def test_a_stream_is_passed_on_as_it_comes(proxied: Proxied) -> None:
    connection = proxied.connection("127.0.0.6")
    assert _open_stream(proxied, connection).strip()
    connection.close()


def test_files_of_any_size_are_uploaded(proxied: Proxied) -> None:
    content = bytes(20 << 20)
    path = f"/v1/workspaces/default/blobs/{sha256(content).hexdigest()}"
    assert proxied.ask("PUT", path, proxied.token, content) == 200
    assert proxied.ask("GET", path, proxied.token) == 200
