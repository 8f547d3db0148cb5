"""A shared folder with a gate, before a small HTTP server that says what it got."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from torchyard.executors import shared_folders
from torchyard.executors.folder_gate import FolderGate
from torchyard.shared.connection import Connection
from torchyard.shared.server_address import ServerAddress

SERVER_ID = "0123456789abcdef"
ATTEMPT, REPORT, RUN = "a1", "report-token", "run-token"


@dataclass
class Got:
    """A request as the server got it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Site:
    """`running` are the attempts that the gate is told of."""

    shared: Path
    marks: Path
    got: list[Got] = field(default_factory=list)
    running: dict[str, tuple[str, ...]] = field(default_factory=dict)
    port: int = 0
    held: threading.Event = field(default_factory=threading.Event)

    @property
    def folder(self) -> Path:
        return shared_folders.server_folder(str(self.shared), SERVER_ID)

    @property
    def attempt(self) -> Path:
        return self.folder / ATTEMPT

    def link(self, token: str = REPORT) -> Connection:
        """As a worker makes it."""
        url = shared_folders.attempt_url(str(self.shared), SERVER_ID, ATTEMPT)
        return Connection.of_attempt(ServerAddress(url, SERVER_ID), token, ATTEMPT)

    def gate(self) -> FolderGate:
        def connect(timeout_s: float) -> http.client.HTTPConnection:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

        return FolderGate(self.folder, self.marks, connect)

    @contextlib.contextmanager
    def served(self) -> Iterator[FolderGate]:
        gate = self.gate()
        gate.start(lambda: dict(self.running))
        try:
            yield gate
        finally:
            gate.stop()


@contextlib.contextmanager
def site(tmp_path: Path) -> Iterator[Site]:
    (tmp_path / "shared").mkdir()
    made = Site(tmp_path / "shared", tmp_path / "marks")
    made.running[ATTEMPT] = (REPORT, RUN)
    shared_folders.add_attempt(shared_folders.prepare(str(made.shared), SERVER_ID), ATTEMPT)
    made.held.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    server.daemon_threads = True
    made.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield made
    finally:
        made.held.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._answer()

        do_POST = do_PUT = do_GET

        def _answer(self) -> None:
            body = self._body()
            site.got.append(Got(self.command, self.path, dict(self.headers.items()), body))
            site.held.wait(60)
            name = self.path.partition("?")[0].rpartition("/")[2]
            if name == "stream":
                self._stream([b"x" * 10, b"y" * (5 << 20)])
                return
            status = 410 if name == "over" else 200
            content = bytes(9 << 20) if name == "file" else b'{"body": %d}' % len(body)
            self.send_response(status)
            self.send_header("X-Torchyard-Server", SERVER_ID)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _stream(self, pieces: list[bytes]) -> None:
            self.send_response(200)
            self.send_header("X-Torchyard-Server", SERVER_ID)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in pieces:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            self.wfile.write(b"0\r\n\r\n")

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content

    return Handler
