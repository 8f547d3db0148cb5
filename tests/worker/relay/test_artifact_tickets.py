"""Files of clients that send no token with them: what a ticket in the path allows."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from worker.relays import RUNS, TOKEN, MlflowStub, Script, relay_to

FILES = "/api/2.0/mlflow-artifacts/artifacts"
OLD, NEW = "mlflow-python-client/1.23.1", "mlflow-python-client/2.22.0"
URI = "mlflow-artifacts:/12/job-1/artifacts"


class Client:
    """One of MLflow's clients, which sends its token only when it is told to."""

    def __init__(self, port: int, agent: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._agent = agent

    def __call__(
        self, method: str, path: str, body: bytes = b"", token: str = TOKEN
    ) -> tuple[int, bytes]:
        headers = {"User-Agent": self._agent}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()

    def close(self) -> None:
        self._connection.close()

    def read_uri(self) -> str:
        """The run's `artifact_uri` as this client gets it."""
        status, content = self("GET", RUNS + "/get?run_id=job-1")
        assert status == 200
        return str(json.loads(content)["run"]["info"]["artifact_uri"])


@contextmanager
def client_of(server: MlflowStub, folder: Path, agent: str = OLD) -> Iterator[Client]:
    server.answers[RUNS + "/get"] = (200, {"run": {"info": {"artifact_uri": URI}, "data": {}}})
    with relay_to(server, folder) as (_, script):
        assert isinstance(script, Script) and script.port is not None
        client = Client(script.port, agent)
        try:
            yield client
        finally:
            client.close()


def test_only_a_client_without_tokens_gets_a_ticket(server: MlflowStub, tmp_path: Path) -> None:
    with client_of(server, tmp_path / "new", NEW) as client:
        assert client.read_uri() == URI
    with client_of(server, tmp_path / "old") as client:
        ticket = client.read_uri().split("/")[1]
        assert re.fullmatch(r"yard_r_[\w-]{43}", ticket) and ticket != TOKEN
        server.stop()
        assert client.read_uri().split("/")[1] == ticket, "also from memory"


def test_a_ticket_admits_to_its_runs_files(server: MlflowStub, tmp_path: Path) -> None:
    with client_of(server, tmp_path) as client:
        path = client.read_uri().partition(":")[2]
        server.asked.clear()
        assert client("PUT", f"{FILES}{path}/a%20b.bin", b"1 2", token="")[0] == 200
        assert client("GET", f"{FILES}{path}/a%20b.bin", token="")[0] == 200
        listed = quote(path.lstrip("/") + "/model", safe="")
        assert client("GET", f"{FILES}?path={listed}", token="")[0] == 200
        assert client("GET", f"{FILES}{path}/with-a-token", token=TOKEN)[0] == 200
    # The server never sees the ticket.
    assert [(method, path, query) for method, path, query, _ in server.asked] == [
        ("PUT", f"{FILES}/12/job-1/artifacts/a%20b.bin", {}),
        ("GET", f"{FILES}/12/job-1/artifacts/a%20b.bin", {}),
        ("GET", FILES, {"path": "12/job-1/artifacts/model"}),
        ("GET", f"{FILES}/12/job-1/artifacts/with-a-token", {}),
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/12/job-1/artifacts/a"),
        ("PUT", "/{ticket}/12/job-2/artifacts/a"),
        ("PUT", "/{ticket}/12/job-1/artifacts/../../job-2/artifacts/a"),
        ("PUT", "/{ticket}/12/job-1/artifacts/%252e%252e%252f..%2f/a"),
        ("PUT", "/{ticket}/12/job-1"),
        ("PUT", "/{ticket}x/12/job-1/artifacts/a"),
        ("PUT", "/yard_r_{zeros}/12/job-1/artifacts/a"),
        ("PUT", "/" + TOKEN + "/12/job-1/artifacts/a"),
        ("DELETE", "/{ticket}/12/job-1/artifacts/a"),
        ("GET", "?path={ticket}/12/job-2/artifacts"),
        ("GET", "?path={ticket}/12/job-1/artifacts&path=12/job-2/artifacts"),
        ("GET", "?other={ticket}/12/job-1/artifacts"),
    ],
)
def test_a_ticket_opens_nothing_else(
    server: MlflowStub, tmp_path: Path, method: str, path: str
) -> None:
    with client_of(server, tmp_path) as client:
        ticket = client.read_uri().split("/")[1]
        server.asked.clear()
        target = FILES + path.format(ticket=ticket, zeros="0" * 43)
        assert client(method, target, token="")[0] == 401
        assert server.asked == []


def test_what_is_logged_and_registered_holds_no_ticket(server: MlflowStub, tmp_path: Path) -> None:
    register = "/api/2.0/preview/mlflow/model-versions/create"
    download = "/api/2.0/preview/mlflow/model-versions/get-download-uri"
    server.answers[download] = (200, {"artifact_uri": "mlflow-artifacts:/registered/m%20n/2"})
    with client_of(server, tmp_path) as client:
        uri = client.read_uri()
        param = {"run_id": "job-1", "key": "where", "value": uri}
        assert client("POST", RUNS + "/log-parameter", json.dumps(param).encode())[0] == 200
        source = json.dumps({"name": "m n", "source": uri + "/model"}).encode()
        assert client("POST", register, source)[0] == 200
        status, content = client("GET", download)
        version = json.loads(content)["artifact_uri"].partition(":")[2]
        assert (status, version.partition("/registered")[2]) == (200, "/m%20n/2")
        assert client("GET", f"{FILES}{version}/MLmodel", token="")[0] == 200
        assert client("GET", f"{FILES}{version[:-1]}3/MLmodel", token="")[0] == 401
    bodies = [json.loads(body) for _, path, _, body in server.asked if path == register]
    assert bodies == [{"name": "m n", "source": f"{URI}/model"}]
    assert [record["value"] for record in server.history[0]] == [URI]


def test_a_restarted_relay_takes_the_same_ticket(server: MlflowStub, tmp_path: Path) -> None:
    with client_of(server, tmp_path) as client:
        uri = client.read_uri()
    with client_of(server, tmp_path) as client:
        assert client("GET", f"{FILES}{uri.partition(':')[2]}/a", token="")[0] == 200
        assert client.read_uri() == uri
