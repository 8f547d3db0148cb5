"""Datastores as Azure's SDK reads and writes them; what it is told of secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.blob_site import ARM, listed
from postgres_server import NewDatabase
from torchyard.azureml.common import containers
from torchyard.data import datastores
from workspaces.served import HERE, Served, served

STORES = f"{ARM}/datastores"


@pytest.fixture(scope="module")
def server(new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("datastores")
    with served(home, new_database(home)) as made:
        yield made


@pytest.fixture
def site(server: Served) -> Iterator[Served]:
    yield server
    services = server.parts.services
    for one in datastores.list_in(services.db, services.datastores, "default"):
        if one.name not in datastores.BUILT_IN:
            datastores.drop(services.db, services.datastores, "default", one.name)


def lake(site: Served, tmp_path: Path, name: str = "lake") -> dict[str, Any]:
    """A datastore over a folder of the server's machine."""
    (tmp_path / name).mkdir()
    asked = {"name": name, "type": "local", "path": str(tmp_path / name), "description": "big"}
    made: dict[str, Any] = site.ok("dan", "PUT", f"{HERE}/datastores/{name}", asked)
    return made


def share(**properties: Any) -> dict[str, Any]:
    """The body with which the SDK makes a file share's datastore."""
    told = {
        "datastoreType": "AzureFile",
        "accountName": "acct",
        "fileShareName": "share",
        "endpoint": "@testserver",
        "protocol": "https",
        "credentials": {
            "credentialsType": "AccountKey",
            "secrets": {"secretsType": "AccountKey", "key": "c2VjcmV0"},
        },
        "tags": {"a": "b"},
        "description": "shared",
    }
    return {"properties": {**told, **properties}}


def test_those_that_are_always_there(site: Served) -> None:
    found = site.ok("rita", "GET", STORES)["value"]
    assert [one["name"] for one in found] == list(datastores.BUILT_IN)
    default = site.ok("rita", "GET", f"{STORES}?isDefault=true&api-version=2023-04-01")["value"]
    assert [one["name"] for one in default] == ["workspaceblobstore"]
    told = default[0]["properties"]
    assert told["isDefault"] and told["datastoreType"] == "AzureBlob"
    assert told["accountName"] == containers.account("default")
    assert told["containerName"] == containers.container("default", "workspaceblobstore")
    assert told["credentials"] == {"credentialsType": "Sas"}
    assert told["endpoint"] == "@testserver"
    others = site.ok("rita", "GET", f"{STORES}?isDefault=false")["value"]
    assert [one["name"] for one in others] == ["workspaceartifactstore"]
    one = site.ok("rita", "GET", f"{STORES}/workspaceblobstore")
    assert one["id"].endswith("/workspaces/default/datastores/workspaceblobstore")
    assert one["type"] == "Microsoft.MachineLearningServices/workspaces/datastores"


def test_pages(site: Served, tmp_path: Path) -> None:
    for name in ("one", "two"):
        lake(site, tmp_path, name)
    first = site.ok("dan", "GET", f"{STORES}?count=3")
    assert len(first["value"]) == 3
    rest = site.client.get(
        first["nextLink"], headers={"Authorization": f"Bearer {site.tokens['dan']}"}
    ).json()
    names = [one["name"] for one in first["value"] + rest["value"]]
    assert names == [*datastores.BUILT_IN, "one", "two"] and "nextLink" not in rest
    assert [one["name"] for one in site.ok("dan", "GET", f"{STORES}?searchText=TW")["value"]] == [
        "two"
    ]


def test_files_of_any_datastore(site: Served, tmp_path: Path) -> None:
    """Whatever a datastore is, its container is read and written."""
    lake(site, tmp_path)
    (tmp_path / "lake" / "sub").mkdir()
    (tmp_path / "lake" / "sub" / "x").write_bytes(b"content")
    told = site.ok("dan", "GET", f"{STORES}/lake")["properties"]
    assert told["description"] == "big"
    assert told["properties"]["torchyard.path"] == str(tmp_path / "lake")
    key = site.ok("dan", "POST", f"{STORES}/lake/listSecrets", {"expirableSecret": True})
    top, query = f"/{told['containerName']}", key["sasToken"]
    page: Any = site.client.get(f"{top}?restype=container&comp=list&{query}")
    assert listed(page)[0] == ["sub/x"]
    assert site.client.get(f"{top}/sub/x?{query}").content == b"content"
    headers = {"x-ms-blob-type": "BlockBlob"}
    assert site.client.put(f"{top}/y?{query}", content=b"y", headers=headers).status_code == 201
    assert (tmp_path / "lake" / "y").read_bytes() == b"y"
    assert site.ask("dan", "DELETE", f"{STORES}/lake").status_code == 200
    assert site.client.get(f"{top}/sub/x?{query}").status_code == 404
    assert (tmp_path / "lake" / "y").exists()
    assert site.ask("dan", "GET", f"{STORES}/lake").status_code == 404


