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
from torchyard.workspaces import actions
from torchyard.workspaces.types import Identity, Role, TokenKind

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


def test_a_job_does_not_change_whom_the_workspace_tells(client: TestClient) -> None:
    parts: Any = client.app.state  # type: ignore[attr-defined]
    with parts.db.write() as connection:
        job = Identity("me", TokenKind.RUN, "default", "run/x", Role.OWNER)
        actions.keep_token(connection, "yard_r_of-the-job", job, parts.clock.now())
    changes = {"notify": [{"url": "https://hooks.example.org/"}]}
    headers = {"Authorization": "Bearer yard_r_of-the-job"}
    refused = client.patch(f"{WORKSPACES}/default", json=changes, headers=headers)
    assert refused.status_code == 403, refused.text
    assert client.get(f"{WORKSPACES}/default").json()["notify"] == []
    changed = client.patch(f"{WORKSPACES}/default", json=changes).json()
    # The page shows both.
    assert (changed["notify"], changed["notices"]) == (changes["notify"], [])


def test_a_new_workspace_has_what_the_first_one_has(client: TestClient) -> None:
    document = {"name": "vision", "resource_group": "team-a", "description": "pictures"}
    made = client.post(WORKSPACES, json=document)
    assert made.status_code == 201
    body = made.json()
    assert body.pop("notices") == []
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
    error = client.delete(here).json()["error"]
    assert "1 job" in error["message"] and "yard job delete -n NAME -w vision" in error["hint"]


def test_the_keys_of_azures_schema_are_given_back(client: TestClient) -> None:
    document = {
        "$schema": "https://azuremlschemas.azureedge.net/latest/workspace.schema.json",
        "name": "vision",
        "display_name": "Pictures of the sea",
        "tags": {"purpose": "demonstration", "year": 2026},
        "hbi_workspace": True,
        "image_build_compute": "cpu-compute",
        "public_network_access": "Enabled",
        "identity": {"type": "system_assigned"},
        "managed_network": {"isolation_mode": "disabled"},
        "key_vault": None,
    }
    body = client.post(WORKSPACES, json=document).json()
    assert (body["display_name"], body["tags"]) == (
        "Pictures of the sea",
        {"purpose": "demonstration", "year": "2026"},
    )
    assert (body["hbi_workspace"], body["image_build_compute"]) == (True, "cpu-compute")
    assert body["public_network_access"] == "enabled"
    assert body["notices"] == [
        "kept and shown, without an effect here: `hbi_workspace`, `image_build_compute`, "
        "`public_network_access`",
        "ignored, since it has no meaning here: `identity`, `managed_network`",
    ]
    here = f"{WORKSPACES}/vision"
    changes = {"tags": {"year": None, "team": "ours"}, "display_name": None, "hbi_workspace": False}
    changed = client.patch(here, json=changes).json()
    assert changed.pop("notices") == ["kept and shown, without an effect here: `hbi_workspace`"]
    assert changed["tags"] == {"purpose": "demonstration", "team": "ours"}
    assert (changed["display_name"], changed["hbi_workspace"]) == ("vision", False)
    assert changed["image_build_compute"] == "cpu-compute"
    assert client.get(here).json() == changed
    assert client.get(f"{WORKSPACES}/default").json()["tags"] == {}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("storage_account", "/subscriptions/s/…/storageAccounts/a", "files lie in the server's"),
        ("container_registry", "/subscriptions/s/…/registries/a", "without a registry"),
        ("key_vault", "/subscriptions/s/…/vaults/a", "keeps secrets itself"),
        ("application_insights", "/subscriptions/s/…/components/a", "metrics of its own"),
        ("customer_managed_key", {"key_uri": "https://a"}, "does not encrypt"),
        ("network_acls", {"default_action": "Deny"}, "not set by workspace"),
        ("primary_user_assigned_identity", "/subscriptions/s/…", "not with an identity"),
        ("workspace_hub", "/subscriptions/s/…/workspaces/hub", "no hubs"),
        ("hub_id", "/subscriptions/s/…/workspaces/hub", "no hubs"),
        ("kind", "hub", "no hubs"),
        ("serverless_compute", {"no_public_ip": True}, "no serverless compute"),
        ("public_network_access", "Disabled", "who reaches the server"),
        ("public_network_access", "Sometimes", "Sometimes"),
        ("identity", {"type": "user_assigned"}, "user_assigned"),
        ("managed_network", {"isolation_mode": "allow_internet_outbound"}, "no networks in Azure"),
        ("hbi_workspace", "yes", "`yes`"),
        ("tags", ["a"], "mapping"),
        ("display_name", "x" * 257, "257"),
        ("image_build_compute", 5, "text"),
    ],
)
def test_a_key_that_asks_for_more_is_refused_by_name(
    client: TestClient, key: str, value: Any, reason: str
) -> None:
    for answer in (
        client.post(WORKSPACES, json={"name": "vision", key: value}),
        client.patch(f"{WORKSPACES}/default", json={key: value}),
    ):
        error = answer.json()["error"]
        assert (answer.status_code, error["at"][0]) == (400, key), error
        assert reason in error["message"] and error["hint"]
    assert len(client.get(WORKSPACES).json()["value"]) == 1


def test_all_keys_that_are_wrong_are_named_at_once(client: TestClient) -> None:
    document = {
        "name": "vision",
        "descripton": "a typo",
        "hub_id": "x",
        "storage_account": "/subscriptions/s/…/storageAccounts/a",
        "public_network_access": "Disabled",
    }
    error = client.post(WORKSPACES, json=document).json()["error"]
    assert (error["message"], error["hint"]) == (
        "unknown key `descripton`",
        "did you mean `description`?",
    )
    others = [other["at"] for other in error["others"]]
    assert others == [["hub_id"], ["storage_account"], ["public_network_access"]]
    changes = {"key_vault": "/subscriptions/s/…/vaults/a", "identity": {"type": "user_assigned"}}
    error = client.patch(f"{WORKSPACES}/default", json=changes).json()["error"]
    assert "`key_vault` can't" in error["message"]
    assert "`user_assigned`" in error["others"][0]["message"] and len(error["others"]) == 1
    assert len(client.get(WORKSPACES).json()["value"]) == 1
