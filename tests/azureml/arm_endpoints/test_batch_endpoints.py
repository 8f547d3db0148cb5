"""Batch endpoints with azure-ai-ml's requests; their jobs are made, and nothing runs them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.batch_endpoints.actions import deployments
from torchyard.batch_endpoints.records.types import BatchDeployment
from torchyard.data.datastores import BLOB_STORE
from torchyard.jobs import actions as jobs
from workspaces.served import served

SCRIPT = b"def init(): ...\ndef run(batch): return batch\n"
PLACE = f"azureml://datastores/{BLOB_STORE}/paths/LocalUpload"
CODE = f"{WORKSPACE}/codes/batch/versions/1"
MODEL = {"referenceType": "Id", "assetId": f"{WORKSPACE}/models/birds/versions/1"}
FILES = {"UriFolder": {"jobInputType": "UriFolder", "uri": f"{PLACE}/ghi/files/"}}


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        stores = site.parts.services.datastores
        for path, content in (
            ("abc/batch/score.py", SCRIPT),
            ("def/birds/w.bin", b"1"),
            ("ghi/files/1.txt", b"1"),
        ):
            with stores.writing("default", BLOB_STORE, f"LocalUpload/{path}") as writing:
                writing.write(content)
        azure = Azure(site)
        azure.put("codes/batch/versions/1", {"codeUri": f"{PLACE}/abc/batch"})
        model = {"modelType": "custom_model", "modelUri": f"{PLACE}/def/birds"}
        azure.put("models/birds/versions/1", model)
        data = {"dataType": "uri_folder", "dataUri": f"{PLACE}/ghi/files/"}
        azure.put("data/pictures/versions/1", data)
        yield azure


def endpoint(azure: Azure, name: str, **properties: Any) -> Any:
    body = {"authMode": "AADToken", "properties": {}, **properties}
    return azure.put(f"batchEndpoints/{name}", body, location="local", tags={})


def deployed(azure: Azure, name: str, deployment: str = "blue", **properties: Any) -> Any:
    """As ModelBatchDeployment is sent."""
    body = {
        "codeConfiguration": {"codeId": CODE, "scoringScript": "score.py"},
        "environmentId": f"{WORKSPACE}/environments/python/labels/latest",
        "model": MODEL,
        "compute": f"{WORKSPACE}/computes/local",
        "resources": {"instanceCount": 1},
        **properties,
    }
    document = {"properties": body, "location": "local", "tags": {"team": "birds"}}
    return azure.answer("PUT", f"batchEndpoints/{name}/deployments/{deployment}", document)


def invoked(
    azure: Azure, name: str, headers: Mapping[str, str] | None = None, /, **properties: Any
) -> Any:
    body = {"properties": {"inputData": FILES, **properties}}
    path = azure.ask("GET", f"batchEndpoints/{name}")["properties"]["scoringUri"]
    path = path[path.index("/subscriptions/") :]
    return asked(azure, "POST", path, body, headers or {})


def asked(azure: Azure, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
    all_headers = {"Authorization": f"Bearer {azure.site.tokens['dan']}", **headers}
    return azure.site.client.request(method, path, json=body, headers=all_headers)


def row_of(azure: Azure, name: str, deployment: str = "blue") -> BatchDeployment:
    return deployments.get(azure.site.parts.services.db, "default", name, deployment)


def spec_of(azure: Azure, name: str) -> Any:
    job = jobs.find_by_name(azure.site.parts.services.db, "default", name)
    assert job is not None
    return job.document


def test_an_endpoint_is_created_read_listed_and_deleted(azure: Azure) -> None:
    made = endpoint(azure, "birds", description="classifies", properties={"rate": "1"})
    assert made["id"] == f"{WORKSPACE}/batchEndpoints/birds"
    properties = made["properties"]
    assert properties["scoringUri"].endswith(f"{WORKSPACE}/batchEndpoints/birds/jobs")
    assert properties["defaults"] == {"deploymentName": None}
    assert (properties["authMode"], properties["provisioningState"]) == ("AADToken", "Succeeded")
    again = azure.ask("PUT", "batchEndpoints/BIRDS", azure.ask("GET", "batchEndpoints/birds"))
    assert again["properties"]["properties"] == {"rate": "1"}
    changed = azure.ask("PATCH", "batchEndpoints/birds", {"tags": {"a": "b"}})
    assert changed["tags"] == {"a": "b"}
    assert azure.names("batchEndpoints") == ["birds"]
    assert azure.answer("DELETE", "batchEndpoints/birds").status_code == 200
    assert azure.answer("DELETE", "batchEndpoints/birds").status_code == 204
    azure.refused(404, "GET", "batchEndpoints/birds")


def test_a_deployment_is_ours_with_all_of_its_settings(azure: Azure) -> None:
    endpoint(azure, "whole")
    answer = deployed(
        azure,
        "whole",
        description="by folders",
        miniBatchSize=5,
        maxConcurrencyPerInstance=2,
        errorThreshold=3,
        outputAction="AppendRow",
        outputFileName="rows.csv",
        loggingLevel="Debug",
        retrySettings={"maxRetries": 1, "timeout": "PT1M30S"},
        resources={"instanceCount": 2, "instanceType": "STANDARD_DS3_v2", "properties": {}},
        environmentVariables={"API_TOKEN": "very-secret"},
        properties={"team": "birds", "torchyard.split_failed_batches": "false"},
    )
    assert answer.status_code == 201, answer.text
    assert "very-secret" not in answer.text
    properties = answer.json()["properties"]
    assert properties["retrySettings"] == {"maxRetries": 1, "timeout": "PT1M30S"}
    assert properties["model"] == MODEL
    assert properties["compute"] == f"{WORKSPACE}/computes/local"
    assert (properties["outputAction"], properties["miniBatchSize"]) == ("AppendRow", 5)
    assert properties["properties"]["torchyard.split_failed_batches"] == "false"
    before = row_of(azure, "whole").document
    assert before["settings"]["retry_settings"] == {"max_retries": 1, "timeout": "PT1M30S"}
    read = azure.ask("GET", "batchEndpoints/whole/deployments/blue")
    azure.ask("PUT", "batchEndpoints/whole/deployments/blue", read)
    after = row_of(azure, "whole").document
    for key in ("model", "code_configuration", "environment", "environment_variables", "torchyard"):
        assert after[key] == before[key], key
    shown = azure.ask("GET", "batchEndpoints/whole")
    assert shown["properties"]["defaults"] == {"deploymentName": "blue"}
    patched = azure.ask(
        "PATCH", "batchEndpoints/whole/deployments/blue", {"properties": {"description": "new"}}
    )
    assert patched["properties"]["description"] == "new"
    assert patched["properties"]["miniBatchSize"] == 5


def test_the_default_is_chosen_and_stays_when_nothing_is_said_of_it(azure: Azure) -> None:
    endpoint(azure, "chosen")
    deployed(azure, "chosen")
    deployed(azure, "chosen", "green")
    put = endpoint(azure, "chosen", defaults={"deploymentName": "green"})
    assert put["properties"]["defaults"] == {"deploymentName": "green"}
    for defaults in (None, {}, {"deploymentName": None}):
        put = endpoint(azure, "chosen", defaults=defaults)
        assert put["properties"]["defaults"] == {"deploymentName": "green"}
    error = azure.refused(409, "DELETE", "batchEndpoints/chosen/deployments/green")
    assert "is the default" in error["message"]
    assert azure.answer("DELETE", "batchEndpoints/chosen/deployments/blue").status_code == 200
    assert azure.names("batchEndpoints/chosen/deployments") == ["green"]


def test_an_invocation_is_a_job(azure: Azure) -> None:
    endpoint(azure, "asked")
    deployed(azure, "asked")
    deployed(azure, "asked", "green")
    answer = invoked(
        azure,
        "asked",
        {"azureml-model-deployment": "green"},
        miniBatchSize="20",
        compute={"instanceCount": "3", "isLocal": False},
        properties={"experimentName": "scores", "round": "2"},
        outputDataset={
            "datastoreId": f"azureml:{WORKSPACE}/datastores/{BLOB_STORE}",
            "path": "/asked/",
        },
        outputFileName="mine.csv",
        name="first-scores",
    )
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["name"] == "first-scores"
    assert made["id"] == f"{WORKSPACE}/batchEndpoints/asked/jobs/first-scores"
    assert made["properties"]["status"] in ("Queued", "NotStarted", "Preparing")
    document = spec_of(azure, "first-scores")
    assert document["resources"]["instance_count"] == 3
    assert document["outputs"]["score"]["path"].endswith(f"{BLOB_STORE}/paths/asked")
    assert document["experiment_name"] == "scores"
    assert document["tags"]["deployment"] == "green"
    listed = azure.ask("GET", "batchEndpoints/asked/deployments/green/jobs")["value"]
    assert [job["name"] for job in listed] == ["first-scores"]
    assert azure.ask("GET", "batchEndpoints/asked/deployments/blue/jobs")["value"] == []
    path = f"/mferp/managementfrontend{WORKSPACE}/batchEndpoints/asked/jobs"
    assert azure.site.ok("dan", "GET", path)["value"] == listed


@pytest.mark.parametrize("header", ["Repeatability-Request-ID", "repeatability_request-id"])
def test_a_request_that_is_sent_again_is_the_same_job(azure: Azure, header: str) -> None:
    endpoint(azure, "twice")
    deployed(azure, "twice")
    headers = {header: str(uuid.uuid4())}
    first, second = (invoked(azure, "twice", headers) for _ in range(2))
    assert (first.status_code, second.status_code) == (201, 200), second.text
    assert first.json()["name"] == second.json()["name"]
    other = invoked(azure, "twice", {"repeatability-request-id": "../x"})
    assert other.status_code == 201 and ".." not in other.json()["name"]


def test_the_clients_look_for_its_step_finds_the_job_itself(azure: Azure) -> None:
    endpoint(azure, "steps")
    deployed(azure, "steps")
    name = invoked(azure, "steps").json()["name"]
    path = f"/history/v1.0{WORKSPACE}/runs/{name}/children"
    headers = {"user-agent": "azure-ai-ml/1.35.0 Python/3.11"}
    answered_jobs = asked(azure, "GET", path, None, headers).json()["value"]
    assert [run["runId"] for run in answered_jobs] == [name]
    # Others, which might look for children of children, find none.
    assert azure.site.ok("dan", "GET", path)["value"] == []


@pytest.mark.parametrize(
    ("properties", "error_message"),
    [
        ({"inputData": {}}, "one input"),
        ({"inputData": {"n": {"jobInputType": "Literal", "value": "5"}}}, "is a literal"),
        ({"inputData": {"n": {"jobInputType": "MLFlowModel", "uri": PLACE}}}, "`type`"),
        ({"inputData": {"n": {"jobInputType": "UriFolder"}}}, "no `path`"),
        ({"inputData": [1]}, "not a JSON object"),
        ({"compute": {"target": "gpu"}}, "does not choose its compute"),
        ({"compute": {"instanceCount": "many"}}, "`instance_count`"),
        ({"miniBatchSize": "0"}, "`mini_batch_size`"),
        ({"retrySettings": {"timeout": "soon"}}, "`timeout`"),
        ({"outputData": {"a": {"jobOutputType": "MLTable", "uri": PLACE}}}, "uri_folder"),
        ({"outputDataset": {"path": "x"}}, "no `datastoreId`"),
        ({"dataset": {"datasetId": "1"}}, "`dataset` of an invocation is not served"),
        ({"name": "no/such"}, "no/such"),
    ],
)
def test_what_an_invocation_refuses_makes_no_job(
    azure: Azure, properties: dict[str, Any], error_message: str
) -> None:
    endpoint(azure, "strict")
    deployed(azure, "strict")
    answer = invoked(azure, "strict", **properties)
    assert answer.status_code == 400, answer.text
    message = answer.json()["error"]["message"]
    assert error_message in message, message
    assert azure.ask("GET", "batchEndpoints/strict/jobs")["value"] == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"deploymentConfiguration": {"componentId": {"assetId": "x"}}}, "pipeline component"),
        ({"model": {"referenceType": "DataPath", "path": "x"}}, "referenceType"),
        ({"partitionKeys": ["a"]}, "`partitionKeys`"),
        ({"codeConfiguration": {"codeId": CODE, "scoringScript": "no.py"}}, "`no.py`"),
        ({"resources": {"gpus": 2}}, "`gpus`"),
        ({"compute": f"{WORKSPACE}/computes/nowhere"}, "`nowhere`"),
    ],
)
def test_what_a_deployment_refuses(azure: Azure, properties: dict[str, Any], message: str) -> None:
    endpoint(azure, "limits")
    answer = deployed(azure, "limits", **properties)
    assert answer.status_code in (400, 404), answer.text
    assert message in answer.json()["error"]["message"], answer.text
    assert azure.names("batchEndpoints/limits/deployments") == []


def test_readers_invoke_nothing_and_change_nothing(azure: Azure) -> None:
    endpoint(azure, "guarded")
    deployed(azure, "guarded")
    reader = Azure(azure.site, "rita")
    body = {"properties": {"inputData": FILES}}
    reader.refused(403, "POST", "batchEndpoints/guarded/jobs", body)
    reader.refused(403, "DELETE", "batchEndpoints/guarded")
    reader.refused(403, "PUT", "batchEndpoints/guarded", {"properties": {}})
    assert reader.ask("GET", "batchEndpoints/guarded/jobs") == {"value": []}
