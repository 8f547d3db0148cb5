"""Connections whose clients are slow, silent, endless or too many."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvicorn

from app.test_listeners import CERTIFICATE, KEY
from torchyard.app import listeners
from torchyard.app.connections import ConnectionLimits
from torchyard.app.http_protocol import JoinedWrites
from torchyard.base.errors import Unreachable
from torchyard.base.http import Transport

pytestmark = pytest.mark.slow
_HEAD = "{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n"
_BRIEF = ConnectionLimits(head_s=0.2, grace_s=0.5, skip_s=0.2, handshake_s=0.2, look_s=0.05)


class _Site:
    """A server in a thread, whose app does what the path says."""

    def __init__(self, limits: ConnectionLimits, tls: Path | None) -> None:
        self.began: list[str] = []
        self.ended: list[str] = []
        self.go_on = threading.Event()
        self._plain = socket.create_server(("127.0.0.1", 0))
        self.port = self._plain.getsockname()[1]
        self._secure = socket.create_server(("127.0.0.1", 0))
        self.tls_port = self._secure.getsockname()[1]
        secure = None
        if tls is not None:
            certificate = listeners.Tls(tls / "cert.pem", tls / "key.pem")
            certificate.certificate.write_text(CERTIFICATE)
            certificate.key.write_text(KEY)
            secure = (self._secure, listeners.context_of(certificate))
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
        self.server = listeners.Server(config, secure, limits)
        self._thread = threading.Thread(target=self.server.run, args=([self._plain],), daemon=True)
        self._thread.start()
        self.until(lambda: self.server.started)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.began.append(path)
        try:
            await _PATHS[path](self, receive, send)
        finally:
            self.ended.append(path)

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not what():
            assert self._thread.is_alive() and time.monotonic() < deadline
            time.sleep(0.01)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def send(self, method: str, path: str, size_bytes: int = 0, body: bytes = b"") -> socket.socket:
        connection = self.connect()
        connection.sendall(_HEAD.format(method, path, size_bytes).encode() + body)
        return connection

    def end(self) -> None:
        self.go_on.set()
        self.server.should_exit = True
        self._thread.join(60)
        self._plain.close()
        self._secure.close()
        assert not self._thread.is_alive()


async def _answer(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _count(site: _Site, receive: Any, send: Any) -> None:
    size_bytes = 0
    while True:
        message = await receive()
        size_bytes += len(message.get("body", b""))
        if not message.get("more_body"):
            break
    await _answer(send, 200, b"%d" % size_bytes)


async def _refuse(site: _Site, receive: Any, send: Any) -> None:
    await _answer(send, 401, b"{}")


async def _hold(site: _Site, receive: Any, send: Any) -> None:
    while not site.go_on.is_set():
        await asyncio.sleep(0.01)
    await _answer(send, 200, b"{}")


async def _large(site: _Site, receive: Any, send: Any) -> None:
    await _answer(send, 200, bytes(20 << 20))


async def _stream(site: _Site, receive: Any, send: Any) -> None:
    async def pour() -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while True:
            await send({"type": "http.response.body", "body": bytes(1 << 20), "more_body": True})

    pouring = asyncio.create_task(pour())
    while (await receive())["type"] != "http.disconnect":
        pass
    pouring.cancel()


_PATHS = {"/count": _count, "/refuse": _refuse, "/hold": _hold, "/large": _large,
          "/stream": _stream}  # fmt: skip


@contextmanager
def _site(limits: ConnectionLimits, tls: Path | None = None) -> Iterator[_Site]:
    site = _Site(limits, tls)
    try:
        yield site
    finally:
        site.end()


@pytest.fixture(scope="module")
def site() -> Iterator[_Site]:
    with _site(_BRIEF) as made:
        yield made


def _all_of(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(1 << 16):
            parts.append(part)
    connection.close()
    return b"".join(parts)


def _status(connection: socket.socket) -> tuple[int, bytes]:
    """Status and body of one response."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    return response.status, response.read()


def test_a_slow_body_is_answered_and_the_connection_closed(site: _Site) -> None:
    connection = site.send("PUT", "/count", 1000, b"x")
    started = time.monotonic()
    answer = _all_of(connection)
    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n") and b"slow_request" in answer
    assert time.monotonic() - started < 5


