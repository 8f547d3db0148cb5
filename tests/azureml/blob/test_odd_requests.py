"""Malformed requests: parts of the wrong type, numbers that JSON lacks, names with a meaning in
URLs, runs of other people.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import event

from azureml.azure_server import WORKSPACE
from azureml.sdk_v1.test_v1_services import ENVIRONMENT, Services, metric, submitted, uploaded
from postgres_server import NewDatabase
from torchyard.azureml.blob import headers as blob_headers
from workspaces.served import served

V1_AGENT = {"User-Agent": "azureml-sdk-core/1.61.0.post4 Python/3.11"}


@pytest.fixture(scope="module")
def v1(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Services]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        created = Services(site, "olga")
        created.of("history", "PATCH", "experiments/e/runs/here", {"runId": "here"})
        point = metric("loss", 1.0, "2026-11-21T16:00:01Z")
        created.of("metric", "POST", "runs/here/batch", {"values": [point]})
        yield created


def sent(v1: Services, method: str, where: str, body: Any) -> Any:
    """The response to a body that Python's JSON writes, with numbers that JSON lacks."""
    headers = {"Authorization": f"Bearer {v1.site.tokens[v1.user]}"}
    return v1.site.client.request(method, where, content=json.dumps(body), headers=headers)


METRIC = {"name": "m", "columns": {"m": "double"}, "value": []}
SNAPSHOT = "snapshots/00000000-0000-0000-0000-000000000001"


@pytest.mark.parametrize(
    ("service", "method", "path", "body"),
    [
        ("history", "POST", "experiments/e/batch/events", {"events": [{"data": [1]}]}),
        ("history", "POST", "experiments:query", {"filter": "Properties/a eq b"}),
        ("history", "POST", "runs:query", {"continuationToken": "9" * 30}),
        ("history", "POST", "experiments/e/metrics:query",
         {"filter": "RunId eq here", "continuationToken": "0." + "9" * 30}),
        ("metric", "POST", "runs/here/batch", {"values": [{**METRIC, "properties": [1]}]}),
        ("metric", "POST", "runs/here/batch",
         {"values": [{**METRIC, "properties": {"uxMetricType": "azureml.v1.table"},
                      "value": [{"metricId": "a", "data": {"m": 1}, "step": 10**40}]}]}),
        ("content", "POST", SNAPSHOT, {"FileRevisionList": [1]}),
        ("content", "POST", SNAPSHOT, {"FileRevisionList": {"FileNodes": 5}}),
        ("content", "POST", SNAPSHOT, {"FileRevisionList": {"FileNodes": [{"BlobUri": "x"}]}}),
        ("content", "POST", SNAPSHOT, {"DirTreeNode": {"children": 5}}),
        ("dataset", "POST", "saveddatasets",
         {"datasetType": "file", "dataflowJson": "{}", "properties": "x"}),
        ("dataset", "POST", "datasets/register", {"name": "n", "latest": [1]}),
        ("modelmanagement", "POST", "assets", {"artifacts": 5}),
        ("modelmanagement", "POST", "models",
         {"name": "m", "url": "aml://asset/W3siaWQiOiJhIn1d", "kvTags": 5}),
        ("environment", "PUT", "environments/mine",
         {**ENVIRONMENT, "python": {"condaDependencies": {"dependencies": 5}}}),
    ],
)  # fmt: skip
def test_a_part_of_the_wrong_type_is_a_user_error(
    v1: Services, service: str, method: str, path: str, body: Any
) -> None:
    answer = sent(v1, method, f"/{service}/v1.0{WORKSPACE}/{path}", body)
    # None of these may be a server error.
    assert answer.status_code in (200, 400, 404), answer.text


@pytest.mark.parametrize(
    "overrides",
    [
        {"data": {"in": None}},
        {"data": {"in": 5}},
        {"dataReferences": {"d": 5}},
        {"outputData": {"o": "x"}},
        {"nodeCount": 10**400},
        {"maxRunDurationSeconds": 10**400},
        {"docker": {"arguments": 5}},
        {"communicator": "Mpi", "mpi": {"processCountPerNode": 10**400}},
    ],
)
def test_a_run_configuration_of_the_wrong_form_is_refused(v1: Services, overrides: Any) -> None:
    body = submitted(v1, "odd", **overrides)
    answer = sent(v1, "POST", f"/execution/v1.0{WORKSPACE}/experiments/e/snapshotrun", body)
    assert answer.status_code in (400, 404), answer.text


