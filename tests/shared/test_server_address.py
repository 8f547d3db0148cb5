"""A worker whose server is unreachable, while another program has its port."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from torchyard.shared.connection import AttemptOver, Connection
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.relay.proxy import Proxy, ServerUnreachable


@contextmanager
def _server(status: int, server_id: str = "", body: bytes = b"") -> Iterator[str]:
    """Answers everything with this status, as the server of that id."""
    content = body or json.dumps({"who": server_id}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            if server_id:
                self.send_header("X-Torchyard-Server", server_id)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

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
        Connection.of_attempt(ServerAddress(url, "ours"), "token", "a").call("GET", "/control")
    for stranger in ("theirs", ""):
        with _server(401, stranger) as url, pytest.raises(OSError, match="another server"):
            Connection.of_attempt(ServerAddress(url, "ours"), "token", "a").call("GET", "/control")


@pytest.mark.parametrize("status", [200, 404, 409])
def test_a_stranger_neither_takes_nor_refuses_anything(status: int) -> None:
    with _server(status, "theirs") as url, pytest.raises(OSError, match="another server"):
        Connection.of_attempt(ServerAddress(url, "ours"), "token", "a").call("GET", "/control")


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b"null"])
def test_what_is_no_answer_of_a_server_is_a_lost_one(body: bytes) -> None:
    # A worker's thread that died of it would neither hear orders nor report any more.
    with _server(200, body=body) as url, pytest.raises(OSError, match="not a torchyard server"):
        Connection.of_attempt(ServerAddress(url), "token", "a").call("GET", "/control")


def test_another_server_of_the_home_is_asked_when_one_is_away(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    (tmp_path / "servers").mkdir()
    with _server(200, "ours") as living:
        for name, url in (("a", "http://127.0.0.1:9"), ("b", living), ("c", "http://127.0.0.1:9")):
            (tmp_path / "servers" / f"{name}.json").write_text(json.dumps({"url": url}))
        (tmp_path / "servers" / "d.json").write_text("{")
        # The file still names the one that was killed.
        file.write_text(json.dumps({"url": "http://127.0.0.1:9"}))
        link = Connection.of_attempt(
            ServerAddress("http://127.0.0.1:9", "ours", str(file)), "token", "a"
        )
        with pytest.raises(OSError):
            link.call("GET", "/control")
        assert link.call("GET", "/control") == {"who": "ours"}
        # The one that answered is killed, another one answers, and a stranger has the first port.
    with _server(200, "ours") as successor, _server(401, "theirs") as stranger:
        for name, url in (("a", stranger), ("b", living), ("c", successor)):
            (tmp_path / "servers" / f"{name}.json").write_text(json.dumps({"url": url}))
        file.write_text(json.dumps({"url": stranger}))
        answers = []
        for _ in range(4):
            try:
                answers.append(link.call("GET", "/control"))
            except OSError:
                pass
        assert answers[-1] == {"who": "ours"}


def test_the_server_is_found_where_it_listens_now(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    with _server(401, "theirs") as stranger, _server(200, "ours") as own_url:
        address = ServerAddress(stranger, "ours", str(file))
        link = Connection.of_attempt(address, "token", "a")
        with pytest.raises(OSError, match="another server"):
            link.call("GET", "/control")
        file.write_text("{ half a fi")
        with pytest.raises(OSError, match="another server"):
            link.call("GET", "/control")
        file.write_text(json.dumps({"url": own_url}))
        with pytest.raises(OSError, match="another server"):
            link.call("GET", "/control")
        assert link.call("GET", "/control") == {"who": "ours"}
        link.close()


def test_a_script_is_not_turned_away_by_a_stranger(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    with _server(401, "theirs") as stranger, _server(200, "ours") as own_url:
        plan = LaunchPlan(
            attempt_id="a",
            job="j",
            workspace="w",
            experiment="e",
            command="true",
            attempt=1,
            server_url=stranger,
            report_token="r",
            run_token="t",
            scratch=str(tmp_path),
            server_id="ours",
            server_file=str(file),
        )
        with pytest.raises(ServerUnreachable):
            Proxy(plan).ask("GET", "/api/2.0/mlflow/runs/get", {}, b"", wait_s=0.0)
        file.write_text(json.dumps({"url": own_url}))
        answer = Proxy(plan).ask("GET", "/api/2.0/mlflow/runs/get", {}, b"", wait_s=10.0)
        assert (answer.status, answer.content) == (200, b'{"who": "ours"}')
