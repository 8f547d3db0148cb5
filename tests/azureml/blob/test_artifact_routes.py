"""The artifact service, in the plug-in's and in SDK v1's spelling, over the whole app."""

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
    """A run of Dan's, without files."""
    made = azure.site.ok("dan", "POST", f"{MLFLOW}/runs/create", {"experiment_id": "0"})
    return str(made["run"]["info"]["run_id"])


def of(azure: Azure, method: str, asked: str, body: Any = None, **query: str) -> Any:
    """The JSON of `/SERVICE/v1.0…/path`."""
    service, _, rest = asked.partition("/")
    where = f"/{service}/v1.0{WORKSPACE}/{rest}"
    answer = azure.site.ask(azure.who, method, where, body, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refusal(azure: Azure, who: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
    service, _, rest = path.partition("/")
    answer = azure.site.ask(who, method, f"/{service}/v1.0{WORKSPACE}/{rest}", body)
    return answer.status_code, answer.json()["error"]["message"]


def written(azure: Azure, told: Any, path: str, content: bytes) -> None:
    """Use a link as the client does."""
    link = told["artifactContentInformation"][path]["contentUri"]
    blob = "/" + link.split("://", 1)[1].split("/", 1)[1]
    answer = azure.site.client.put(blob, content=content, headers={"x-ms-blob-type": "BlockBlob"})
    assert answer.status_code == 201, answer.text


def paths(*names: str) -> dict[str, Any]:
    return {"paths": [{"path": name} for name in names]}


def test_a_runs_files_go_in_and_come_out(azure: Azure, run: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts"
    told = of(azure, "POST", f"{top}/batch/metadata", paths("a/one.txt", "two.txt"))
    assert told["errors"] == {}
    written(azure, told, "a/one.txt", b"one")
    written(azure, told, "two.txt", b"two")
    assert [one["path"] for one in of(azure, "GET", top)["value"]] == ["a/one.txt", "two.txt"]
    below = of(azure, "GET", f"{top}/path", path="a")["value"]
    assert [one["artifactId"] for one in below] == [f"ExperimentRun/dcid.{run}/a/one.txt"]
    info = of(azure, "GET", f"{top}/contentinfo", path="a/one.txt")
    assert info["contentUri"].startswith("http") and "?" in info["contentUri"]
    listed = azure.site.ok("dan", "GET", f"{MLFLOW}/artifacts/list", params={"run_id": run})
    assert [one["path"] for one in listed["files"]] == ["a", "two.txt"]


def test_v1_quotes_the_name_in_an_address_again(azure: Azure, run: str) -> None:
    container = f"ExperimentRun/dcid.{run}"
    names = ("a plot é.png", "1+1=2&.txt", "what?#.txt")
    told = of(azure, "POST", f"artifact/artifacts/batch/metadata/{container}", paths(*names))
    addresses = [told["artifactContentInformation"][one]["contentUri"] for one in names]
    assert addresses[0].partition("?")[0].endswith("/a plot é.png")
    assert addresses[1].partition("?")[0].endswith("/1+1=2&.txt")
    # These would end the path.
    assert addresses[2].partition("?")[0].endswith("/what%3F%23.txt")


def test_v1_puts_the_verb_first(azure: Azure, run: str) -> None:
    container = f"ExperimentRun/dcid.{run}"
    told = of(azure, "POST", f"artifact/artifacts/batch/metadata/{container}", paths("x/y.txt"))
    written(azure, told, "x/y.txt", b"seen")
    listed = of(azure, "GET", f"artifact/artifacts/{container}")["value"]
    assert [one["path"] for one in listed] == ["x/y.txt"]
    one = of(azure, "GET", f"artifact/artifacts/contentinfo/{container}/x/y.txt")
    assert one["path"] == "x/y.txt"
    prefix = of(azure, "GET", f"artifact/artifacts/prefix/contentinfo/{container}/x")["value"]
    assert [one["path"] for one in prefix] == ["x/y.txt"]
    where = f"/artifact/v2.0{WORKSPACE}/artifacts/content/{container}/x/y.txt"
    assert azure.site.ask("rita", "GET", where).content == b"seen"


def test_what_is_not_there_is_told(azure: Azure, run: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts"
    status, said = refusal(azure, "dan", "GET", f"{top}/contentinfo?path=nothing.txt")
    assert status == 404 and "nothing.txt" in said
    status, said = refusal(azure, "dan", "GET", "history/experiments/any/runs/no-run/artifacts")
    assert status == 404 and "no-run" in said


@pytest.mark.parametrize("path", ["../../x", "a/../../../x", "/etc/passwd/../../x"])
def test_no_path_climbs(azure: Azure, run: str, path: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts"
    status, _ = refusal(azure, "dan", "POST", f"{top}/batch/metadata", paths(path))
    assert status in (400, 404, 422)


def test_only_who_may_change_a_run_writes_its_files(azure: Azure, run: str) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts/batch/metadata"
    status, said = refusal(azure, "rita", "POST", top, paths("a"))
    assert status == 403 and "rita" in said
    azure.site.add("dora", "data-scientist")
    status, said = refusal(azure, "dora", "POST", top, paths("a"))
    assert status == 403 and "dan" in said


@pytest.mark.parametrize("body", [{}, {"paths": "a"}, {"paths": [{}]}, {"paths": [{"path": ""}]}])
def test_a_body_that_says_nothing_is_refused(azure: Azure, run: str, body: Any) -> None:
    top = f"history/experiments/any/runs/{run}/artifacts/batch/metadata"
    status, said = refusal(azure, "dan", "POST", top, body)
    assert status in (400, 422) and "paths" in said


def test_files_of_nobody_wait_below_their_origin(azure: Azure) -> None:
    container = "LocalUpload/2611-abc"
    told = of(azure, "POST", f"artifact/artifacts/{container}/batch/metadata", paths("m/MLmodel"))
    written(azure, told, "m/MLmodel", b"flavors: {}\n")
    listed = of(azure, "GET", f"artifact/artifacts/{container}")["value"]
    assert [one["path"] for one in listed] == ["m/MLmodel"]