@pytest.mark.parametrize(
    "properties",
    [
        {"queueSettings": {"priority": []}},
        {"queueSettings": {"priority": 1.0}},
        {"limits": {"timeout": f"PT{'9' * 400}S"}},
    ],
)
def test_a_job_with_values_of_the_wrong_type_is_refused(v1: Services, properties: Any) -> None:
    job = {"jobType": "Command", "command": "true", "environmentId": "python", **properties}
    v1.refused(400, "PUT", "jobs/odd-values", {"properties": job})


def test_a_workspaces_properties_must_be_an_object(v1: Services) -> None:
    v1.refused(400, "PATCH", "", {"properties": [1]})


@pytest.mark.parametrize("query", [{"$top": "²"}, {"$skip": "9" * 30}])
def test_an_unknown_continuation_token_is_refused(v1: Services, query: dict[str, str]) -> None:
    v1.refused(400, "GET", "jobs", **query)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_component_with_an_infinite_number_is_refused(v1: Services, number: float) -> None:
    spec = {
        "type": "command",
        "command": "echo ${{inputs.rate}}",
        "environment": "azureml:python-3.11@latest",
        "inputs": {"rate": {"type": "number", "default": number}},
    }
    where = f"{WORKSPACE}/components/poison/versions/1"
    answer = sent(v1, "PUT", where, {"properties": {"componentSpec": spec}})
    assert answer.status_code == 400 and "the number" in answer.text, answer.text
    assert "poison" not in v1.names("components")


def test_a_number_too_large_for_a_float_is_refused(v1: Services) -> None:
    headers = {"Authorization": f"Bearer {v1.site.tokens['olga']}"}
    where = f"{WORKSPACE}/environments/big/versions/1"
    body = '{"properties": {"image": "python:3.11", "inferenceConfig": {"livenessRoute": 1e999}}}'
    answer = v1.site.client.put(where, content=body, headers=headers)
    assert answer.status_code == 400 and "1e999" in answer.text


def test_a_row_with_nan_in_a_list_is_returned(v1: Services) -> None:
    value = {"metricId": "r1", "data": {"m": [float("nan"), 1.0]}}
    table = {**METRIC, "name": "t", "properties": {"uxMetricType": "azureml.v1.table"}}
    where = f"/metric/v1.0{WORKSPACE}/runs/here"
    assert sent(v1, "POST", f"{where}/batch", {"values": [{**table, "value": [value]}]}).json() == {
        "errors": []
    }
    response = sent(v1, "POST", f"{where}/full", {"metricName": "t"}).json()
    assert response["value"][0]["data"] == {"m": ["nan", 1.0]}


def test_a_batch_of_runs_needs_permission_for_each_run(v1: Services) -> None:
    carl, dan = Services(v1.site, "carl"), Services(v1.site, "dan")
    carl.of("history", "PATCH", "experiments/e/runs/of-carl", {"runId": "of-carl"})
    dan.of("history", "PATCH", "experiments/e/runs/of-dan", {"runId": "of-dan"})
    both = [{"runId": "of-dan", "displayName": "new"}, {"runId": "of-carl", "displayName": "new"}]
    status, fields = dan.refusal("history", "PATCH", "experiments/e/batch/runs", {"runs": both})
    assert status == 403 and "belongs to `carl`" in fields
    # Nothing is changed, not even the caller's own runs.
    assert v1.of("history", "GET", "runs/of-dan")["displayName"] != "new"
    canceled = [{"name": "x.Cancel", "data": {"RunId": "of-carl"}}]
    status, _ = dan.refusal("history", "POST", "experiments/e/batch/events", {"events": canceled})
    assert status == 403
    assert v1.of("history", "GET", "runs/of-carl")["status"] == "Running"
    dan.of("history", "PATCH", "experiments/e/batch/runs", {"runs": both[:1]})
    assert v1.of("history", "GET", "runs/of-dan")["displayName"] == "new"
    carl.of("history", "PATCH", "experiments/e/batch/runs", {"runs": both})


