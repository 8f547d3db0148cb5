"""Environments as Azure ML's clients ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

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


def test_an_environment_comes_back_as_it_was_given(azure: Azure) -> None:
    said = {"description": "for training", "tags": {"team": "vision"}, "properties": {"a": "1"}}
    content = {"image": IMAGE, "condaFile": CONDA, "osType": "Linux"}
    made = azure.put("environments/Mine/versions/1", {**content, **said, "isAnonymous": False})
    assert made["id"] == f"{WORKSPACE}/environments/Mine/versions/1"
    assert made["type"] == "Microsoft.MachineLearningServices/workspaces/environments/versions"
    assert made["systemData"]["createdBy"] == "dan"
    shown = made["properties"]
    assert {key: shown[key] for key in said} == said
    assert (shown["image"], shown["environmentType"]) == (IMAGE, "UserCreated")
    assert "tqdm==4.67.1" in shown["condaFile"] and "python=3.11" in shown["condaFile"]
    assert azure.ask("GET", "environments/Mine/versions/1") == made
    ours = azure.site.ok("dan", "GET", f"{HERE}/environments/Mine/versions/1")
    assert ours["image"] == IMAGE and ours["conda_file"]["name"] == "mine"


def test_a_version_put_again_is_the_same_and_with_another_content_is_refused(
    azure: Azure,
) -> None:
    path = "environments/e/versions/1"
    first = azure.answer("PUT", path, {"properties": {"image": IMAGE}})
    again = azure.answer("PUT", path, {"properties": {"image": IMAGE, "tags": {"n": "2"}}})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["properties"]["tags"] == {"n": "2"}
    # The SDK takes 409 for "take the next version".
    error = azure.refused(409, "PUT", path, {"properties": {"image": IMAGE, "condaFile": CONDA}})
    assert error["code"] == "Conflict"
    container = azure.ask("GET", "environments/e")["properties"]
    assert (container["latestVersion"], container["nextVersion"]) == ("1", "2")


def test_one_made_by_yard_is_archived_as_the_sdk_does(azure: Azure) -> None:
    """It puts back what it got, with one word changed."""
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


def test_the_latest_is_the_newest_that_was_made(azure: Azure) -> None:
    for version in ("1", "7", "2"):
        azure.put(f"environments/e/versions/{version}", {"image": IMAGE})
    query = {"$orderBy": "createdtime desc", "$top": "1"}
    page = azure.ask("GET", "environments/e/versions", **query)
    assert [one["name"] for one in page["value"]] == ["2"] and "nextLink" not in page
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
    found, following = [], f"{WORKSPACE}/environments/e/versions?%24maxpagesize=2"
    while following:
        answer = azure.site.ask("rita", "GET", following)
        page = answer.json()
        found.append([one["name"] for one in page["value"]])
        following = page.get("nextLink", "").replace("http://testserver", "")
    assert found == [["v4", "v3"], ["v2", "v1"], ["v0"]]


def test_an_anonymous_environment_is_kept_and_in_no_list(azure: Azure) -> None:
    version = "9" * 64
    path = f"environments/CliV2AnonymousEnvironment/versions/{version}"
    made = azure.put(path, {"image": IMAGE, "condaFile": CONDA, "isAnonymous": True})
    assert made["properties"]["isAnonymous"] is True
    assert "CliV2AnonymousEnvironment" not in azure.names("environments")
    listed = azure.site.ok("dan", "GET", f"{HERE}/environments")["value"]
    assert "CliV2AnonymousEnvironment" not in [one["name"] for one in listed]
    asked = {"environment": f"azureml:CliV2AnonymousEnvironment:{version}"}
    found = azure.site.ok("dan", "POST", f"{HERE}/environments/resolve", asked)
    assert "tqdm==4.67.1" in found["requirements"]


def test_curated_ones_are_listed_and_published_ones_found(azure: Azure) -> None:
    assert {"python", "sklearn-1.5"} <= set(azure.names("environments"))
    own = azure.ask("GET", "environments/sklearn-1.5/versions", **{"$top": "1"})["value"][0]
    assert own["properties"]["environmentType"] == "Curated"
    name = "AzureML-sklearn-1.0-ubuntu20.04-py38-cpu"
    published = azure.ask("GET", f"environments/{name}/versions/33")
    assert (published["name"], published["id"].split("/")[-3]) == ("33", name)
    assert "takes its place" in published["properties"]["description"]
    # To make one's own of it is to name its image.
    copied = azure.put("environments/copied/versions/1", published["properties"])
    assert copied["properties"]["environmentType"] == "UserCreated"


BAD: tuple[tuple[str, dict[str, object], str], ...] = (
    ("AzureML-mine/versions/1", {"image": IMAGE}, "reserved for curated"),
    ("python/versions/1", {"image": IMAGE}, "curated environment's name"),
    ("e/versions/1", {}, "names no content"),
    ("e/versions/1", {"image": 7}, "`image` is no text"),
    ("e/versions/1", {"condaFile": "a: ["}, "no YAML"),
    ("e/versions/1", {"condaFile": "dependencies: [python=3"}, "no YAML"),
    ("e/versions/1", {"image": "private.io/team image"}, "private.io/team image"),
    ("e/versions/1", {"image": IMAGE, "osType": "Windows"}, "linux"),
    ("e/versions/1", {"image": IMAGE, "tags": "x"}, "`tags`"),
    ("e/versions/1", {"image": IMAGE, "isArchived": "yes"}, "`isArchived`"),
    ("e/versions/1", {"build": {"dockerfilePath": "Dockerfile"}}, "contextUri"),
    ("e/versions/a b", {"image": IMAGE}, "is not a valid version"),
    (f"e/versions/{'9' * 65}", {"image": IMAGE}, "is not a valid version"),
    (f"{'e' * 256}/versions/1", {"image": IMAGE}, "is not a valid name"),
    ("-e/versions/1", {"image": IMAGE}, "is not a valid name"),
)


def test_what_is_wrong_is_told_in_azures_envelope(azure: Azure) -> None:
    for path, properties, told in BAD:
        error = azure.refused(400, "PUT", f"environments/{path}", {"properties": properties})
        assert error["code"] == "UserError" and told in error["message"]
    assert "e" not in azure.names("environments")


def test_who_may_not_write_and_what_is_not_there(azure: Azure) -> None:
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
    """Files that are not there are told at once."""
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
    made = azure.put(path, {"build": build})["properties"]["build"]
    assert made["dockerfilePath"] == "Dockerfile" and "/codes/" in made["contextUri"]
    again = azure.put(path, {"build": made})
    assert again["properties"]["build"] == made
    Azure(azure.site, "rita").refused(403, "POST", f"{path}/startPendingUpload", {})
