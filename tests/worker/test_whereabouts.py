"""A worker whose server is away, while another program has its port."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from torchyard.plan import LaunchPlan
from torchyard.worker.link import AttemptOver, Link
from torchyard.worker.relay_proxy import Away, Proxy
from torchyard.worker.whereabouts import Whereabouts


@contextmanager
def _server(status: int, server_id: str = "") -> Iterator[str]:
    """Answers everything with this status, as the server of that id."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if server_id:
                self.send_header("X-Torchyard-Server", server_id)
            body = json.dumps({"who": server_id}).encode()
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_the_own_server_disowns_an_attempt() -> None:
    with _server(401, "ours") as url, pytest.raises(AttemptOver):
        Link(url, "token", "a", Whereabouts(url, "ours")).call("GET", "/orders")
    for stranger in ("theirs", ""):
        with _server(401, stranger) as url, pytest.raises(OSError, match="another server"):
            Link(url, "token", "a", Whereabouts(url, "ours")).call("GET", "/orders")


def test_the_server_is_found_where_it_listens_now(tmp_path: Path) -> None:
    told = tmp_path / "server.json"
    with _server(401, "theirs") as stranger, _server(200, "ours") as ours:
        whereabouts = Whereabouts(stranger, "ours", str(told))
        link = Link(stranger, "token", "a", whereabouts)
        with pytest.raises(OSError, match="another server"):
            link.call("GET", "/orders")
        told.write_text("{ half a fi")
        with pytest.raises(OSError, match="another server"):
            link.call("GET", "/orders")
        told.write_text(json.dumps({"url": ours}))
        with pytest.raises(OSError, match="another server"):
            link.call("GET", "/orders")
        assert link.call("GET", "/orders") == {"who": "ours"}
        link.close()


def test_a_script_is_not_turned_away_by_a_stranger(tmp_path: Path) -> None:
    told = tmp_path / "server.json"
    with _server(401, "theirs") as stranger, _server(200, "ours") as ours:
        plan = LaunchPlan(
            **{name: "x" for name in ("attempt_id", "job", "workspace", "experiment", "command")},
            attempt=1,
            server_url=stranger,
            report_token="r",
            run_token="t",
            scratch=str(tmp_path),
            server_id="ours",
            server_file=str(told),
        )
        with pytest.raises(Away):
            Proxy(plan).ask("GET", "/api/2.0/mlflow/runs/get", {}, b"", patience_s=0.0)
        told.write_text(json.dumps({"url": ours}))
        answer = Proxy(plan).ask("GET", "/api/2.0/mlflow/runs/get", {}, b"", patience_s=10.0)
        assert (answer.status, answer.content) == (200, b'{"who": "ours"}')
