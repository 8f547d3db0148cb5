"""Every door of the server that takes a name, tried with every hostile name."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest

from attacks.paths import NAMES, SECRET, tree
from fuzz.api_under_fuzz import SHA256, Api, make

W = "/v1/workspaces/default"
ARTIFACTS = "/api/2.0/mlflow-artifacts/artifacts/1/running/artifacts"
# (method, path): the name stands in the path, as it is and percent-encoded.
IN_PATH = [
    ("GET", f"{W}/jobs/running/files/{{}}"),
    ("GET", f"{W}/jobs/running/outputs/best/{{}}"),
    ("GET", f"{W}/jobs/running/outputs/{{}}/a.txt"),
    ("GET", f"{W}/jobs/{{}}"),
    ("GET", f"{W}/data/words/versions/1/files/{{}}"),
    ("GET", f"{W}/data/{{}}/versions/1/files/a.txt"),
    ("GET", f"{W}/models/net/versions/1/files/{{}}"),
    ("GET", f"{W}/blobs/{{}}"),
    ("PUT", f"{W}/blobs/{{}}"),
    ("GET", f"{W}/snapshots/{{}}"),
    ("DELETE", f"{W}/datastores/{{}}"),
    ("DELETE", f"{W}/computes/{{}}"),
    ("GET", f"{ARTIFACTS}/{{}}"),
    ("PUT", f"{ARTIFACTS}/{{}}"),
    ("DELETE", f"{ARTIFACTS}/{{}}"),
    ("GET", "/api/2.0/mlflow-artifacts/artifacts/{}"),
    ("PUT", "/api/2.0/mlflow-artifacts/artifacts/1/{}/artifacts/x"),
    ("GET", "/mlflow/{}/api/2.0/mlflow/experiments/get?experiment_id=0"),
    ("GET", "/api/2.0/mlflow/artifacts/list?run_id=running&path={}"),
    ("PUT", "/v1/attempts/ATTEMPT/files/{}"),
    ("DELETE", "/v1/attempts/ATTEMPT/files/{}"),
    ("PUT", "/v1/attempts/ATTEMPT/outputs/best/{}"),
    ("PUT", "/v1/attempts/ATTEMPT/outputs/{}/a.txt"),
    ("PUT", "/v1/attempts/ATTEMPT/logs?offset=0&path={}"),
    ("GET", "/v1/attempts/ATTEMPT/inputs/{}"),
    ("GET", "/v1/attempts/ATTEMPT/inputs/data/files/{}"),
    ("GET", "/v1/attempts/ATTEMPT/blobs/{}"),
    ("GET", "/v1/attempts/ATTEMPT/previous-outputs/best/{}"),
]
JOB = {"command": "true", "environment": "python"}


def _documents(name: str) -> Iterator[tuple[str, str, Any]]:
    """(method, path, JSON): the name stands in a document."""
    store = f"azureml://datastores/workspaceblobstore/paths/{name}"
    file = {"sha256": SHA256, "size": 5}
    yield "PUT", f"{W}/snapshots", {"files": [{"path": name, **file}]}
    yield "POST", f"{W}/bundle", {"sources": [f"jobs/running/files/{name}"]}
    yield "POST", f"{W}/bundle", {"sources": [f"data/words/versions/1/files/{name}"]}
    yield "POST", f"{W}/bundle", {"sources": [name]}
    yield "POST", "/v1/workspaces", {"name": name}
    yield "PUT", f"{W}/computes/one", {"name": name}
    yield "PUT", f"{W}/datastores/one", {"type": "local", "path": f"HOME/datastores/{name}"}
    yield "PUT", f"{W}/datastores/one", {"name": name, "type": "local", "path": "/tmp"}
    yield "PUT", f"{W}/url-maps", {"prefix": "https://h/x", "target": store}
    for path in (store, name, f"snapshot:{name}", f"azureml:{name}:1", f"file://{name}"):
        yield "POST", f"{W}/data", {"name": "d", "path": path}
        yield "POST", f"{W}/data", {"name": "d", "path": path, "type": "uri_file"}
        yield "POST", f"{W}/jobs", {**JOB, "inputs": {"i": {"path": path, "type": "uri_file"}}}
        yield "POST", f"{W}/jobs", {**JOB, "outputs": {"o": {"path": path}}}
    yield "POST", f"{W}/data", {"name": name, "path": "https://h/x", "type": "uri_file"}
    yield "POST", f"{W}/data", {"name": "d", "version": name, "path": "https://h/x"}
    for path in (f"azureml://jobs/ended/outputs/artifacts/paths/{name}", f"runs:/ended/{name}",
                 f"azureml://jobs/{name}/outputs/best", f"snapshot:{name}", store):  # fmt: skip
        yield "POST", f"{W}/models", {"name": "m", "path": path}
    yield "POST", f"{W}/models", {"name": name, "path": "runs:/running/outputs/a.txt"}
    yield "POST", f"{W}/jobs", {**JOB, "name": name}
    yield "POST", f"{W}/jobs", {**JOB, "experiment_name": name}
    yield "POST", f"{W}/jobs", {**JOB, "code": f"snapshot:{name}"}
    yield "POST", f"{W}/jobs", {**JOB, "inputs": {name: {"path": "https://h/x"}}}
    yield "POST", f"{W}/jobs", {**JOB, "outputs": {name: {"type": "uri_folder"}}}
    yield "POST", f"{W}/jobs", {**JOB, "outputs": {"o": {"name": name}}}
    yield "POST", f"{W}/jobs", {**JOB, "environment": {"conda_file": name}}
    yield "POST", f"{W}/jobs", {**JOB, "environment": {"pip_requirements": f"-r {name}"}}


def ask(api: Api, method: str, target: str, content: bytes = b"") -> tuple[int, bytes]:
    """One request, its path as raw as on the wire; no client tidies it up before."""
    raw, _, query = target.partition("?")
    token = api.worker if raw.startswith("/v1/attempts/") else api.person
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode("ascii", "replace"),
        "query_string": query.encode("ascii", "replace"),
        "root_path": "",
        "headers": [
            (b"authorization", f"Bearer {token}".encode()),
            (b"content-length", str(len(content)).encode()),
            (b"content-type", b"application/json"),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    status, body = 0, b""
    sent = False

    async def receive() -> Any:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            body += message.get("body", b"")

    asyncio.run(api.app(scope, receive, send))
    return status, body


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Api, Path]]:
    top = tmp_path_factory.mktemp("attacked")
    (top / "outside.txt").write_text(SECRET)
    (top / "elsewhere").mkdir()
    (top / "elsewhere" / "outside.txt").write_text(SECRET)
    api = make(top / "home")
    blobs = top / "home" / "datastores" / "default"
    for folder in (
        blobs / "workspaceartifactstore" / "ExperimentRun" / "dcid.running" / "outputs",
        blobs / "workspaceblobstore" / "azureml" / "running" / "best",
    ):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a.txt").write_text("inside")
        # A job can make links in what it may write; nobody reads or writes through them.
        (folder / "link").symlink_to(top / "elsewhere")
        (folder / "gone").symlink_to(top / "never")
        (folder.parent / "link").symlink_to(top / "elsewhere")
        os.mkfifo(folder / "pipe")
    model = {"name": "net", "path": "runs:/running/outputs/a.txt"}
    assert ask(api, "POST", f"{W}/models", json.dumps(model).encode())[0] == 201
    yield api, top
    api.parts.services.db.close()


def _inside(home: Path) -> set[str]:
    return {path.relative_to(home).parts[0] for path in home.rglob("*")}


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(NAMES[1::64], id="some"),
        pytest.param(
            NAMES, id="all", marks=[pytest.mark.slow, pytest.mark.fuzz, pytest.mark.timeout(600)]
        ),
    ],
)
def test_no_name_leads_out(names: list[str], services: tuple[Api, Path]) -> None:
    api, top = services
    home = top / "home"
    before, folders = tree(top, but=home), _inside(home)
    statuses: Counter[int] = Counter()
    wrong = []

    def check(method: str, target: str, content: bytes) -> None:
        status, body = ask(api, method, target, content)
        statuses[status] += 1
        if status >= 500 or status == 0 or SECRET.encode() in body or b"root:x:0" in body:
            wrong.append((method, target[:200], content[:200], status, body[:200]))

    for name in names:
        for method, template in IN_PATH:
            target = template.replace("ATTEMPT", api.names["attempt_id"])
            content = b"ATTACK" if method == "PUT" else b""
            text = name.encode("utf-8", "surrogatepass")
            for written in {
                quote(text, safe="/"),
                quote(text, safe=""),
                quote(quote(text, safe="")),
            }:
                check(method, target.format(written), content)
        for method, target, document in _documents(name):
            content = json.dumps(document).replace("HOME", str(home)).encode()
            check(method, target, content)
    print(f"{sum(statuses.values())} attacks on the server: {dict(statuses)}, {len(wrong)} wrong")
    assert not wrong, wrong[:5]
    assert tree(top, but=home) == before
    assert _inside(home) <= folders | {"logs", "cache", "tmp"}
    assert sum(statuses.values()) > 80 * len(names)


def test_listings_leave_out_what_is_not_a_file(services: tuple[Api, Path]) -> None:
    api, _ = services
    for listing in ("files", "outputs"):
        status, body = ask(api, "GET", f"{W}/jobs/running/{listing}")
        assert status == 200
        assert not [file for file in json.loads(body)["value"] if "pipe" in file["path"]]
        assert not [file for file in json.loads(body)["value"] if "gone" in file["path"]]
