"""Which certificates are trusted, and what is said of those that are not."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from torchyard.base import certificates, pinned_certificates
from torchyard.base.errors import InvalidInput, Unreachable
from torchyard.base.http import Transport

NAMES = ["10.9.9.9", "fd00::5", "box.lab"]


class Server:
    """Answers with the certificate of its authority, at an address that its own is not for."""

    def __init__(self, home: Path) -> None:
        issued = certificates.ensure(home, NAMES, datetime.now(timezone.utc))
        self.authority = certificates.authority(home)
        self.answer = json.dumps({"certificate": self.authority}).encode()
        self.file = home / "authority.pem"
        self.file.write_text(self.authority)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(issued.file)
        self.asked: list[tuple[str, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked.append((self.path, dict(self.headers)))
                self.send_response(200)
                self.send_header("Content-Length", str(len(server.answer)))
                self.end_headers()
                self.wfile.write(server.answer)

            def log_message(self, format: str, *args: object) -> None: ...

        class Quiet(HTTPServer):
            def handle_error(self, request: object, client_address: object) -> None: ...

        self._server = Quiet(("127.0.0.2", 0), Handler)
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self._server.server_address[1]
        self.url = f"https://127.0.0.2:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.stop()


def test_a_certificate_for_other_addresses_says_which(server: Server) -> None:
    with pytest.raises(Unreachable) as caught:
        Transport(server.url, "", ca_cert=str(server.file)).get("/livez")
    message = caught.value.message
    assert f"the certificate of `{server.url}` is not for `127.0.0.2`; it is for " in message
    for name in ("10.9.9.9", "[fd00::5]", "box.lab", "localhost", "127.0.0.1", "[::1]"):
        assert name in message
    own = ("localhost", "127.0.0.1", "[::1]")
    names = message.partition("it is for ")[2].split(", ")
    assert set(names[-3:]) == set(own), "what others can't use is named last"
    assert f":{server.port}`" in caught.value.hint
    assert not server.asked


def test_a_certificate_that_nobody_trusts_says_nothing_of_addresses(server: Server) -> None:
    with pytest.raises(Unreachable, match="is not trusted"):
        Transport(server.url, "").get("/livez")


@pytest.mark.parametrize("write", [str, str.upper, lambda text: text.removeprefix("sha256:")])
def test_a_certificate_is_known_by_its_fingerprint(server: Server, write: type[str]) -> None:
    fingerprint = pinned_certificates.fingerprint(server.authority)
    assert pinned_certificates.fetch(server.url, write(fingerprint)) == server.authority
    (asked,) = server.asked
    assert asked[0] == "/v1/server/certificate" and "Authorization" not in asked[1]


def test_another_fingerprint_is_told(server: Server) -> None:
    with pytest.raises(Unreachable) as caught:
        pinned_certificates.fetch(server.url, "sha256:" + "0" * 64)
    assert caught.value.code == "untrusted"
    assert pinned_certificates.fingerprint(server.authority) in caught.value.message


@pytest.mark.parametrize("answer", [b"", b"{}", b"[]", b'{"certificate": 3}', b"<html>", b"\xff"])
def test_what_shows_no_certificate_is_no_server(server: Server, answer: bytes) -> None:
    server.answer = answer
    with pytest.raises(Unreachable) as caught:
        pinned_certificates.fetch(server.url, "0" * 64)
    assert caught.value.code == "foreign_server"


@pytest.mark.parametrize("text", ["", "sha256:", "sha256:abc", "md5:" + "0" * 64, "0" * 65])
def test_what_is_no_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="is not a fingerprint"):
        pinned_certificates.fetch("https://127.0.0.1:9", text)


def test_without_tls_there_is_nothing_to_compare() -> None:
    with pytest.raises(InvalidInput, match="no certificate"):
        pinned_certificates.fetch("http://127.0.0.1:9", "0" * 64)


def test_nothing_that_answers_is_told(server: Server) -> None:
    server.stop()
    with pytest.raises(Unreachable, match="no torchyard server answers"):
        pinned_certificates.fetch(server.url, "0" * 64)
