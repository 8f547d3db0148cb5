"""Datastores of a workspace, and a web server, for the tests of data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.data import datastores
from torchyard.data.datastores import Datastores

WORKSPACE = "default"


@pytest.fixture
def stores(tmp_path: Path) -> Datastores:
    return Datastores(tmp_path / "home" / "datastores")


@pytest.fixture
def nas(tmp_path: Path, db: Database, clock: FakeClock, stores: Datastores) -> Path:
    """The folder of a datastore `nas`."""
    folder = tmp_path / "nas"
    (folder / "sets" / "deep").mkdir(parents=True)
    (folder / "sets" / "a.csv").write_text("a\n")
    (folder / "sets" / "deep" / "b.csv").write_text("b\n")
    document = {"name": "nas", "type": "local", "path": str(folder)}
    datastores.put(db, clock, stores, WORKSPACE, document, "me")
    return folder


class Web:
    """Serves `files` by path; `asked` are the requests that it got."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.marks: dict[str, str] = {}
        self.asked: list[str] = []
        self.heads = True
        handler = type("Handler", (_Handler,), {"web": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    web: Web

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.web.asked.append(f"{self.command} {path}")
        content = self.web.files.get(path)
        refused = self.command == "HEAD" and not self.web.heads
        self.send_response(405 if refused else 404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        if path in self.web.marks:
            self.send_header("ETag", self.web.marks[path])
        self.end_headers()
        if self.command == "GET" and content is not None:
            self.wfile.write(content)

    do_GET = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def web() -> Iterator[Web]:
    made = Web()
    yield made
    made.server.shutdown()
    made.server.server_close()
