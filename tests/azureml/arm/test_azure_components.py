"""Components in the requests of Azure ML's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from torchyard.data.codes import CodeRequest, Places, register
from torchyard.data.datastores import BLOB_STORE
from workspaces.served import HERE, served

ENVIRONMENT = f"azureml:{WORKSPACE}/environments/sklearn-1.5/versions/1"
SPEC: dict[str, Any] = {
    "$schema": "https://azuremlschemas.azureedge.net/latest/commandComponent.schema.json",
    "_source": "YAML.COMPONENT",
    "name": "train",
    "version": "1",
    "display_name": "Train",
    "type": "command",
    "is_deterministic": True,
    "command": "python train.py --rate ${{inputs.rate}}",
    "environment": ENVIRONMENT,
    "inputs": {"rate": {"type": "number", "default": "0.1", "optional": True}},
    "outputs": {"model": {"type": "uri_folder"}},
}


@pytest.fixture
def azure(tmp_path: Path, database_url: str) -> Iterator[Azure]:
    with served(tmp_path, database_url) as site:
        yield Azure(site)


def _body(isAnonymous: bool = False, **changes: Any) -> dict[str, Any]:
    spec = {key: value for key, value in {**SPEC, **changes}.items() if value is not None}
    return {"componentSpec": spec, "isAnonymous": isAnonymous, "properties": {"hash": "abc"}}


def test_a_component_is_returned_as_it_was_put(azure: Azure) -> None:
    created = azure.put("components/train/versions/1", {**_body(), "tags": {"a": "1"}})
    spec = created["properties"]["componentSpec"]
    for key in ("display_name", "command", "environment", "inputs", "outputs", "type", "name"):
        assert spec[key] == SPEC[key]
    assert created["properties"]["tags"] == spec["tags"] == {"a": "1"}
    assert azure.ask("GET", "components/train/versions/azureml_default") == created
    assert azure.names("components") == ["train"]


def test_code_is_stored_as_its_snapshot(azure: Azure) -> None:
    services = azure.site.parts.services
    with services.datastores.writing(
        "default", BLOB_STORE, "LocalUpload/c/src/train.py"
    ) as writing:
        writing.write(b"print()\n")
    locations = Places(services.db, services.clock, services.datastores, services.blobs)
    uri = f"azureml://datastores/{BLOB_STORE}/paths/LocalUpload/c/src"
    code, _ = register(locations, "default", CodeRequest("code-1", "1", uri), "dan")
    original = f"azureml:{WORKSPACE}/codes/code-1/versions/1"
    created = azure.put("components/train/versions/1", _body(code=original))["properties"]
    stored = created["componentSpec"]["code"]
    assert stored == f"azureml:{WORKSPACE}/codes/{code.snapshot}/versions/1"
    # A client archives it by putting back what it read.
    azure.put("components/train/versions/1", {**created, "isArchived": True})
    assert azure.names("components") == []
    assert azure.names("components/train/versions", listViewType="ArchivedOnly") == ["1"]
    unknown = _body(code=f"azureml:{WORKSPACE}/codes/nothing/versions/1")
    error = azure.refused(404, "PUT", "components/train/versions/2", {"properties": unknown})
    assert "nothing" in error["message"]


def test_equal_anonymous_components_are_one(azure: Azure) -> None:
    first = azure.put("components/azureml_anonymous/versions/a-1", _body(isAnonymous=True))
    again = azure.answer(
        "PUT",
        "components/azureml_anonymous/versions/b-2",
        {"properties": _body(isAnonymous=True, name="azureml_anonymous")},
    )
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    other = azure.put(
        "components/azureml_anonymous/versions/c-3", _body(isAnonymous=True, command="true")
    )
    assert other["name"] == "c-3" and other["properties"]["isAnonymous"] is True
    assert azure.names("components") == []


def test_versions(azure: Azure) -> None:
    path = "components/train/versions"
    assert azure.answer("PUT", f"{path}/1", {"properties": _body()}).status_code == 201
    assert azure.answer("PUT", f"{path}/1", {"properties": _body()}).status_code == 200
    other = {"properties": _body(command="false")}
    assert azure.refused(409, "PUT", f"{path}/1", other)["code"] == "Conflict"
    azure.ask("PUT", f"{path}/2", other)
    container = azure.ask("GET", "components/Train")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("2", "3")
    azure.put("components/train", {**container, "isArchived": True})
    assert azure.names("components") == []


BAD: tuple[tuple[dict[str, Any], str], ...] = (
    ({"componentSpec": None}, "componentSpec"),
    (_body(command=None), "no `command`"),
    (_body(environment=None), "no `environment`"),
    (_body(type="parallel", command=None), "`parallel` are not supported yet"),
    (
        {"componentSpec": {"name": "c", "type": "pipeline", "jobs": {}}},
        "the component has no `jobs`",
    ),
    (
        _body(
            type="spark",
            command=None,
            entry={"file": "a.py"},
            conf={},
            environment=f"azureml:{WORKSPACE}/environments/nothing/versions/9",
            code=f"azureml:{WORKSPACE}/codes/nothing/versions/1",
        ),
        "components of type `spark` are not supported yet",
    ),
    (_body(type="paralel"), "not supported yet"),
    (_body(type="strange"), "not a component type"),
    (_body(inputs={"a": {"type": "intger"}}), "did you mean `integer`?"),
    (_body(inputs={"a": {"type": "uri_file", "default": "x"}}), "`default`"),
    (_body(inputs={"a": "integer"}), "`a: {type: number}`"),
    (_body(outputs={"a": {"type": "uri_folder", "pth": 1}}), "did you mean `path`?"),
    (_body(outputs=[1]), "`outputs` is not a mapping"),
    (_body(comand="x"), "did you mean `command`?"),
)


def test_invalid_values_are_named(azure: Azure) -> None:
    for properties, message in BAD:
        error = azure.refused(400, "PUT", "components/bad/versions/1", {"properties": properties})
        assert message in error["message"], error["message"]
    assert azure.names("components", listViewType="All") == []
    azure.refused(404, "GET", "components/train/versions/1")
    Azure(azure.site, "rita").refused(
        403, "PUT", "components/train/versions/1", {"properties": _body()}
    )


def test_a_workspace_with_a_component_is_not_empty(azure: Azure) -> None:
    azure.site.ok("home", "POST", "/v1/workspaces", {"name": "vision"})
    existing = WORKSPACE.replace("workspaces/default", "workspaces/vision")
    owner = Azure(azure.site, "home")
    spec = {**SPEC, "environment": "azureml:python@latest"}
    body = {"properties": {"componentSpec": spec}}
    owner.ask("PUT", f"{existing}/components/azureml_anonymous/versions/1", body)
    owner.ask("PUT", f"{existing}/components/train/versions/1", body)
    refused = azure.site.ask("home", "DELETE", "/v1/workspaces/vision")
    assert refused.status_code == 409 and "component `train`" in refused.text
    assert HERE.endswith("default")