def test_a_body_at_the_least_rate_arrives(site: _Site) -> None:
    connection = site.send("PUT", "/count", 4000)
    for _ in range(20):  # twice the grace
        connection.sendall(b"x" * 200)
        time.sleep(0.05)
    assert _status(connection) == (200, b"4000")
    connection.close()


def test_what_came_fast_at_first_does_not_count_for_ever(site: _Site) -> None:
    answer = _all_of(site.send("PUT", "/count", 10 << 20, bytes(5 << 20)))
    assert answer.startswith(b"HTTP/1.1 408 ")


def test_a_body_is_not_read_before_the_app_asks_for_it(site: _Site) -> None:
    site.go_on.clear()
    connection = site.send("PUT", "/hold", 60 << 20)
    connection.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.sendall(bytes(50 << 20))
    site.go_on.set()
    connection.close()


def test_the_rest_of_a_refused_body_is_skipped_for_a_moment(site: _Site) -> None:
    whole = site.send("PUT", "/refuse", 5 << 20, bytes(5 << 20))
    assert _status(whole) == (401, b"{}")
    whole.sendall(_HEAD.format("PUT", "/count", 1).encode() + b"x")
    assert _status(whole) == (200, b"1")
    whole.close()
    endless = site.send("PUT", "/refuse", 60 << 20)
    assert _status(endless) == (401, b"{}")
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(200):
            endless.sendall(b"x")
            time.sleep(0.02)
    endless.close()


@pytest.mark.parametrize("path", ["/stream", "/large"])
def test_a_client_that_does_not_read_loses_its_connection(site: _Site, path: str) -> None:
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", site.port))
        connection.sendall(_HEAD.format("GET", path, 0).encode())
        site.until(lambda: path in site.ended)
        site.until(lambda: len(site.server.connections) == 0)


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_response_on_its_way_is_not_cut_off_for_a_newcomer(
    tmp_path: Path, is_secure: bool
) -> None:
    limits = ConnectionLimits(total=1)
    with _site(limits, tmp_path if is_secure else None) as site:
        port = site.tls_port if is_secure else site.port
        reader: socket.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        if is_secure:
            trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
            reader = trusted.wrap_socket(reader, server_hostname="localhost")
        reader.sendall(_HEAD.format("GET", "/large", 0).encode())
        assert reader.recv(1)
        site.until(lambda: "/large" in site.ended)
        for _ in range(3):
            assert _all_of(site.send("GET", "/count")).startswith(b"HTTP/1.1 503 ")
        size_bytes = 1
        while size_bytes < 20 << 20:
            part = reader.recv(1 << 16)
            assert part, f"{size_bytes} bytes have come"
            size_bytes += len(part)
        with site.send("GET", "/count") as newcomer:
            assert _status(newcomer) == (200, b"0")
        reader.close()


def test_head_and_body_leave_together() -> None:
    async def run() -> list[bytes]:
        writes: list[bytes] = []
        loop = asyncio.get_running_loop()
        transport = cast(asyncio.Transport, SimpleNamespace(write=writes.append))
        whole, streamed = (JoinedWrites(transport, loop) for _ in range(2))
        whole.write(b"head,")
        whole.write(b"body")
        streamed.write(b"head")
        await asyncio.sleep(0)
        streamed.write(b"first")
        streamed.write(b"second")
        return writes

    assert asyncio.run(run()) == [b"head,body", b"head", b"first", b"second"]


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_connection_without_a_whole_head_is_closed(site: _Site, text: bytes) -> None:
    connection = site.connect()
    connection.sendall(text)
    assert _all_of(connection) == b""


def test_heads_with_many_headers_are_refused(site: _Site) -> None:
    for end in (b"", b"\r\n"):
        connection = site.connect()
        connection.sendall(b"GET /count HTTP/1.1\r\n" + b"a:\r\n" * 300 + end)
        assert _all_of(connection).startswith(b"HTTP/1.1 431 ")


def test_no_connection_leaves_the_count_by_an_upgrade(site: _Site) -> None:
    assert site.server.config.ws == "none" and site.server.config.ws_protocol_class is None


