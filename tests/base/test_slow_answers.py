"""A server that is slow is not asked twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from torchyard.base.errors import Unreachable
from torchyard.base.http import Transport


class _Slow(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.asked.append(self.path)
        server.go_on.wait(60)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Slow)
        self.asked: list[str] = []
        self.go_on = threading.Event()


@pytest.fixture
def slow() -> Iterator[_Server]:
    with _Server() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.go_on.set()
        server.shutdown()


@pytest.mark.slow
def test_what_takes_longer_than_the_client_waits_is_asked_once(slow: _Server) -> None:
    transport = Transport(f"http://127.0.0.1:{slow.server_port}", "token", timeout_s=2.0)
    assert transport.get("/first") == {}  # from here on, a connection that is kept
    with pytest.raises(Unreachable, match="timed out"):
        transport.post("/act", {})
    transport.close()
    assert slow.asked == ["/act"]
