"""Datastores, data assets and URL maps over HTTP."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor

BASE = "/v1/workspaces/default"
BLOB = {
    "name": "blob",
    "type": "azure_blob",
    "account_name": "acc",
    "container_name": "c",
    "credentials": {"account_key": "c2VjcmV0"},
}


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    home = tmp_path / "home"
    parts = application.build(
        home,
        "http://127.0.0.1:1",
        os.environ,
        executor=FakeExecutor(),
        database=database_url,
    )
    server.ensure_token(parts, Settings(home).token_file)
    with TestClient(application.create_app(parts), raise_server_exceptions=False) as made:
        made.headers["Authorization"] = f"Bearer {Settings(home).token_file.read_text().strip()}"
        yield made


def _snapshot(client: TestClient, files: dict[str, bytes]) -> str:
    entries = []
    for path, content in files.items():
        sha256 = hashlib.sha256(content).hexdigest()
        assert client.put(f"{BASE}/blobs/{sha256}", content=content).status_code == 200
        entries.append({"path": path, "sha256": sha256, "size": len(content)})
    return str(client.put(f"{BASE}/snapshots", json={"files": entries}).json()["id"])


def _error(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    body: dict[str, Any] = answer.json()["error"]
    return body


def test_datastores(client: TestClient, tmp_path: Path) -> None:
    pytest.importorskip("adlfs")
    names = [item["name"] for item in client.get(f"{BASE}/datastores").json()["value"]]
    assert names == ["workspaceblobstore", "workspaceartifactstore"]
    answer = client.put(f"{BASE}/datastores/blob", json=BLOB)
    assert answer.status_code == 200, answer.text
    assert answer.json()["credentials"] == {"account_key": "********"}
    assert "c2VjcmV0" not in answer.text + client.get(f"{BASE}/datastores").text
    assert client.get(f"{BASE}/datastores/blob").json()["account_name"] == "acc"
    assert client.delete(f"{BASE}/datastores/blob").status_code == 200
    _error(client.get(f"{BASE}/datastores/blob"), 404)
    _error(client.delete(f"{BASE}/datastores/workspaceblobstore"), 409)


@pytest.mark.parametrize(
    ("change", "at", "message"),
    [
        ({"acount_name": "x"}, ["acount_name"], "did you mean `account_name`"),
        ({"type": "azure_blbo"}, ["type"], "did you mean `azure_blob`"),
        ({"type": "azure_data_lake_gen1"}, ["type"], "retired"),
        ({"account_name": None}, ["account_name"], "needs `account_name`"),
        ({"credentials": {"account_kye": "x"}}, ["credentials", "account_kye"], "account_key"),
        ({"name": "no name"}, ["name"], "not a valid name for a datastore"),
    ],
)
def test_invalid_documents_of_datastores(
    client: TestClient, change: dict[str, Any], at: list[str], message: str
) -> None:
    document = {key: value for key, value in {**BLOB, **change}.items() if value is not None}
    name = document["name"]
    error = _error(client.put(f"{BASE}/datastores/{name}", json=document), 400)
    assert error["at"] == at
    assert message in error["message"] + error["hint"]


def test_a_data_asset_is_described_again(client: TestClient) -> None:
    path = "https://host/a.csv"
    document = {"name": "one", "path": path, "type": "uri_file", "tags": {"a": "b", "c": "d"}}
    assert client.post(f"{BASE}/data", json=document).status_code == 201
    changes = {"description": "new", "tags": {"a": None, "e": "f"}, "properties": {"p": "1"}}
    changed = client.patch(f"{BASE}/data/one/versions/latest", json=changes).json()
    assert changed == client.get(f"{BASE}/data/one/versions/1").json()
    assert (changed["description"], changed["tags"]) == ("new", {"c": "d", "e": "f"})
    assert (changed["properties"], changed["path"]) == ({"p": "1"}, path)
    refusal = _error(client.patch(f"{BASE}/data/one/versions/1", json={"tag": 1}), 400)
    assert "did you mean `tags`" in refusal["hint"]
    _error(client.patch(f"{BASE}/data/one/versions/2", json={}), 404)


def test_data_assets(client: TestClient) -> None:
    snapshot = _snapshot(client, {"a.csv": b"1\n", "deep/b.csv": b"2\n"})
    asset_document = {"name": "sets", "path": f"snapshot:{snapshot}", "tags": {"a": "b"}}
    made = client.post(f"{BASE}/data", json=asset_document)
    assert made.status_code == 201, made.text
    assert made.json()["path"].startswith(
        "azureml://datastores/workspaceblobstore/paths/LocalUpload/"
    )
    assert client.post(f"{BASE}/data", json=asset_document).json()["version"] == "2"
    assert (
        client.post(f"{BASE}/data", json={**asset_document, "version": 7}).json()["version"] == "7"
    )
    _error(client.post(f"{BASE}/data", json={**asset_document, "version": "7"}), 409)
    files = client.get(f"{BASE}/data/sets/versions/latest/files").json()["value"]
    assert [file["path"] for file in files] == ["a.csv", "deep/b.csv"]
    assert files[0]["sha256"] == hashlib.sha256(b"1\n").hexdigest()
    address = f"{BASE}/data/sets/versions/1/files"
    assert client.get(f"{address}/deep/b.csv").content == b"2\n"
    _error(client.get(f"{address}/none"), 404)
    _error(client.get(f"{address}/..%2F..%2Fx"), 400)
    assert [asset["version"] for asset in _list(client, "?name=sets")] == ["7", "2", "1"]
    assert [asset["version"] for asset in _list(client)] == ["7"]


def test_files_of_a_local_datastore_may_be_edited(client: TestClient, tmp_path: Path) -> None:
    (tmp_path / "nas").mkdir()
    store = {"type": "local", "path": str(tmp_path / "nas")}
    client.put(f"{BASE}/datastores/nas", json=store)
    snapshot = _snapshot(client, {"a.csv": b"1\n"})
    asset_document = {"name": "sets", "path": f"snapshot:{snapshot}", "datastore": "nas"}
    assert client.post(f"{BASE}/data", json=asset_document).status_code == 201
    (uploaded,) = (tmp_path / "nas").rglob("a.csv")
    with open(uploaded, "ab") as file:
        file.write(b"2\n")
    sha256 = hashlib.sha256(b"1\n").hexdigest()
    assert client.get(f"{BASE}/blobs/{sha256}").content == b"1\n"


def test_archived_data_is_hidden_and_still_readable(client: TestClient) -> None:
    snapshot = _snapshot(client, {"a.csv": b"1\n"})
    asset_document = {"name": "one", "path": f"snapshot:{snapshot}", "type": "uri_file"}
    for _ in range(2):
        client.post(f"{BASE}/data", json=asset_document)
    assert client.post(f"{BASE}/data/one/versions/2/archive").json()["archived"] is True
    assert [asset["version"] for asset in _list(client, "?name=one")] == ["1"]
    assert client.get(f"{BASE}/data/one/versions/latest").json()["version"] == "1"
    assert client.get(f"{BASE}/data/one/versions/2/files/a.csv").content == b"1\n"
    client.post(f"{BASE}/data/one/archive")
    assert _list(client) == []
    assert len(_list(client, "?name=one&archived=only")) == 2
    client.post(f"{BASE}/data/one/restore")
    assert len(_list(client, "?name=one")) == 2


def test_invalid_data_assets(client: TestClient) -> None:
    snapshot = _snapshot(client, {"a": b"1", "b": b"2"})
    path = f"snapshot:{snapshot}"
    for document, at in (
        ({"name": "x", "path": path, "typ": "uri_file"}, ["typ"]),
        ({"name": "x", "path": path, "type": "uri_fil"}, ["type"]),
        ({"name": "x", "path": path, "type": "uri_file"}, ["type"]),
        ({"name": "x", "path": path, "type": "mltable"}, ["path"]),
        ({"name": "", "path": path}, ["name"]),
        ({"name": "x"}, ["path"]),
    ):
        assert _error(client.post(f"{BASE}/data", json=document), 400)["at"] == at, document
    nowhere = {"name": "x", "path": "azureml://datastores/nowhere/paths/none"}
    _error(client.post(f"{BASE}/data", json=nowhere), 404)
    later = {"name": "x", "path": "azureml://datastores/workspaceblobstore/paths/later"}
    assert client.post(f"{BASE}/data", json=later).status_code == 201


def test_url_maps(client: TestClient) -> None:
    target = "azureml://datastores/workspaceblobstore/paths/mirror"
    url_map = {"prefix": "https://host/data", "target": target}
    assert client.put(f"{BASE}/url-maps", json=url_map).json()["target"] == target
    assert len(client.get(f"{BASE}/url-maps").json()["value"]) == 1
    _error(client.put(f"{BASE}/url-maps", json={**url_map, "target": "https://x"}), 400)
    _error(client.put(f"{BASE}/url-maps", json={**url_map, "prefix": "/etc"}), 400)
    response = client.delete(f"{BASE}/url-maps", params={"prefix": "https://host/data"})
    assert response.status_code == 200
    _error(client.delete(f"{BASE}/url-maps", params={"prefix": "https://host/data"}), 404)


def test_snapshots_are_returned(client: TestClient) -> None:
    snapshot = _snapshot(client, {"a": b"1"})
    manifest = client.get(f"{BASE}/snapshots/{snapshot}").json()
    (file,) = manifest["files"]
    assert client.get(f"{BASE}/blobs/{file['sha256']}").content == b"1"
    _error(client.get(f"{BASE}/blobs/{'0' * 64}"), 404)


def _list(client: TestClient, query: str = "") -> list[dict[str, Any]]:
    value: list[dict[str, Any]] = client.get(f"{BASE}/data{query}").json()["value"]
    return value


@pytest.mark.parametrize("inside", ["home/datastores/other", "home", "."])
def test_a_datastore_never_reaches_into_the_servers_home(
    client: TestClient, tmp_path: Path, inside: str
) -> None:
    folder = tmp_path / inside
    folder.mkdir(parents=True, exist_ok=True)
    body = {"type": "local", "path": str(folder)}
    refused = _error(client.put(f"{BASE}/datastores/spy", json=body), 400)
    assert (refused["at"], "server itself" in refused["message"]) == (["path"], True)
