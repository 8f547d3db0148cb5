"""The artifact service in both spellings, the plug-in's and SDK v1's, through the whole app."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from workspaces.served import MLFLOW, served


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        yield Azure(site)


@pytest.fixture
def run(azure: Azure) -> str:
    """A run of Dan's without files."""
    created = azure.site.ok("dan", "POST", f"{MLFLOW}/runs/create", {"experiment_id": "0"})
    return str(created["run"]["info"]["run_id"])


def of(azure: Azure, method: str, request: str, body: Any = None, **query: str) -> Any:
    """The JSON of `/SERVICE/v1.0…/path`."""
    service, _, remaining = request.partition("/")
    where = f"/{service}/v1.0{WORKSPACE}/{remaining}"
    answer = azure.site.ask(azure.user, method, where, body, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(azure: Azure, user: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    service, _, remaining = path.partition("/")
    answer = azure.site.ask(user, method, f"/{service}/v1.0{WORKSPACE}/{remaining}", body)
    return answer.status_code, answer.json()["error"]["message"]


def written(azure: Azure, response: Any, path: str, content: bytes) -> None:
    """Use a link as the client does."""
    link = response["artifactContentInformation"][path]["contentUri"]
    blob = "/" + link.split("://", 1)[1].split("/", 1)[1]
    answer = azure.site.client.put(blob, content=content, headers={"x-ms-blob-type": "BlockBlob"})
    assert answer.status_code == 201, answer.text


def paths(*names: str) -> dict[str, Any]:
    return {"paths": [{"path": name} for name in names]}


def test_a_runs_files_are_written_and_read(azure: Azure, run: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts"
    response = of(azure, "POST", f"{top}/batch/metadata", paths("a/one.txt", "two.txt"))
    assert response["errors"] == {}
    written(azure, response, "a/one.txt", b"one")
    written(azure, response, "two.txt", b"two")
    assert [item["path"] for item in of(azure, "GET", top)["value"]] == ["a/one.txt", "two.txt"]
    below = of(azure, "GET", f"{top}/path", path="a")["value"]
    assert [item["artifactId"] for item in below] == [f"ExperimentRun/dcid.{run}/a/one.txt"]
    info = of(azure, "GET", f"{top}/contentinfo", path="a/one.txt")
    assert info["contentUri"].startswith("http") and "?" in info["contentUri"]
    listed = azure.site.ok("dan", "GET", f"{MLFLOW}/artifacts/list", params={"run_id": run})
    assert [item["path"] for item in listed["files"]] == ["a", "two.txt"]


@pytest.mark.parametrize("experiment", ["experiments/any", "experimentids/1"])
def test_early_clients_have_the_file_in_the_path(azure: Azure, run: str, experiment: str) -> None:
    top = f"history/{experiment}/runs/{run}/artifacts"
    response = of(azure, "POST", f"{top}/batch/metadata", paths("a/one 1.txt"))
    link = response["artifactContentInformation"]["a/one 1.txt"]["contentUri"]
    # They quote the name in it again.
    assert "/a/one 1.txt?" in link
    written(azure, response, "a/one 1.txt", b"one")
    assert of(azure, "GET", f"{top}/contentinfo/a/one 1.txt")["path"] == "a/one 1.txt"
    assert [item["path"] for item in of(azure, "GET", f"{top}/path/a")["value"]] == ["a/one 1.txt"]
    links = of(azure, "GET", f"{top}/prefix/contentinfo/a")["value"]
    assert [item["path"] for item in links] == ["a/one 1.txt"]


def test_links_lead_where_the_relay_says_that_scripts_find_the_server(
    azure: Azure, run: str
) -> None:
    path = f"/history/v1.0{WORKSPACE}/experiments/any/runs/{run}/artifacts/batch/metadata"
    for base, account in (("https://h:1", "@h:1"), ("http://h:1", "@testserver")):
        headers = {"Authorization": f"Bearer {azure.site.tokens['dan']}", "X-Torchyard-Base": base}
        answer = azure.site.client.post(path, json=paths("a"), headers=headers).json()
        link = answer["artifactContentInformation"]["a"]["contentUri"]
        assert link.partition("/azureml")[0].endswith(account)


def test_sdk_v1_quotes_the_name_in_a_url_again(azure: Azure, run: str) -> None:
    container = f"ExperimentRun/dcid.{run}"
    names = ("a plot é.png", "1+1=2&.txt", "what?#.txt")
    response = of(azure, "POST", f"artifact/artifacts/batch/metadata/{container}", paths(*names))
    addresses = [response["artifactContentInformation"][item]["contentUri"] for item in names]
    assert addresses[0].partition("?")[0].endswith("/a plot é.png")
    assert addresses[1].partition("?")[0].endswith("/1+1=2&.txt")
    # These would end the path.
    assert addresses[2].partition("?")[0].endswith("/what%3F%23.txt")


def test_sdk_v1_puts_the_operation_first(azure: Azure, run: str) -> None:
    container = f"ExperimentRun/dcid.{run}"
    response = of(azure, "POST", f"artifact/artifacts/batch/metadata/{container}", paths("x/y.txt"))
    written(azure, response, "x/y.txt", b"seen")
    listed = of(azure, "GET", f"artifact/artifacts/{container}")["value"]
    assert [item["path"] for item in listed] == ["x/y.txt"]
    item = of(azure, "GET", f"artifact/artifacts/contentinfo/{container}/x/y.txt")
    assert item["path"] == "x/y.txt"
    prefix = of(azure, "GET", f"artifact/artifacts/prefix/contentinfo/{container}/x")["value"]
    assert [item["path"] for item in prefix] == ["x/y.txt"]
    where = f"/artifact/v2.0{WORKSPACE}/artifacts/content/{container}/x/y.txt"
    assert azure.site.ask("rita", "GET", where).content == b"seen"


def test_missing_files_and_runs_are_named_in_the_error(azure: Azure, run: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts"
    status, fields = refusal(azure, "dan", "GET", f"{top}/contentinfo?path=nothing.txt")
    assert status == 404 and "nothing.txt" in fields
    status, fields = refusal(azure, "dan", "GET", "history/experiments/any/runs/no-run/artifacts")
    assert status == 404 and "no-run" in fields


@pytest.mark.parametrize("path", ["../../x", "a/../../../x", "/etc/passwd/../../x"])
def test_no_path_leaves_its_folder(azure: Azure, run: str, path: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts"
    status, _ = refusal(azure, "dan", "POST", f"{top}/batch/metadata", paths(path))
    assert status in (400, 404, 422)


def test_only_people_who_may_change_a_run_write_its_files(azure: Azure, run: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts/batch/metadata"
    status, fields = refusal(azure, "rita", "POST", top, paths("a"))
    assert status == 403 and "rita" in fields
    azure.site.add("dora", "data-scientist")
    status, fields = refusal(azure, "dora", "POST", top, paths("a"))
    assert status == 403 and "dan" in fields


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"paths": "a"},
        {"paths": [{}]},
        {"paths": [{"path": ""}]},
        {"paths": [{"path": "a"}] * 1001},
    ],
)
def test_a_body_without_paths_is_refused(azure: Azure, run: str, body: Any) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts/batch/metadata"
    status, fields = refusal(azure, "dan", "POST", top, body)
    assert status in (400, 422) and "paths" in fields


def test_uploads_without_an_owner_are_stored_below_their_origin(azure: Azure) -> None:
    container = "LocalUpload/2611-abc"
    response = of(
        azure, "POST", f"artifact/artifacts/{container}/batch/metadata", paths("m/MLmodel")
    )
    written(azure, response, "m/MLmodel", b"flavors: {}\n")
    listed = of(azure, "GET", f"artifact/artifacts/{container}")["value"]
    assert [item["path"] for item in listed] == ["m/MLmodel"]
