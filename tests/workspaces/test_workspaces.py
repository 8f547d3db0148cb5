"""Workspaces: names, what a new one has, how an empty one goes."""

from __future__ import annotations

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

WORKSPACES = "/v1/workspaces"


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    parts = application.build(
        tmp_path,
        "http://127.0.0.1:1",
        os.environ,
        executor=FakeExecutor(),
        database=database_url,
    )
    server.ensure_token(parts, Settings(tmp_path).token_file)
    made = TestClient(application.create_app(parts), raise_server_exceptions=False)
    token = Settings(tmp_path).token_file.read_text().strip()
    made.headers["Authorization"] = f"Bearer {token}"
    yield made
    made.close()
    parts.services.db.close()


def test_a_new_workspace_has_what_the_first_one_has(client: TestClient) -> None:
    document = {"name": "vision", "resource_group": "team-a", "description": "pictures"}
    made = client.post(WORKSPACES, json=document)
    assert made.status_code == 201
    body = made.json()
    assert (body["resource_group"], body["subscription_id"]) == ("team-a", "local")
    assert body["id"].endswith("/resourceGroups/team-a/providers/"
                               "Microsoft.MachineLearningServices/workspaces/vision")  # fmt: skip
    assert client.get(f"{WORKSPACES}/vision").json() == body
    listed = client.get(WORKSPACES).json()["value"]
    assert [workspace["name"] for workspace in listed] == ["default", "vision"]
    computes = client.get(f"{WORKSPACES}/vision/computes").json()["value"]
    assert [compute["name"] for compute in computes] == ["local"]
    stores = client.get(f"{WORKSPACES}/vision/datastores").json()["value"]
    assert [datastore["name"] for datastore in stores] == [
        "workspaceblobstore",
        "workspaceartifactstore",
    ]
    job = {"command": "true", "environment": "python"}
    assert client.post(f"{WORKSPACES}/vision/jobs", json=job).status_code == 201


@pytest.mark.parametrize(
    ("document", "at"),
    [
        ({}, ["name"]),
        ({"name": "ab"}, ["name"]),
        ({"name": "-abc"}, ["name"]),
        ({"name": "a" * 34}, ["name"]),
        ({"name": "a/../b"}, ["name"]),
        ({"name": "äbc"}, ["name"]),
        ({"name": 5}, ["name"]),
        ({"nam": "abc"}, ["nam"]),
        ({"name": "abc", "location": "a/b"}, ["location"]),
        ({"name": "Default"}, ["name"]),
        (["abc"], []),
    ],
)
def test_what_is_wrong_is_named(client: TestClient, document: Any, at: list[str]) -> None:
    answer = client.post(WORKSPACES, json=document)
    assert answer.status_code in (400, 409)
    assert answer.json()["error"]["at"] == at
    assert len(client.get(WORKSPACES).json()["value"]) == 1


def test_only_an_empty_workspace_can_be_deleted(client: TestClient) -> None:
    client.post(WORKSPACES, json={"name": "vision"})
    here = f"{WORKSPACES}/vision"
    client.put(f"{here}/computes/gpu-cluster", json={})
    refused = client.delete(here)
    assert refused.status_code == 409
    assert "compute `gpu-cluster`" in refused.json()["error"]["message"]
    client.delete(f"{here}/computes/gpu-cluster")
    assert client.delete(here).status_code == 200
    assert client.get(here).status_code == 404
    assert client.delete(here).status_code == 404
    assert client.delete(f"{WORKSPACES}/default").status_code == 409
    client.post(WORKSPACES, json={"name": "vision"})
    client.post(f"{here}/jobs", json={"command": "true", "environment": "python"})
    assert "1 job" in client.delete(here).json()["error"]["message"]
