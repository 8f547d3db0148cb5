"""Models in the requests of Azure ML's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from azureml.azure_server import WORKSPACE, Azure
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


def _model(**overrides: object) -> dict[str, object]:
    return {"modelType": "custom_model", "modelUri": FOLDER, **overrides}


def _files_at(azure: Azure, uri: str) -> dict[str, int]:
    assert uri.startswith(f"{LONG}/paths/")
    path = uri.removeprefix(f"{LONG}/paths/")
    return dict(azure.site.parts.services.datastores.list("default", BLOB_STORE, path))


def test_a_model_has_its_own_copy(azure: Azure) -> None:
    fields = {"description": "d", "tags": {"a": "1"}, "properties": {"b": "2"}, "stage": "Staging"}
    created = azure.put("models/m/versions/1", _model(**fields))["properties"]
    assert {key: created[key] for key in fields} == fields
    # Clients read these keys without checking that they exist.
    assert (created["flavors"], created["modelType"], created["isArchived"]) == (
        {},
        "custom_model",
        False,
    )
    assert created["modelUri"] != FOLDER
    expected = {path: len(content) for path, content in FILES.items()}
    assert _files_at(azure, created["modelUri"]) == expected
    native = azure.site.ok("dan", "GET", f"{HERE}/models/m/versions/1")
    assert native["properties"] == {"b": "2", "stage": "Staging"}


def test_a_model_of_one_file_names_the_file(azure: Azure) -> None:
    created = azure.put("models/m/versions/1", _model(modelUri=f"{FOLDER}/data/weights.bin"))
    assert created["properties"]["modelUri"].endswith("/weights.bin")


def test_a_model_may_be_put_again_with_its_source_or_its_copy(azure: Azure) -> None:
    path = "models/m/versions/1"
    first = azure.put(path, _model(tags={"a": "1", "b": "2"}, stage="Staging"))["properties"]
    again = azure.answer("PUT", path, {"properties": _model(tags={"a": "3"})})
    assert again.status_code == 200
    assert again.json()["properties"]["tags"] == {"a": "3"}
    # The SDK archives by putting back what it read, without the stage.
    archived = {**first, "isArchived": True}
    del archived["stage"]
    result = azure.put(path, archived)["properties"]
    assert (result["isArchived"], result["stage"]) == (True, "Staging")
    assert azure.names("models") == []
    assert azure.names("models/m/versions", listViewType="All", stage="staging") == ["1"]
    assert azure.names("models/m/versions", listViewType="All", stage="Production") == []
    other = _model(modelUri=f"{FOLDER}/data")
    assert azure.refused(409, "PUT", path, {"properties": other})["code"] == "Conflict"


def test_numbers_of_deleted_versions_are_not_reused(azure: Azure) -> None:
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
    (_model(modelUri="./local"), 400, "is not a path of a model"),
    (_model(properties=3), 400, "`properties`"),
)


def test_invalid_values_are_named(azure: Azure) -> None:
    for properties, status, message in BAD:
        error = azure.refused(status, "PUT", "models/bad/versions/1", {"properties": properties})
        assert message in error["message"]
    body = {"properties": _model()}
    assert "whole number" in azure.refused(400, "PUT", "models/m/versions/v1", body)["message"]
    assert azure.names("models", listViewType="All") == []
    Azure(azure.site, "rita").refused(403, "DELETE", "models/m/versions/1")


def test_a_models_files_are_listed_with_those_of_every_version(azure: Azure) -> None:
    for version in ("1", "2"):
        azure.put(f"models/m/versions/{version}", _model())
    top = "/artifact/v1.0" + WORKSPACE + "/artifacts"
    listed = azure.site.ask("dan", "GET", f"{top}/prefix/contentinfo/RegisteredModel/m")
    assert listed.status_code == 200, listed.text
    expected = sorted(f"{version}/{path}" for version in ("1", "2") for path in FILES)
    assert sorted(item["path"] for item in listed.json()["value"]) == expected
