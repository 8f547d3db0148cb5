"""Inputs of a run on the target `local` that lie behind web addresses, and on their way to it."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.local_program import connection, files
from torchyard.local_program.connection import RunConnection
from workspaces.served import served

PAGES = {"/a%20b/x.gz": b"images", "/y.gz": b"labels"}
OWN = {"python": {"userManagedDependencies": True, "interpreterPath": "python3"}}


class _Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = PAGES.get(self.path)
        self.send_response(404 if content is None else 200)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if self.command == "GET" and content:
            self.wfile.write(content)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as server:
        yield Azure(server, "dan")


def submitted(azure: Azure, urls: list[str]) -> str:
    """A run whose input `birds` is an unregistered dataset of web addresses."""
    table = json.dumps({"paths": [{"file": url} for url in urls]})
    flow = json.dumps({"blocks": [], "meta": {"RsDataflow": table}})
    body = {"datasetType": "file", "properties": {}, "dataflowJson": flow}
    path = f"/dataset/v1.0{WORKSPACE}/saveddatasets"
    saved = azure.site.ask(azure.user, "POST", path, body).json()
    configuration = {
        "script": "train.py",
        "arguments": ["DatasetConsumptionConfig:birds"],
        "target": "local",
        "nodeCount": 1,
        "communicator": "None",
        "environment": OWN,
        "data": {"birds": {"dataLocation": {"dataset": {"id": saved["id"]}}, "mechanism": "mount"}},
    }
    run = f"web_{uuid.uuid4().hex[:8]}"
    response = azure.site.client.post(
        f"/execution/v1.0{WORKSPACE}/experiments/birds/localrun",
        params={"runId": run},
        files=[("files", ("definition.json", json.dumps({"Configuration": configuration})))],
        headers={"Authorization": f"Bearer {azure.site.tokens[azure.user]}"},
    )
    assert response.status_code == 200, response.text
    return run


class InProcess(RunConnection):
    """The program's requests, passed on to the server of the test."""

    def __init__(self, azure: Azure, run: str) -> None:
        self._azure = azure
        self._below = f"/execution/v1.0{WORKSPACE}/experiments/birds/runs/{run}/local"

    def _get(self, path: str) -> Any:
        parts = urlsplit(path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        where = self._below + parts.path
        return self._azure.site.ask(self._azure.user, "GET", where, params=query)

    def call(self, method: str, path: str, *_: Any, **__: Any) -> dict[str, Any]:
        response = self._get(path)
        assert response.status_code == 200, response.text
        return dict(response.json())

    def download(
        self, path: str, write: Callable[[bytes], object], timeout_s: float = 60.0
    ) -> None:
        response = self._get(path)
        assert response.status_code == 200, response.text
        write(response.content)


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        (["/y.gz"], {"y.gz": b"labels"}),
        (
            ["/a%20b/x.gz", "/y.gz"],
            {"127.0.0.1/a b/x.gz": b"images", "127.0.0.1/y.gz": b"labels"},
        ),
    ],
)
def test_a_web_address_is_read_through_the_server(
    azure: Azure, site: str, tmp_path: Path, urls: list[str], expected: dict[str, bytes]
) -> None:
    run = submitted(azure, [site + url for url in urls])
    task: dict[str, Any] = {"inputs": {"birds": {}}}
    paths = files.inputs(task, tmp_path, InProcess(azure, run), lambda: None)
    here = Path(paths["birds"])
    assert here.is_file() == (len(urls) == 1)
    folder = tmp_path / "inputs" / "birds"
    assert {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    } == expected


def test_only_files_of_the_runs_inputs_are_read_through_the_server(azure: Azure, site: str) -> None:
    run = submitted(azure, [f"{site}/y.gz", f"{site}/a%20b/x.gz"])
    below = f"/execution/v1.0{WORKSPACE}/experiments/birds/runs/{run}/local/inputs"
    for name, path in (("birds", "z.gz"), ("birds", ""), ("birds", "../y.gz"), ("other", "y.gz")):
        response = azure.site.ask(azure.user, "GET", f"{below}/{name}", params={"path": path})
        assert response.status_code in (400, 404), (name, path, response.text)
    azure.site.add("eve", "data-scientist")
    response = azure.site.ask("eve", "GET", f"{below}/birds", params={"path": "127.0.0.1/y.gz"})
    assert response.status_code == 403


def test_a_file_that_is_cut_off_is_not_kept(tmp_path: Path) -> None:
    def download(write: Callable[[bytes], object]) -> None:
        write(b"ima")

    with pytest.raises(OSError, match="received 3 of 6 bytes"):
        connection.store(tmp_path / "x.gz", download, 6)
    assert not (tmp_path / "x.gz").exists()
