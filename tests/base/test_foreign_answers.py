"""What the command says where something answers other than a torchyard server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from torchyard.base.errors import NotFound, Unreachable
from torchyard.base.http import Transport

_OURS = json.dumps({"error": {"code": "not_found", "message": "no job", "hint": "list"}})
_ANSWERS = {
    "/page": (200, "<html>hello</html>"),
    "/missing": (404, "<html>not found</html>"),
    "/other-json": (404, json.dumps({"detail": "Not Found"})),
    "/proxy": (502, "<html>bad gateway</html>"),
    "/ours": (404, _OURS),
    "/empty": (200, ""),
}


class _Foreign(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, text = _ANSWERS[self.path]
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def foreign() -> Iterator[Transport]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Foreign) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        transport = Transport(f"http://127.0.0.1:{server.server_port}", "token")
        yield transport
        transport.close()
        server.shutdown()


@pytest.mark.parametrize("path", ["/page", "/missing", "/other-json"])
def test_another_program(foreign: Transport, path: str) -> None:
    with pytest.raises(Unreachable, match="is not a torchyard server") as error:
        foreign.get(path)
    assert error.value.code == "foreign_server" and foreign.url in error.value.message
    assert "TORCHYARD_URL" in error.value.hint


def test_a_proxy_before_the_server(foreign: Transport) -> None:
    with pytest.raises(Unreachable, match="answers 502") as error:
        foreign.get("/proxy")
    assert error.value.code == "unreachable" and "proxy" in error.value.hint


def test_our_own_errors_are_what_they_say(foreign: Transport) -> None:
    with pytest.raises(NotFound, match="no job") as error:
        foreign.get("/ours")
    assert error.value.hint == "list"
    assert foreign.get("/empty") is None