def test_a_workspaces_name_may_begin_with_that_of_a_service(v1: Services) -> None:
    v1.site.ok("home", "POST", "/v1/workspaces", {"name": "armada"})
    top = WORKSPACE.replace("default", "armada")
    for version in ("1", "2", "3"):
        body = {"properties": {"image": "python:3.11", "tags": {"n": version}}}
        v1.site.ok("home", "PUT", f"{top}/environments/mine/versions/{version}", body)
    result, where = [], f"{top}/environments/mine/versions?$maxpagesize=2"
    while where:
        page = v1.site.ok("home", "GET", where)
        result += [item["name"] for item in page["value"]]
        where = page.get("nextLink", "")
    assert result == ["3", "2", "1"]


def test_all_children_of_a_run_are_listed(v1: Services) -> None:
    v1.of("history", "PATCH", "experiments/e/runs/top", {"runId": "top"})
    kids = [f"kid{number}" for number in range(55)]
    runs = [{"runId": name, "parentRunId": "top"} for name in kids]
    v1.of("history", "PATCH", "experiments/e/batch/runs", {"runs": runs})
    # azure-ai-ml 1.35 sends no limit and requests one page.
    response = v1.of("history", "GET", "runs/top/children")
    assert {item["runId"] for item in response["value"]} == set(kids) and not response[
        "continuationToken"
    ]
    # SDK v1 continues with the token, older azure-ai-ml with the link.
    first = v1.of("history", "GET", "runs/top/children", **{"$top": "30"})
    overrides = {"$top": "30", "$continuationToken": first["continuationToken"]}
    second = v1.of("history", "GET", "runs/top/children", **overrides)
    assert first["nextLink"] is None and second["continuationToken"] is None
    assert {item["runId"] for item in first["value"] + second["value"]} == set(kids)
    headers = {
        "Authorization": f"Bearer {v1.site.tokens['olga']}",
        "User-Agent": "azure-ai-ml/1.12",
    }
    result, where = [], f"/history/v1.0{WORKSPACE}/runs/top/children?$top=20"
    while where:
        page = v1.site.client.get(where, headers=headers).json()
        result += [item["runId"] for item in page["value"]]
        where = page["nextLink"]
    assert sorted(result) == sorted(kids)


def test_sdk_v1_sees_a_run_that_just_ended_as_finalizing_once(v1: Services) -> None:
    top = f"/history/v1.0{WORKSPACE}"
    headers = {**V1_AGENT, "Authorization": f"Bearer {v1.site.tokens['olga']}"}

    def status(path: str) -> str:
        return str(v1.site.client.get(f"{top}/{path}", headers=headers).json()["status"])

    for name in ("unseen", "seen", "canceled"):
        Services(v1.site, "carl").of(
            "history", "PATCH", f"experiments/e/runs/{name}", {"runId": name}
        )
    for name, end in (("unseen", "Completed"), ("seen", "Failed"), ("canceled", "Canceled")):
        Services(v1.site, "carl").of(
            "history", "PATCH", f"experiments/e/runs/{name}", {"runId": name, "status": end}
        )
    # `wait_for_completion(show_output=True)` prints logs only while a run is running.
    assert [status("runs/unseen/details") for _ in range(3)] == [
        "Finalizing",
        "Completed",
        "Completed",
    ]
    # A person who has learned of the end gets nothing else afterwards.
    assert status("runs/seen") == "Failed" and status("runs/seen/details") == "Failed"
    assert status("runs/canceled/details") == "Canceled"


@pytest.mark.parametrize("name", ["100%.txt", "a%20b.txt", "ü@x%.txt", "d%/x y.txt"])
def test_sdk_v1_writes_by_a_url_that_it_quotes_itself(v1: Services, name: str) -> None:
    def address(path: str) -> str:
        response = v1.of("artifact", "POST", path, {"paths": [{"path": name}]})
        uri = response["artifactContentInformation"][name]["contentUri"]
        return str(uri.partition("?")[0])

    # SDK v1 takes the part after account and container, and quotes it; the plug-in unquotes it
    # first.
    assert address("artifacts/batch/metadata/ExperimentRun/dcid.here").endswith(f"/{name}")
    quoted = address("artifacts/ExperimentRun/dcid.here/batch/metadata")
    assert quoted.endswith(f"/dcid.here/{quote(name)}")