def test_requests_ahead_of_their_turn_are_few(site: _Site) -> None:
    site.go_on.clear()
    before = len(site.began)
    connection = site.connect()
    connection.sendall(_HEAD.format("GET", "/hold", 0).encode() * 1000)
    answer = _all_of(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert len(site.began) - before <= 1
    site.go_on.set()


def test_a_connection_too_many_is_told_to_come_back() -> None:
    with _site(ConnectionLimits(total=2)) as site:
        held = [site.send("GET", "/hold") for _ in range(2)]
        site.until(lambda: len(site.began) == 2)
        answer = _all_of(site.send("GET", "/count"))
        assert answer.startswith(b"HTTP/1.1 503 ") and b"retry-after: 2\r\n" in answer
        assert b'"code": "server_busy"' in answer
        site.go_on.set()
        assert all(_status(connection) == (200, b"{}") for connection in held)
        # Those two are idle now, and make room.
        newcomer = site.send("GET", "/count")
        assert _status(newcomer) == (200, b"0")
        newcomer.close()
        for connection in held:
            connection.close()


def test_our_client_waits_until_it_is_let_in() -> None:
    with _site(ConnectionLimits(total=1)) as site:
        held = site.send("GET", "/hold")
        site.until(lambda: len(site.began) == 1)
        threading.Timer(0.2, site.go_on.set).start()
        transport = Transport(f"http://127.0.0.1:{site.port}", "token", timeout_s=10)
        assert transport.get("/count") == 0
        transport.close()
        held.close()


def test_silent_connections_do_not_keep_others_out() -> None:
    with _site(ConnectionLimits(total=20)) as site, ExitStack() as opened:
        for _ in range(60):
            opened.enter_context(site.connect())
        for _ in range(10):
            assert opened.enter_context(site.send("GET", "/count")).recv(100)
        assert len(site.server.connections) <= 20


def test_a_handshake_counts_and_ends(tmp_path: Path) -> None:
    limits = ConnectionLimits(total=2, handshake_s=0.3, look_s=0.05)
    with _site(limits, tmp_path) as site, ExitStack() as opened:
        silent = [
            opened.enter_context(socket.create_connection(("127.0.0.1", site.tls_port), timeout=60))
            for _ in range(5)
        ]
        site.until(lambda: len(site.server.connections) == 2)
        assert all(connection.recv(10) == b"" for connection in silent)
        site.until(lambda: len(site.server.connections) == 0)
        assert _ask_by_tls(tmp_path, site.tls_port) == 200


def test_a_connection_with_tls_that_is_one_too_many_is_closed(tmp_path: Path) -> None:
    with _site(ConnectionLimits(total=1), tmp_path) as site:
        held = site.send("GET", "/hold")
        site.until(lambda: len(site.began) == 1)
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            _ask_by_tls(tmp_path, site.tls_port)
        threading.Timer(0.2, site.go_on.set).start()
        url, authority = f"https://localhost:{site.tls_port}", str(tmp_path / "cert.pem")
        transport = Transport(url, "token", timeout_s=10, ca_cert=authority)
        assert transport.get("/count") == 0
        transport.close()
        held.close()


def test_a_request_right_behind_the_handshake_is_answered(tmp_path: Path) -> None:
    with _site(_BRIEF, tmp_path) as site:
        for _ in range(5):
            assert _ask_by_tls(tmp_path, site.tls_port, bytes(300 << 10)) == 200
        site.until(lambda: len(site.server.connections) == 0)


def test_what_is_no_tls_is_closed(tmp_path: Path) -> None:
    with _site(_BRIEF, tmp_path) as site:
        with socket.create_connection(("127.0.0.1", site.tls_port), timeout=60) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
            assert b"HTTP" not in _all_of(connection)
        assert _ask_by_tls(tmp_path, site.tls_port) == 200


def _ask_by_tls(folder: Path, port: int, body: bytes = b"") -> int:
    context = ssl.create_default_context(cafile=str(folder / "cert.pem"))
    connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
    try:
        connection.request("PUT", "/count", body)
        answer = connection.getresponse()
        assert answer.read() == b"%d" % len(body)
        return answer.status
    finally:
        connection.close()


def test_a_server_that_stays_full_is_named_busy() -> None:
    """The client gives up at once with a body that it can't send twice."""
    with _site(ConnectionLimits(total=1)) as site:
        held = site.send("GET", "/hold")
        site.until(lambda: len(site.began) == 1)
        transport = Transport(f"http://127.0.0.1:{site.port}", "token", timeout_s=10)
        with pytest.raises(Unreachable) as refused:
            transport.send("PUT", "/count", iter([b"x"]), 1)
        assert refused.value.code == "server_busy"
        assert "too many connections" in refused.value.message and refused.value.hint
        transport.close()
        held.close()