def test_a_description_that_is_changed(site: Served, tmp_path: Path) -> None:
    """The SDK reads a datastore and puts it back: it stays where it is."""
    made = lake(site, tmp_path)
    told = site.ok("dan", "GET", f"{STORES}/lake")
    properties = {**told["properties"], "description": "bigger", "tags": {"a": "b"}}
    changed = site.ask("dan", "PUT", f"{STORES}/lake", {"properties": properties})
    assert changed.status_code == 200
    assert changed.json()["properties"]["description"] == "bigger"
    shown = site.ok("dan", "GET", f"{HERE}/datastores/lake")
    assert shown["tags"] == {"a": "b"} and shown["path"] == made["path"]
    there = site.ok("dan", "GET", f"{STORES}/workspaceblobstore")
    same = site.ask("dan", "PUT", f"{STORES}/workspaceblobstore", there)
    assert same.status_code == 200
    there["properties"]["description"] = "mine"
    assert site.ask("dan", "PUT", f"{STORES}/workspaceblobstore", there).status_code == 409
    twice = site.ask("dan", "PUT", f"{STORES}/second", {"properties": properties})
    assert twice.status_code == 409 and "another datastore" in twice.text


def test_made_with_a_key(site: Served) -> None:
    """The package for SMB is not everywhere: the refusal is ours, and names it."""
    made = site.ask("dan", "PUT", f"{STORES}/share", share())
    if made.status_code == 400:
        assert "torchyard[smb]" in made.text
        return
    assert made.status_code == 201
    assert "c2VjcmV0" not in site.ask("dan", "GET", f"{STORES}/share").text
    told = made.json()["properties"]
    assert told["properties"]["torchyard.account_name"] == "acct"
    assert told["properties"]["torchyard.file_share_name"] == "share"
    secret = site.ok("dan", "POST", f"{STORES}/share/listSecrets", {})
    assert secret["secretsType"] == "Sas" and "c2VjcmV0" not in str(secret)
    assert site.ask("dan", "PUT", f"{STORES}/share", share()).status_code == 200


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"datastoreType": "AzureDataLakeGen1"}, "retired"),
        ({"datastoreType": "OneLake"}, "Fabric"),
        ({"datastoreType": "Hdfs"}, "not a datastore type"),
        ({"datastoreType": None}, "no `type`"),
        ({"accountName": None}, "account_name"),
        ({"credentials": {"credentialsType": "Certificate"}}, "Certificate"),
        ({"credentials": {"credentialsType": "AccountKey"}}, "without their secret"),
        ({"credentials": {"credentialsType": "None"}}, "account's key"),
        ({"tags": ["a"]}, "tags"),
    ],
)
def test_what_is_refused(site: Served, properties: dict[str, Any], said: str) -> None:
    answer = site.ask("dan", "PUT", f"{STORES}/share", share(**properties))
    assert answer.status_code == 400, answer.text
    assert said in answer.json()["error"]["message"]
    assert site.ask("dan", "GET", f"{STORES}/share").status_code == 404


def test_who_may(site: Served, tmp_path: Path) -> None:
    assert site.ask("rita", "PUT", f"{STORES}/share", share()).status_code == 403
    lake(site, tmp_path)
    assert site.ask("rita", "DELETE", f"{STORES}/lake").status_code == 403
    assert site.ask("dan", "DELETE", f"{STORES}/workspaceblobstore").status_code == 409
    missing = site.ask("dan", "GET", f"{STORES}/workspaceblobstor")
    assert missing.status_code == 404
    assert "did you mean `workspaceblobstore`?" in missing.json()["error"]["message"]
