"""Environments in the requests of Azure ML's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from azureml.azure_server import WORKSPACE, Azure
from torchyard.data.datastores import BLOB_STORE
from workspaces.served import HERE, served

CONDA = "name: mine\ndependencies:\n  - python=3.11\n  - pip:\n      - tqdm==4.67.1\n"
IMAGE = "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"


@pytest.fixture
def azure(tmp_path: Path, database_url: str) -> Iterator[Azure]:
    with served(tmp_path, database_url) as site:
        yield Azure(site)


def test_an_environment_is_returned_as_it_was_put(azure: Azure) -> None:
    fields = {"description": "for training", "tags": {"team": "vision"}, "properties": {"a": "1"}}
    content = {"image": IMAGE, "condaFile": CONDA, "osType": "Linux"}
    created = azure.put("environments/Mine/versions/1", {**content, **fields, "isAnonymous": False})
    assert created["id"] == f"{WORKSPACE}/environments/Mine/versions/1"
    assert created["type"] == "Microsoft.MachineLearningServices/workspaces/environments/versions"
    assert created["systemData"]["createdBy"] == "dan"
    document = created["properties"]
    assert {key: document[key] for key in fields} == fields
    assert (document["image"], document["environmentType"]) == (IMAGE, "UserCreated")
    assert "tqdm==4.67.1" in document["condaFile"] and "python=3.11" in document["condaFile"]
    assert azure.ask("GET", "environments/Mine/versions/1") == created
    native = azure.site.ok("dan", "GET", f"{HERE}/environments/Mine/versions/1")
    assert native["image"] == IMAGE and native["conda_file"]["name"] == "mine"


def test_a_version_put_again_is_the_same_and_with_another_content_is_refused(
    azure: Azure,
) -> None:
    path = "environments/e/versions/1"
    first = azure.answer("PUT", path, {"properties": {"image": IMAGE}})
    again = azure.answer("PUT", path, {"properties": {"image": IMAGE, "tags": {"n": "2"}}})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["properties"]["tags"] == {"n": "2"}
    # For the SDK, 409 means "take the next version".
    error = azure.refused(409, "PUT", path, {"properties": {"image": IMAGE, "condaFile": CONDA}})
    assert error["code"] == "Conflict"
    container = azure.ask("GET", "environments/e")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("1", "2")


def test_an_environment_created_by_yard_can_be_archived_by_the_sdk(azure: Azure) -> None:
    """It puts back what it read, with one change."""
    document = {"name": "y", "pip_requirements": ["tqdm==4.67.1"]}
    azure.site.ok("dan", "POST", f"{HERE}/environments", document)
    got = azure.ask("GET", "environments/y/versions/1")["properties"]
    assert "tqdm==4.67.1" in got["condaFile"]
    azure.put("environments/y/versions/1", {**got, "isArchived": True})
    assert "y" not in azure.names("environments")
    assert azure.names("environments/y/versions") == []
    assert azure.names("environments/y/versions", listViewType="ArchivedOnly") == ["1"]
    got = azure.ask("GET", "environments/y")["properties"]
    assert got["isArchived"] is True
    azure.put("environments/y", {**got, "isArchived": False})
    assert azure.names("environments/y/versions") == ["1"]


def test_the_latest_version_is_the_newest(azure: Azure) -> None:
    for version in ("1", "7", "2"):
        azure.put(f"environments/e/versions/{version}", {"image": IMAGE})
    query = {"$orderBy": "createdtime desc", "$top": "1"}
    page = azure.ask("GET", "environments/e/versions", **query)
    assert [item["name"] for item in page["value"]] == ["2"] and "nextLink" not in page
    container = azure.ask("GET", "environments/e")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("2", "8")
    oldest = azure.names("environments/e/versions", **{"$orderBy": "createdtime asc"})
    assert oldest == ["1", "7", "2"]


def test_names_are_found_in_any_case(azure: Azure) -> None:
    azure.put("environments/MyEnv/versions/1", {"image": IMAGE})
    assert azure.ask("GET", "environments/myenv/versions/1")["id"].endswith("MyEnv/versions/1")
    azure.put("environments/MYENV/versions/2", {"image": IMAGE})
    assert azure.names("environments/MyEnv/versions") == ["2", "1"]


def test_pages_follow_each_other(azure: Azure) -> None:
    for number in range(5):
        azure.put(f"environments/e/versions/v{number}", {"image": IMAGE})
    result, following = [], f"{WORKSPACE}/environments/e/versions?%24maxpagesize=2"
    while following:
        answer = azure.site.ask("rita", "GET", following)
        page = answer.json()
        result.append([item["name"] for item in page["value"]])
        following = page.get("nextLink", "").replace("http://testserver", "")
    assert result == [["v4", "v3"], ["v2", "v1"], ["v0"]]


def test_an_anonymous_environment_is_stored_but_not_listed(azure: Azure) -> None:
    version = "9" * 64
    path = f"environments/CliV2AnonymousEnvironment/versions/{version}"
    created = azure.put(path, {"image": IMAGE, "condaFile": CONDA, "isAnonymous": True})
    assert created["properties"]["isAnonymous"] is True
    assert "CliV2AnonymousEnvironment" not in azure.names("environments")
    listed = azure.site.ok("dan", "GET", f"{HERE}/environments")["value"]
    assert "CliV2AnonymousEnvironment" not in [item["name"] for item in listed]
    request = {"environment": f"azureml:CliV2AnonymousEnvironment:{version}"}
    result = azure.site.ok("dan", "POST", f"{HERE}/environments/resolve", request)
    assert "tqdm==4.67.1" in result["requirements"]


def test_curated_environments_are_listed_and_published_ones_found(azure: Azure) -> None:
    assert {"python", "sklearn-1.5"} <= set(azure.names("environments"))
    own_item = azure.ask("GET", "environments/sklearn-1.5/versions", **{"$top": "1"})["value"][0]
    assert own_item["properties"]["environmentType"] == "Curated"
    name = "AzureML-sklearn-1.0-ubuntu20.04-py38-cpu"
    published = azure.ask("GET", f"environments/{name}/versions/33")
    assert (published["name"], published["id"].split("/")[-3]) == ("33", name)
    assert "takes its place" in published["properties"]["description"]
    # An environment of one's own names its image.
    copied = azure.put("environments/copied/versions/1", published["properties"])
    assert copied["properties"]["environmentType"] == "UserCreated"


BAD: tuple[tuple[str, dict[str, object], str], ...] = (
    ("AzureML-mine/versions/1", {"image": IMAGE}, "reserved for curated"),
    ("python/versions/1", {"image": IMAGE}, "curated environment's name"),
    ("e/versions/1", {}, "names no content"),
    ("e/versions/1", {"image": 7}, "`image` is not a string"),
    ("e/versions/1", {"condaFile": "a: ["}, "not YAML"),
    ("e/versions/1", {"condaFile": "dependencies: [python=3"}, "not YAML"),
    ("e/versions/1", {"image": "private.io/team image"}, "private.io/team image"),
    ("e/versions/1", {"image": IMAGE, "osType": "Windows"}, "`os_type: windows`"),
    ("e/versions/1", {"image": IMAGE, "tags": "x"}, "`tags`"),
    ("e/versions/1", {"image": IMAGE, "isArchived": "yes"}, "`isArchived`"),
    ("e/versions/1", {"build": {"dockerfilePath": "Dockerfile"}}, "contextUri"),
    ("e/versions/a b", {"image": IMAGE}, "is not a valid version"),
    (f"e/versions/{'9' * 65}", {"image": IMAGE}, "is not a valid version"),
    (f"{'e' * 256}/versions/1", {"image": IMAGE}, "is not a valid name"),
    ("-e/versions/1", {"image": IMAGE}, "is not a valid name"),
)


def test_errors_have_azures_envelope(azure: Azure) -> None:
    for path, properties, message in BAD:
        error = azure.refused(400, "PUT", f"environments/{path}", {"properties": properties})
        assert error["code"] == "UserError" and message in error["message"]
    assert "e" not in azure.names("environments")


def test_readers_may_not_write_and_missing_environments_are_reported(azure: Azure) -> None:
    reader = Azure(azure.site, "rita")
    body = {"properties": {"image": IMAGE}}
    assert reader.refused(403, "PUT", "environments/e/versions/1", body)["code"] == (
        "AuthorizationFailed"
    )
    azure.put("environments/training/versions/1", {"image": IMAGE})
    assert "training" in reader.refused(404, "GET", "environments/trainin")["message"]
    assert "it has 1" in reader.refused(404, "GET", "environments/training/versions/2")["message"]
    assert "archive" in azure.refused(409, "DELETE", "environments/training/versions/1")["message"]
    error = azure.refused(400, "GET", "environments", listViewType="Some")
    assert "ActiveOnly" in error["message"]


def test_a_build_context_becomes_a_snapshot(azure: Azure) -> None:
    """Missing files are reported at once."""
    path = "environments/e/versions/1"
    begun = azure.ask("POST", f"{path}/startPendingUpload", {})
    where = begun["blobReferenceForConsumption"]["blobUri"]
    build = {"contextUri": f"{where}/context/", "dockerfilePath": "Dockerfile"}
    missing = azure.refused(404, "PUT", path, {"properties": {"build": build}})
    assert "no files" in missing["message"]
    folder = f"LocalUpload/{begun['pendingUploadId']}/context"
    stores = azure.site.parts.services.datastores
    with stores.writing("default", BLOB_STORE, f"{folder}/Dockerfile") as writing:
        writing.write(b"FROM private.io/team/image:1\n")
    created = azure.put(path, {"build": build})["properties"]["build"]
    assert created["dockerfilePath"] == "Dockerfile" and "/codes/" in created["contextUri"]
    # azure-ai-ml takes what is no URL for a folder beside the job's file.
    assert urlsplit(created["contextUri"]).scheme and urlsplit(created["contextUri"]).netloc
    again = azure.put(path, {"build": created})
    assert again["properties"]["build"] == created
    Azure(azure.site, "rita").refused(403, "POST", f"{path}/startPendingUpload", {})
