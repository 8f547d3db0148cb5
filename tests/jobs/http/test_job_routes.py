"""The verbs of jobs over HTTP."""

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

WORKSPACE = "/v1/workspaces/default"
JOBS = f"{WORKSPACE}/jobs"


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


def _create(client: TestClient, name: str, **changes: Any) -> None:
    document = {"command": "true", "environment": "python", "name": name, **changes}
    answer = client.post(JOBS, json=document)
    assert answer.status_code == 201, answer.text


def _names(client: TestClient, **query: Any) -> list[str]:
    answer = client.get(JOBS, params=query)
    assert answer.status_code == 200, answer.text
    return [job["name"] for job in answer.json()["value"]]


def test_lists_are_filtered_and_hide_archived_jobs(client: TestClient) -> None:
    _create(client, "a", tags={"team": "x"}, experiment_name="one")
    _create(client, "b", parent_job_name="a")
    client.post(f"{JOBS}/a/cancel")
    assert client.post(f"{JOBS}/b/archive").status_code == 409
    assert client.post(f"{JOBS}/a/archive").json()["archived"] is True
    assert _names(client) == ["b"]
    assert _names(client, archived="true") == ["b", "a"]
    assert _names(client, archived="only") == ["a"]
    assert _names(client, archived="true", tag=["team=x", "team"]) == ["a"]
    assert _names(client, parent="a") == ["b"]
    assert client.get(JOBS, params={"archived": "maybe"}).status_code == 400
    assert client.get(JOBS, params={"parent": "z"}).status_code == 404
    assert client.post(f"{JOBS}/a/restore").json()["archived"] is False
    assert _names(client) == ["b", "a"]
    experiments = client.get(f"{WORKSPACE}/experiments").json()["value"]
    assert {unit["name"]: unit["job_count"] for unit in experiments} == {"one": 1, "Default": 1}


def test_a_job_is_updated_and_its_document_downloaded(client: TestClient) -> None:
    _create(client, "a", description="old", resources={"instance_type": "X"})
    assert client.get(f"{JOBS}/a").json()["notices"][0].startswith("`resources.instance_type: X`")
    changes = {"display_name": "Ä", "description": "new", "tags": {"k": "v"}}
    shown = client.patch(f"{JOBS}/a", json=changes).json()
    assert {key: shown[key] for key in changes} == changes
    assert client.patch(f"{JOBS}/a", json={"compute": "x"}).status_code == 400
    assert client.patch(f"{JOBS}/a", json=[]).status_code == 400
    document = client.get(f"{JOBS}/a/document").json()
    assert document["resources"] == {"instance_type": "X"} and "name" not in document
    assert client.post(JOBS, json=document).status_code == 201


def test_a_job_sent_again_says_that_it_was_not_submitted(client: TestClient) -> None:
    document = {"name": "a", "command": "true", "environment": "python"}
    first, second = (client.post(JOBS, json=document) for _ in range(2))
    assert (first.status_code, first.json()["submitted"]) == (201, True)
    assert (second.status_code, second.json()["submitted"]) == (200, False)
    assert second.json()["created_at"] == first.json()["created_at"]


def test_validate_returns_notices(client: TestClient) -> None:
    document = {"command": "true", "environment": "AzureML-sklearn-1.5", "compute": "serverless"}
    answer = client.post(f"{JOBS}/validate", json=document)
    assert [len(answer.json()["notices"]), _names(client)] == [2, []]
