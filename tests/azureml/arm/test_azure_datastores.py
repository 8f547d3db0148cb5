"""Datastores as Azure's SDK reads and writes them; the secrets that it gets."""

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
    with served(home, new_database(home)) as created:
        yield created


@pytest.fixture
def site(server: Served) -> Iterator[Served]:
    yield server
    services = server.parts.services
    for item in datastores.list_in(services.db, services.datastores, "default"):
        if item.name not in datastores.BUILT_IN:
            datastores.drop(services.db, services.datastores, "default", item.name, item.owner)


def lake(site: Served, tmp_path: Path, name: str = "lake") -> dict[str, Any]:
    """A datastore for a folder of the server's machine."""
    (tmp_path / name).mkdir()
    request = {"name": name, "type": "local", "path": str(tmp_path / name), "description": "big"}
    created: dict[str, Any] = site.ok("dan", "PUT", f"{HERE}/datastores/{name}", request)
    return created


def share(**properties: Any) -> dict[str, Any]:
    """The body that the SDK sends to create a file share's datastore."""
    response = {
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
    return {"properties": {**response, **properties}}


def test_built_in_datastores_always_exist(site: Served) -> None:
    result = site.ok("rita", "GET", STORES)["value"]
    assert [item["name"] for item in result] == list(datastores.BUILT_IN)
    default = site.ok("rita", "GET", f"{STORES}?isDefault=true&api-version=2023-04-01")["value"]
    assert [item["name"] for item in default] == ["workspaceblobstore"]
    response = default[0]["properties"]
    assert response["isDefault"] and response["datastoreType"] == "AzureBlob"
    assert response["accountName"] == containers.account("default")
    assert response["containerName"] == containers.container("default", "workspaceblobstore")
    assert response["credentials"] == {"credentialsType": "Sas"}
    assert response["endpoint"] == "@testserver"
    others = site.ok("rita", "GET", f"{STORES}?isDefault=false")["value"]
    assert [item["name"] for item in others] == ["workspaceartifactstore"]
    item = site.ok("rita", "GET", f"{STORES}/workspaceblobstore")
    assert item["id"].endswith("/workspaces/default/datastores/workspaceblobstore")
    assert item["type"] == "Microsoft.MachineLearningServices/workspaces/datastores"


def test_pages(site: Served, tmp_path: Path) -> None:
    for name in ("one", "two"):
        lake(site, tmp_path, name)
    first = site.ok("dan", "GET", f"{STORES}?count=3")
    assert len(first["value"]) == 3
    remaining = site.client.get(
        first["nextLink"], headers={"Authorization": f"Bearer {site.tokens['dan']}"}
    ).json()
    names = [item["name"] for item in first["value"] + remaining["value"]]
    assert names == [*datastores.BUILT_IN, "one", "two"] and "nextLink" not in remaining
    assert [item["name"] for item in site.ok("dan", "GET", f"{STORES}?searchText=TW")["value"]] == [
        "two"
    ]


def test_files_of_any_datastore(site: Served, tmp_path: Path) -> None:
    """The container of any datastore can be read and written."""
    lake(site, tmp_path)
    (tmp_path / "lake" / "sub").mkdir()
    (tmp_path / "lake" / "sub" / "x").write_bytes(b"content")
    response = site.ok("dan", "GET", f"{STORES}/lake")["properties"]
    assert response["description"] == "big"
    assert response["properties"]["torchyard.path"] == str(tmp_path / "lake")
    key = site.ok("dan", "POST", f"{STORES}/lake/listSecrets", {"expirableSecret": True})
    top, query = f"/{response['containerName']}", key["sasToken"]
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


def test_a_description_is_changed(site: Served, tmp_path: Path) -> None:
    """The SDK reads a datastore and puts it back: its location stays."""
    created = lake(site, tmp_path)
    response = site.ok("dan", "GET", f"{STORES}/lake")
    properties = {**response["properties"], "description": "bigger", "tags": {"a": "b"}}
    changed = site.ask("dan", "PUT", f"{STORES}/lake", {"properties": properties})
    assert changed.status_code == 200
    assert changed.json()["properties"]["description"] == "bigger"
    document = site.ok("dan", "GET", f"{HERE}/datastores/lake")
    assert document["tags"] == {"a": "b"} and document["path"] == created["path"]
    existing = site.ok("dan", "GET", f"{STORES}/workspaceblobstore")
    same = site.ask("dan", "PUT", f"{STORES}/workspaceblobstore", existing)
    assert same.status_code == 200
    existing["properties"]["description"] = "mine"
    assert site.ask("dan", "PUT", f"{STORES}/workspaceblobstore", existing).status_code == 409
    twice = site.ask("dan", "PUT", f"{STORES}/second", {"properties": properties})
    assert twice.status_code == 409 and "another datastore" in twice.text


def test_a_datastore_is_created_with_a_key(site: Served) -> None:
    """The package for SMB may be missing: our error names it."""
    created = site.ask("dan", "PUT", f"{STORES}/share", share())
    if created.status_code == 400:
        assert "torchyard[smb]" in created.text
        return
    assert created.status_code == 201
    assert "c2VjcmV0" not in site.ask("dan", "GET", f"{STORES}/share").text
    response = created.json()["properties"]
    assert response["properties"]["torchyard.account_name"] == "acct"
    assert response["properties"]["torchyard.file_share_name"] == "share"
    secret = site.ok("dan", "POST", f"{STORES}/share/listSecrets", {})
    assert secret["secretsType"] == "Sas" and "c2VjcmV0" not in str(secret)
    assert site.ask("dan", "PUT", f"{STORES}/share", share()).status_code == 200


def test_a_share_with_a_sas_token_is_kept_and_says_at_use_what_it_lacks(site: Served) -> None:
    secrets = {"secretsType": "Sas", "sasToken": "?sig=c2VjcmV0"}
    request = share(credentials={"credentialsType": "Sas", "secrets": secrets})
    created = site.ask("dan", "PUT", f"{STORES}/share", request)
    assert created.status_code == 201 and "c2VjcmV0" not in created.text
    response = created.json()["properties"]
    sas = site.ok("dan", "POST", f"{STORES}/share/listSecrets", {})["sasToken"]
    assert "c2VjcmV0" not in sas
    read: Any = site.client.get(f"/{response['containerName']}/x?{sas}")
    assert read.status_code == 400 and "needs the account's key" in read.text
    assert site.ask("dan", "DELETE", f"{STORES}/share").status_code == 200


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        ({"datastoreType": "AzureDataLakeGen1"}, "retired"),
        ({"datastoreType": "OneLake"}, "Fabric"),
        ({"datastoreType": "Hdfs"}, "not a datastore type"),
        ({"datastoreType": None}, "no `type`"),
        ({"accountName": None}, "account_name"),
        ({"credentials": {"credentialsType": "Certificate"}}, "Certificate"),
        ({"credentials": {"credentialsType": "AccountKey"}}, "have no secret"),
        ({"credentials": {"credentialsType": "None"}}, "account's key"),
        ({"tags": ["a"]}, "tags"),
    ],
)
def test_unsupported_values_are_refused(
    site: Served, properties: dict[str, Any], fields: str
) -> None:
    answer = site.ask("dan", "PUT", f"{STORES}/share", share(**properties))
    assert answer.status_code == 400, answer.text
    assert fields in answer.json()["error"]["message"]
    assert site.ask("dan", "GET", f"{STORES}/share").status_code == 404


def test_permissions_of_each_role(site: Served, tmp_path: Path) -> None:
    assert site.ask("rita", "PUT", f"{STORES}/share", share()).status_code == 403
    lake(site, tmp_path)
    assert site.ask("rita", "DELETE", f"{STORES}/lake").status_code == 403
    assert site.ask("dan", "DELETE", f"{STORES}/workspaceblobstore").status_code == 409
    missing = site.ask("dan", "GET", f"{STORES}/workspaceblobstor")
    assert missing.status_code == 404
    assert "did you mean `workspaceblobstore`?" in missing.json()["error"]["message"]
