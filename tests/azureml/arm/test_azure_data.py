"""Data assets in the requests of Azure ML's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from azureml.azure_server import Azure
from torchyard.data.datastores import BLOB_STORE
from workspaces.served import HERE, served

LONG = "azureml://subscriptions/local/resourcegroups/torchyard/workspaces/default/datastores"
FOLDER = f"{LONG}/{BLOB_STORE}/paths/LocalUpload/abc/cats/"


@pytest.fixture
def azure(tmp_path: Path, database_url: str) -> Iterator[Azure]:
    with served(tmp_path, database_url) as site:
        stores = site.parts.services.datastores
        for path in ("LocalUpload/abc/cats/a.csv", "LocalUpload/abc/table/MLTable", "one.csv"):
            with stores.writing("default", BLOB_STORE, path) as writing:
                writing.write(b"a,b\n1,2\n")
        yield Azure(site)


def _folder(**overrides: object) -> dict[str, object]:
    return {"dataType": "uri_folder", "dataUri": FOLDER, **overrides}


def test_data_is_returned_as_it_was_put(azure: Azure) -> None:
    created = azure.put("data/cats/versions/1", _folder(description="cats", tags={"n": "1"}))
    document = created["properties"]
    assert (document["dataType"], document["dataUri"]) == ("uri_folder", FOLDER)
    assert (document["description"], document["tags"]) == ("cats", {"n": "1"})
    native = azure.site.ok("dan", "GET", f"{HERE}/data/cats/versions/1")
    assert native["path"] == f"azureml://datastores/{BLOB_STORE}/paths/LocalUpload/abc/cats/"
    assert azure.ask("GET", "data/cats")["properties"]["dataType"] == "uri_folder"


def test_other_types(azure: Azure) -> None:
    uri = f"azureml://datastores/{BLOB_STORE}/paths/one.csv"
    item = azure.put("data/one/versions/1", {"dataType": "uri_file", "dataUri": uri})
    assert item["properties"]["dataUri"] == f"{LONG}/{BLOB_STORE}/paths/one.csv"
    table = f"{LONG}/{BLOB_STORE}/paths/LocalUpload/abc/table/"
    created = azure.put("data/t/versions/1", {"dataType": "mltable", "dataUri": table})
    assert created["properties"]["referencedUris"] == []
    url = "https://example.org/iris.csv"
    far = azure.put("data/far/versions/1", {"dataType": "uri_file", "dataUri": url})
    assert far["properties"]["dataUri"] == url


def test_a_version_put_again_keeps_its_path(azure: Azure) -> None:
    path = "data/cats/versions/1"
    assert azure.answer("PUT", path, {"properties": _folder()}).status_code == 201
    again = azure.answer("PUT", path, {"properties": _folder(tags={"n": "2"})})
    assert (again.status_code, again.json()["properties"]["tags"]) == (200, {"n": "2"})
    other = {"dataType": "uri_folder", "dataUri": FOLDER.replace("cats", "table")}
    assert azure.refused(409, "PUT", path, {"properties": other})["code"] == "Conflict"
    patched = azure.ask("PATCH", path, {"properties": {"description": "still here"}})
    assert patched["properties"]["tags"] == {"n": "2"}
    assert patched["properties"]["description"] == "still here"


def test_data_can_be_archived_after_its_files_were_deleted(azure: Azure) -> None:
    azure.put("data/cats/versions/1", _folder())
    azure.site.parts.services.datastores.delete("default", BLOB_STORE, "LocalUpload")
    got = azure.ask("GET", "data/cats/versions/1")["properties"]
    azure.put("data/cats/versions/1", {**got, "isArchived": True})
    assert azure.names("data") == []
    assert azure.names("data", listViewType="All") == ["cats"]
    # The SDK's `create_or_update` sends `isArchived: false`.
    azure.put("data/cats/versions/1", {**got, "isArchived": False})
    assert azure.names("data") == ["cats"]


def test_next_and_latest(azure: Azure) -> None:
    for version in ("1", "2024-01-01", "4"):
        azure.put(f"data/cats/versions/{version}", _folder())
    container = azure.ask("GET", "data/CATS")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("4", "5")
    azure.put("data/cats/versions/4", _folder(isArchived=True))
    container = azure.ask("GET", "data/cats")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("2024-01-01", "5")


BAD: tuple[tuple[dict[str, object], int, str], ...] = (
    ({"dataType": "uri_folder"}, 400, "dataUri"),
    (_folder(dataUri=5), 400, "`dataUri` is not a string"),
    (_folder(dataType="uri_foldr"), 400, "did you mean `uri_folder`?"),
    (_folder(dataUri=FOLDER.replace("cats", "dogs")), 404, "was deleted"),
    (_folder(dataUri=FOLDER.replace(BLOB_STORE, "nothere")), 404, "nothere"),
    (_folder(dataUri=FOLDER.replace("workspaces/default", "workspaces/x")), 404, "`x`"),
    (_folder(dataUri=f"{LONG}/{BLOB_STORE}/paths/../../x"), 400, "leads out"),
    (_folder(dataUri="/home/me/data"), 400, "/home/me/data"),
    (_folder(dataType="uri_file"), 400, "is a folder"),
    (_folder(tags=["a"]), 400, "`tags`"),
    (_folder(description={"a": 1}), 400, "`description`"),
)


def test_data_that_is_written_later_is_registered(azure: Azure) -> None:
    later = f"{LONG}/{BLOB_STORE}/paths/features/v2/"
    azure.put("data/later/versions/1", _folder(dataUri=later))
    assert azure.ask("GET", "data/later/versions/1")["properties"]["dataUri"] == later


def test_invalid_values_are_named(azure: Azure) -> None:
    for properties, status, message in BAD:
        error = azure.refused(status, "PUT", "data/bad/versions/1", {"properties": properties})
        assert message in error["message"]
    assert azure.names("data", listViewType="All") == []


def test_readers_only_read(azure: Azure) -> None:
    reader = Azure(azure.site, "rita")
    assert reader.names("data") == []
    reader.refused(403, "PUT", "data/cats/versions/1", {"properties": _folder()})
    azure.put("data/cats/versions/1", _folder())
    reader.refused(403, "PATCH", "data/cats", {"properties": {"isArchived": True}})
    azure.refused(400, "PUT", "data/cats", {"properties": {"description": "of all"}})