def test_files_of_a_snapshot_may_have_any_name(v1: Services) -> None:
    names = {"100% a%20b #c?.py": b"1", "ü/@.py": b"2"}
    response = v1.of("content", "POST", "snapshots/getblob", {"FileNames": list(names)})
    for node in response["fileNodes"]:
        path = node["blobUri"].partition("?")[0].rpartition("/")[2]
        assert path.isalnum(), "the client would quote it once more"
    snapshot = uploaded(v1, names)
    again = uploaded(v1, {**dict.fromkeys(names, b""), "new.py": b"3"}, parent=snapshot)
    assert again != snapshot


def test_tags_of_an_experiment_may_be_null_and_false(v1: Services) -> None:
    created = v1.of("history", "POST", "experiments/tagged")
    tags = {"zero": 0, "no": False, "none": None}
    where = f"experimentids/{created['experimentId']}"
    assert v1.of("history", "PATCH", where, {"tags": tags})["tags"] == {
        "zero": "0",
        "no": "False",
        "none": "",
    }


def test_the_next_page_of_models_keeps_the_query(v1: Services) -> None:
    response = v1.of(
        "artifact", "POST", "artifacts/ExperimentRun/dcid.here/batch/metadata",
        {"paths": [{"path": "model.bin"}]},
    )  # fmt: skip
    address = response["artifactContentInformation"]["model.bin"]["contentUri"].partition("://")[2]
    blob = "/" + address.partition("/")[2]
    v1.site.client.put(blob, content=b"x", headers={"x-ms-blob-type": "BlockBlob"})
    asset = v1.of(
        "modelmanagement", "POST", "assets",
        {"artifacts": [{"id": "ExperimentRun/dcid.here/model.bin"}]},
    )["id"]  # fmt: skip
    for _ in range(3):
        body = {"name": "m", "url": f"aml://asset/{asset}", "kvTags": {"k": "a&b+c d"}}
        v1.of("modelmanagement", "POST", "models", body)
    query = {"tags": "k=a&b+c d", "$top": "2"}
    first = v1.of("modelmanagement", "GET", "models", **query)
    headers = {"Authorization": f"Bearer {v1.site.tokens['olga']}"}
    second = v1.site.client.get(first["nextLink"], headers=headers).json()
    assert [len(first["value"]), len(second["value"]), second["nextLink"]] == [2, 1, None]


def test_a_snapshot_is_sent_again_after_a_lost_response(v1: Services) -> None:
    response = v1.of("content", "POST", "snapshots/getblob", {"FileNames": ["a.py"]})
    (node,) = response["fileNodes"]
    blob = "/" + node["blobUri"].partition("://")[2].partition("/")[2]
    v1.site.client.put(blob, content=b"x", headers={"x-ms-blob-type": "BlockBlob"})
    body = {
        "DirTreeNode": {"children": {"a.py": {"name": "a.py", "type": "File"}}},
        "FileRevisionList": {"FileNodes": [{"FullName": "a.py", "BlobUri": node["blobUri"]}]},
    }
    where = f"snapshots/{uuid.uuid4()}"
    first, second = (v1.of("content", "POST", where, body) for _ in range(2))
    assert first == second


def test_a_second_list_of_datasets_writes_nothing(v1: Services) -> None:
    properties = {"dataUri": "https://example.org/x.csv", "dataType": "uri_file"}
    v1.put("data/linked/versions/1", properties)
    v1.of("dataset", "GET", "datasets")
    writes: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *remaining: Any) -> None:
        if statement.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE"):
            writes.append(statement)

    engine = v1.site.parts.services.db.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        names = [item["name"] for item in v1.of("dataset", "GET", "datasets")["value"]]
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert "linked" in names and writes == []


def test_a_blobs_properties_keep_non_ascii_letters() -> None:
    # Starlette reads headers as Latin-1, and writes them so.
    sent = 'attachment; filename="ü.txt"'.encode().decode("latin-1")
    result = blob_headers.properties_in({"x-ms-blob-content-disposition": sent})
    assert result == {"Content-Disposition": 'attachment; filename="ü.txt"'}
    assert blob_headers.latin(result["Content-Disposition"]) == sent
