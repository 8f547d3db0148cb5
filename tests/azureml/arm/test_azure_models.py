"""Models as Azure ML's clients ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from azureml.azure_server import Azure
from torchyard.data.datastores import BLOB_STORE
from workspaces.served import HERE, served

LONG = f"azureml://subscriptions/local/resourcegroups/torchyard/workspaces/default/datastores/{BLOB_STORE}"
FOLDER = f"{LONG}/paths/LocalUpload/abc/model"
FILES = {"MLmodel": b"flavors: {}\n", "data/weights.bin": b"\0" * 100}


@pytest.fixture
def azure(tmp_path: Path, database_url: str) -> Iterator[Azure]:
    with served(tmp_path, database_url) as site:
        stores = site.parts.services.datastores
        for path, content in FILES.items():
            with stores.writing("default", BLOB_STORE, f"LocalUpload/abc/model/{path}") as writing:
                writing.write(content)
        yield Azure(site)


def _model(**more: object) -> dict[str, object]:
    return {"modelType": "custom_model", "modelUri": FOLDER, **more}


def _files_at(azure: Azure, uri: str) -> dict[str, int]:
    assert uri.startswith(f"{LONG}/paths/")
    path = uri.removeprefix(f"{LONG}/paths/")
    return dict(azure.site.parts.services.datastores.list("default", BLOB_STORE, path))


def test_a_model_has_its_own_copy(azure: Azure) -> None:
    said = {"description": "d", "tags": {"a": "1"}, "properties": {"b": "2"}, "stage": "Staging"}
    made = azure.put("models/m/versions/1", _model(**said))["properties"]
    assert {key: made[key] for key in said} == said
    # Clients index these without asking whether they are there.
    assert (made["flavors"], made["modelType"], made["isArchived"]) == ({}, "custom_model", False)
    assert made["modelUri"] != FOLDER
    expected = {path: len(content) for path, content in FILES.items()}
    assert _files_at(azure, made["modelUri"]) == expected
    ours = azure.site.ok("dan", "GET", f"{HERE}/models/m/versions/1")
    assert ours["properties"] == {"b": "2", "stage": "Staging"}


def test_one_file_is_named_and_not_its_folder(azure: Azure) -> None:
    made = azure.put("models/m/versions/1", _model(modelUri=f"{FOLDER}/data/weights.bin"))
    assert made["properties"]["modelUri"].endswith("/weights.bin")


def test_put_again_it_is_the_same_by_either_place(azure: Azure) -> None:
    path = "models/m/versions/1"
    first = azure.put(path, _model(tags={"a": "1", "b": "2"}, stage="Staging"))["properties"]
    again = azure.answer("PUT", path, {"properties": _model(tags={"a": "3"})})
    assert again.status_code == 200
    assert again.json()["properties"]["tags"] == {"a": "3"}
    # The SDK archives by putting back what it got, without the stage.
    archived = {**first, "isArchived": True}
    del archived["stage"]
    found = azure.put(path, archived)["properties"]
    assert (found["isArchived"], found["stage"]) == (True, "Staging")
    assert azure.names("models") == []
    assert azure.names("models/m/versions", listViewType="All", stage="staging") == ["1"]
    assert azure.names("models/m/versions", listViewType="All", stage="Production") == []
    other = _model(modelUri=f"{FOLDER}/data")
    assert azure.refused(409, "PUT", path, {"properties": other})["code"] == "Conflict"


def test_numbers_of_deleted_versions_are_not_given_again(azure: Azure) -> None:
    azure.put("models/m/versions/1", _model())
    azure.put("models/m/versions/2", _model())
    azure.ask("DELETE", "models/m/versions/2")
    container = azure.ask("GET", "models/M")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("1", "3")
    azure.put("models/m", {**container, "isArchived": True})
    assert azure.names("models", listViewType="ArchivedOnly") == ["m"]


BAD: tuple[tuple[dict[str, object], int, str], ...] = (
    ({}, 400, "modelUri"),
    (_model(modelType="custm_model"), 400, "did you mean `custom_model`?"),
    (_model(modelType="mlflow_model", modelUri=f"{FOLDER}/data"), 400, "no file `MLmodel`"),
    (_model(modelUri=f"{LONG}/paths/nothing/here"), 404, "nothing"),
    (_model(modelUri="azureml://jobs/nojob/outputs/artifacts/paths/model"), 404, "nojob"),
    (_model(modelUri="./local"), 400, "no path of a model"),
    (_model(properties=3), 400, "`properties`"),
)


def test_what_is_wrong_is_told(azure: Azure) -> None:
    for properties, status, told in BAD:
        error = azure.refused(status, "PUT", "models/bad/versions/1", {"properties": properties})
        assert told in error["message"]
    body = {"properties": _model()}
    assert "whole number" in azure.refused(400, "PUT", "models/m/versions/v1", body)["message"]
    assert azure.names("models", listViewType="All") == []
    Azure(azure.site, "rita").refused(403, "DELETE", "models/m/versions/1")
