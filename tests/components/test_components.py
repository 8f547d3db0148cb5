"""Components over HTTP, as yard and Azure ML's clients share them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from workspaces.served import HERE, Served, served

COMPONENTS = f"{HERE}/components"
STEP: dict[str, Any] = {
    "name": "train",
    "command": "python train.py ${{inputs.rate}}",
    "environment": "python@latest",
    "inputs": {"rate": {"type": "Number", "default": 0.1}},
}


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


def _snapshot(site: Served) -> str:
    content = b"print()\n"
    sha256 = hashlib.sha256(content).hexdigest()
    blobs = site.parts.services.blobs.of("default")
    blobs.put(sha256, [content])
    file = {"path": "train.py", "sha256": sha256, "size": len(content), "mode": "0644"}
    return blobs.put_snapshot({"files": [file]}).id


def test_versions_follow_each_other(site: Served) -> None:
    first = site.ok("dan", "POST", COMPONENTS, {**STEP, "tags": {"a": "1"}})
    assert (first["version"], first["type"], first["owner"]) == ("1", "command", "dan")
    assert first["inputs"] == {"rate": {"type": "number", "default": 0.1}}
    second = site.ok("dan", "POST", COMPONENTS, {**STEP, "command": "true"})
    assert second["version"] == "2"
    again = site.ok("dan", "POST", COMPONENTS, {**STEP, "version": "1", "description": "said"})
    assert (again["version"], again["description"]) == ("1", "said")
    refused = site.ask("dan", "POST", COMPONENTS, {**STEP, "version": "2"})
    assert refused.status_code == 409 and "leave `version` out" in refused.text
    newest = site.ok("rita", "GET", f"{COMPONENTS}/train/versions/latest")
    assert newest["command"] == "true"
    site.refused("rita", "POST", COMPONENTS, STEP)


def test_archived_components_are_hidden_and_found(site: Served) -> None:
    for _ in range(2):
        site.ok("dan", "POST", COMPONENTS, STEP)
    site.ok("dan", "POST", f"{COMPONENTS}/train/versions/latest/archive")
    listed = site.ok("dan", "GET", f"{COMPONENTS}?name=train")["value"]
    assert [item["version"] for item in listed] == ["1"]
    site.ok("dan", "POST", f"{COMPONENTS}/train/archive")
    assert site.ok("dan", "GET", COMPONENTS)["value"] == []
    assert len(site.ok("dan", "GET", f"{COMPONENTS}?archived=only")["value"]) == 1
    assert site.ok("dan", "GET", f"{COMPONENTS}/train/versions/1")["archived"] is True
    site.ok("dan", "POST", f"{COMPONENTS}/train/restore")
    assert len(site.ok("dan", "GET", f"{COMPONENTS}?name=train")["value"]) == 2


def test_azures_clients_see_uploaded_code(site: Served) -> None:
    snapshot = _snapshot(site)
    site.ok("dan", "POST", COMPONENTS, {**STEP, "code": f"snapshot:{snapshot}"})
    azure = Azure(site)
    got = azure.ask("GET", "components/train/versions/1")["properties"]
    assert got["componentSpec"]["code"] == f"azureml:{WORKSPACE}/codes/{snapshot}/versions/1"
    assert got["componentSpec"]["environment"] == "azureml:python@latest"
    azure.put("components/train/versions/1", {**got, "isArchived": True})
    assert site.ok("dan", "GET", COMPONENTS)["value"] == []
    for code in ("snapshot:" + "0" * 64, "./src", 7):
        answer = site.ask("dan", "POST", COMPONENTS, {**STEP, "code": code})
        assert answer.status_code in (400, 404), answer.text


def test_a_missing_component(site: Served) -> None:
    site.ok("dan", "POST", COMPONENTS, STEP)
    missing = site.ask("dan", "GET", f"{COMPONENTS}/trai/versions/1")
    assert missing.status_code == 404 and "did you mean `train`?" in missing.text
    assert site.ask("dan", "POST", COMPONENTS, [1]).status_code == 400
