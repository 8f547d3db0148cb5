"""Online endpoints with azure-ai-ml's requests; without the keeper of instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.data.datastores import BLOB_STORE
from torchyard.endpoints.actions import deployments, endpoints
from torchyard.endpoints.records import address, store
from torchyard.endpoints.records.types import Deployment, ProvisioningState
from workspaces.served import HERE, served

SCRIPT = b"def init(): ...\ndef run(raw_data): return raw_data\n"
PLACE = f"azureml://datastores/{BLOB_STORE}/paths/LocalUpload"
ENVIRONMENT = f"{WORKSPACE}/environments/python/labels/latest"
MODEL = f"{WORKSPACE}/models/birds/versions/1"
CODE = f"{WORKSPACE}/codes/scoring/versions/1"


@pytest.fixture(scope="module")
def azure(tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase) -> Iterator[Azure]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        address.write(site.parts.services.home, "https://localhost:9999")
        stores = site.parts.services.datastores
        for path, content in (("abc/scoring/score.py", SCRIPT), ("def/birds/w.bin", b"1")):
            with stores.writing("default", BLOB_STORE, f"LocalUpload/{path}") as writing:
                writing.write(content)
        azure = Azure(site)
        azure.put("codes/scoring/versions/1", {"codeUri": f"{PLACE}/abc/scoring"})
        model = {"modelType": "custom_model", "modelUri": f"{PLACE}/def/birds"}
        azure.put("models/birds/versions/1", model)
        yield azure


def endpoint(azure: Azure, name: str, **properties: Any) -> Any:
    body = {"authMode": "Key", "traffic": {}, "properties": {}, **properties}
    identity = {"type": "SystemAssigned"}
    return azure.put(f"onlineEndpoints/{name}", body, location="local", identity=identity, tags={})


def deployment_body(properties: Mapping[str, Any], **beside: Any) -> dict[str, Any]:
    """As ManagedOnlineDeployment is sent."""
    document = {
        "endpointComputeType": "Managed",
        "codeConfiguration": {"codeId": CODE, "scoringScript": "score.py"},
        "environmentId": ENVIRONMENT,
        "model": MODEL,
        "appInsightsEnabled": False,
        "properties": {},
        "instanceType": "Standard_DS3_v2",
        **properties,
    }
    sku = {"name": "Default", "capacity": 1}
    return {"location": "local", "properties": document, "sku": sku, "tags": {}, **beside}


def deployed(
    azure: Azure, name: str, deployment: str = "blue", beside: Any = None, **properties: Any
) -> Any:
    body = deployment_body(properties, **(beside or {}))
    return azure.answer("PUT", f"onlineEndpoints/{name}/deployments/{deployment}", body)


def status_of(azure: Azure, answer: Any, header: str = "azure-asyncoperation") -> Any:
    path = answer.headers[header].partition("/workspaces/default/")[2]
    return azure.answer("GET", path)


def row_of(azure: Azure, name: str, deployment: str = "blue") -> Deployment:
    return deployments.get(azure.site.parts.services.db, "default", name, deployment)


def finish(azure: Azure, name: str, state: ProvisioningState, message: str = "") -> None:
    """What the keeper does once instances are ready, or are not."""
    services, row = azure.site.parts.services, row_of(azure, name)
    values: dict[str, Any] = {"state": state, "message": message}
    if state is ProvisioningState.SUCCEEDED:
        values["served_revision"] = row.revision
    with services.db.write() as connection:
        store.change_deployment(connection, row, **values)


def removed(azure: Azure, name: str, deployment: str = "blue") -> None:
    """What the keeper does once its instances have ended."""
    row = row_of(azure, name, deployment)
    with azure.site.parts.services.db.write() as connection:
        store.remove_deployment(connection, row)


def test_an_endpoint_is_created_read_listed_and_deleted(azure: Azure) -> None:
    made = endpoint(azure, "birds", description="classifies")
    assert made["id"] == f"{WORKSPACE}/onlineEndpoints/birds"
    properties = made["properties"]
    assert properties["scoringUri"] == "https://localhost:9999/endpoints/default/birds/score"
    assert properties["swaggerUri"].endswith("/birds/swagger.json")
    assert (properties["authMode"], properties["traffic"]) == ("Key", {})
    assert made["identity"]["type"] == "SystemAssigned" and made["kind"] == "Managed"
    read = azure.ask("GET", "onlineEndpoints/BIRDS")
    assert read["properties"]["description"] == "classifies"
    assert "birds" in azure.names("onlineEndpoints")
    assert azure.names("onlineEndpoints", name="birds") == ["birds"]
    deleted = azure.answer("DELETE", "onlineEndpoints/birds")
    assert deleted.status_code == 202
    assert status_of(azure, deleted).json()["status"] == "Succeeded"
    assert status_of(azure, deleted, "location").status_code == 200
    assert azure.answer("DELETE", "onlineEndpoints/birds").status_code == 204
    assert azure.refused(404, "GET", "onlineEndpoints/birds")["code"] == "ResourceNotFound"


def test_what_a_client_reads_it_can_put_again(azure: Azure) -> None:
    endpoint(azure, "again", properties={"rate": "0.1"})
    read = azure.ask("GET", "onlineEndpoints/again")
    # azure-ai-ml adds them to what it has read.
    read["properties"]["properties"]["createdBy"] = "dan"
    again = azure.ask("PUT", "onlineEndpoints/again", read)
    assert again["properties"]["properties"] == {"rate": "0.1"}
    assert deployed(azure, "again").status_code == 201
    before = row_of(azure, "again").document
    read = azure.ask("GET", "onlineEndpoints/again/deployments/blue")
    answer = azure.answer("PUT", "onlineEndpoints/again/deployments/blue", read)
    assert answer.status_code == 200, answer.text
    after = row_of(azure, "again").document
    for key in ("model", "code_configuration", "environment", "instance_count", "instance_type"):
        assert after[key] == before[key], key


def test_a_deployment_is_ours_with_all_of_its_settings(azure: Azure) -> None:
    endpoint(azure, "whole")
    probe = {
        "initialDelay": "PT20S",
        "period": "PT1M",
        "timeout": "PT2S",
        "successThreshold": 1,
        "failureThreshold": 5,
    }
    collection = {
        "dataCollectionMode": "Enabled",
        "samplingRate": 0.5,
        "dataId": f"{WORKSPACE}/data/whole-blue-model_inputs/versions/1",
    }
    answer = deployed(
        azure,
        "whole",
        beside={"sku": {"name": "Default", "capacity": 3}, "tags": {"torchyard.max_queue": "20"}},
        requestSettings={
            "maxConcurrentRequestsPerInstance": 4,
            "maxQueueWait": "PT0.8S",
            "requestTimeout": "PT9S",
        },
        livenessProbe=probe,
        scaleSettings={
            "scaleType": "TargetUtilization",
            "minInstances": 2,
            "maxInstances": 5,
            "pollingInterval": "PT10S",
            "targetUtilizationPercentage": 60,
        },
        dataCollector={"collections": {"model_inputs": collection}, "rollingRate": "Hour"},
        environmentVariables={"MODE": "fast"},
    )
    assert answer.status_code == 201, answer.text
    document = row_of(azure, "whole").document
    assert document["request_settings"] == {
        "max_concurrent_requests_per_instance": 4,
        "max_queue_wait_ms": 800,
        "request_timeout_ms": 9000,
    }
    assert document["liveness_probe"]["period"] == 60
    assert document["instance_count"] == 3
    assert (document["model"]["name"], document["model"]["version"]) == ("birds", "1")
    assert document["code_configuration"]["code"].startswith("snapshot:")
    read = azure.ask("GET", "onlineEndpoints/whole/deployments/blue")
    assert read["sku"] == {"name": "Default", "capacity": 3}
    properties = read["properties"]
    assert properties["requestSettings"]["maxQueueWait"] == "PT0.8S"
    assert properties["livenessProbe"] == {**probe, "period": "PT1M"}
    assert properties["readinessProbe"]["failureThreshold"] == 30
    assert properties["scaleSettings"]["maxInstances"] == 5
    assert properties["dataCollector"]["collections"]["model_inputs"]["samplingRate"] == 0.5
    assert properties["model"] == MODEL and properties["endpointComputeType"] == "Managed"
    assert properties["environmentVariables"] == {"MODE": "fast"}


def test_collected_data_is_registered_before_there_is_any(azure: Azure) -> None:
    folder = f"azureml://datastores/{BLOB_STORE}/paths/modelDataCollector"
    for path, status in (("e/d/model_inputs", 201), ("e/../d", 400)):
        body = {"properties": {"dataType": "uri_folder", "dataUri": f"{folder}/{path}"}}
        answer = azure.answer("PUT", f"data/{path.replace('/', '-')}/versions/1", body)
        assert answer.status_code == status, answer.text


def test_a_secret_is_hidden_and_stays_what_it_is(azure: Azure) -> None:
    endpoint(azure, "secret")
    deployed(azure, "secret", environmentVariables={"API_TOKEN": "very-secret", "MODE": "a"})
    path = "onlineEndpoints/secret/deployments/blue"
    read = azure.ask("GET", path)
    assert "very-secret" not in str(read)
    read["properties"]["environmentVariables"]["MODE"] = "b"
    azure.ask("PUT", path, read)
    variables = row_of(azure, "secret").document["environment_variables"]
    assert variables == {"API_TOKEN": "very-secret", "MODE": "b"}


def test_a_deployment_of_yard_keeps_what_azure_has_no_word_for(azure: Azure) -> None:
    endpoint(azure, "native")
    blobs = azure.site.parts.services.blobs.of("default")
    file = {"path": "score.py", "sha256": blobs.put_bytes(SCRIPT), "size": len(SCRIPT)}
    code = blobs.put_snapshot({"files": [file]}).id
    document = {
        "endpoint_name": "native",
        "model": {"path": f"snapshot:{code}", "folder": "scoring"},
        "code_configuration": {"code": f"snapshot:{code}", "scoring_script": "score.py"},
        "environment": {"conda_file": {"dependencies": ["python=3.11"]}},
        "torchyard": {"max_queue": 7, "batching": {"max_size": 4}},
    }
    azure.site.ok("dan", "PUT", f"{HERE}/online-endpoints/native/deployments/blue", document)
    before = row_of(azure, "native").document
    path = "onlineEndpoints/native/deployments/blue"
    read = azure.ask("GET", path)
    assert read["properties"]["model"].startswith(f"{WORKSPACE}/models/unnamed/versions/")
    assert read["properties"]["properties"]["torchyard.max_queue"] == "7"
    read["sku"]["capacity"] = 2
    azure.ask("PUT", path, read)
    after = row_of(azure, "native").document
    assert {key: after[key] for key in ("model", "environment", "code_configuration")} == {
        key: before[key] for key in ("model", "environment", "code_configuration")
    }
    assert after["instance_count"] == 2
    assert after["properties"]["torchyard.batching"] == '{"max_size": 4}'


def test_an_operation_ends_when_its_deployment_is_ready(azure: Azure) -> None:
    endpoint(azure, "slow")
    answer = deployed(azure, "slow")
    assert answer.json()["properties"]["provisioningState"] == "Creating"
    status = status_of(azure, answer)
    assert status.json()["status"] == "InProgress" and "retry-after-ms" in status.headers
    finish(azure, "slow", ProvisioningState.SUCCEEDED)
    assert status_of(azure, answer).json()["status"] == "Succeeded"
    second = deployed(azure, "slow", environmentVariables={"A": "new"})
    assert second.status_code == 200
    assert status_of(azure, second).json()["status"] == "InProgress"
    finish(
        azure, "slow", ProvisioningState.FAILED, "init() raised KeyError: 'a' (score.py, line 2)"
    )
    error = status_of(azure, second).json()
    assert error["status"] == "Failed" and "score.py, line 2" in error["error"]["message"]
    # What was ready stays so: only the later change failed.
    services = azure.site.parts.services
    with services.db.write() as connection:
        store.change_deployment(connection, row_of(azure, "slow"), served_revision=2)
    assert status_of(azure, answer).json()["status"] == "Succeeded"
    azure.answer("DELETE", "onlineEndpoints/slow/deployments/blue")
    assert status_of(azure, second).json()["status"] == "Canceled"


def test_a_deleted_deployment_is_gone_when_its_operation_says_so(azure: Azure) -> None:
    endpoint(azure, "gone")
    deployed(azure, "gone")
    answer = azure.answer("DELETE", "onlineEndpoints/gone/deployments/blue")
    assert answer.status_code == 202
    assert status_of(azure, answer).json()["status"] == "InProgress"
    running = status_of(azure, answer, "location")
    assert running.status_code == 202 and running.headers["location"]
    removed(azure, "gone")
    assert status_of(azure, answer).json()["status"] == "Succeeded"
    assert status_of(azure, answer, "location").status_code == 200
    assert azure.answer("DELETE", "onlineEndpoints/gone/deployments/blue").status_code == 204
    # One of the same name that is created later is not its business.
    deployed(azure, "gone")
    assert status_of(azure, answer).json()["status"] == "Succeeded"


def test_the_first_endpoint_waits_for_its_address(azure: Azure) -> None:
    services = azure.site.parts.services
    file = services.home / "router" / "address.json"
    content = file.read_bytes()
    file.unlink()
    try:
        body = {"properties": {"authMode": "Key"}}
        answer = azure.answer("PUT", "onlineEndpoints/first", body)
        assert answer.json()["properties"]["scoringUri"] is None
        assert status_of(azure, answer).json()["status"] == "InProgress"
    finally:
        file.write_bytes(content)
    with services.db.write() as connection:
        store.finish(connection, endpoints.get(services.db, "default", "first"))
    assert status_of(azure, answer).json()["status"] == "Succeeded"


def test_traffic_is_divided_and_mirrored_among_deployments_that_exist(azure: Azure) -> None:
    endpoint(azure, "split")
    for name in ("blue", "green"):
        deployed(azure, "split", name)
    put = endpoint(azure, "split", traffic={"blue": 100}, mirrorTraffic={"green": 10})
    assert put["properties"]["mirrorTraffic"] == {"green": 10}
    put = endpoint(azure, "split", traffic={"blue": 90, "green": 10}, mirrorTraffic={})
    assert put["properties"]["traffic"] == {"blue": 90, "green": 10}
    for traffic, expected in (
        ({"blue": 90}, "adds up to 90"),
        ({"red": 100}, "no deployment `red`"),
        ({"blue": "x"}, "whole number"),
        ([1], "must be a mapping"),
    ):
        body = {"properties": {"traffic": traffic}}
        assert expected in azure.refused(400, "PUT", "onlineEndpoints/split", body)["message"]
    error = azure.refused(409, "DELETE", "onlineEndpoints/split/deployments/green")
    assert "has 10% of the traffic" in error["message"]
    assert azure.names("onlineEndpoints/split/deployments") == ["blue", "green"]


def test_keys_and_tokens_are_given_to_those_who_may_write(azure: Azure) -> None:
    endpoint(azure, "keyed")
    keys = azure.ask("POST", "onlineEndpoints/keyed/listKeys")
    body = {"keyType": "Secondary", "keyValue": keys["secondaryKey"]}
    assert azure.ask("POST", "onlineEndpoints/keyed/regenerateKeys", body) is None
    after = azure.ask("POST", "onlineEndpoints/keyed/listKeys")
    assert after["primaryKey"] == keys["primaryKey"]
    assert after["secondaryKey"] != keys["secondaryKey"]
    wrong: tuple[tuple[Any, int], ...] = (
        ({"keyType": "Primary", "keyValue": "mine-mine"}, 501),
        ({"keyType": "third"}, 400),
        ({"keyType": 3}, 400),
        ([], 400),
    )
    for refused, status in wrong:
        azure.refused(status, "POST", "onlineEndpoints/keyed/regenerateKeys", refused)
    assert azure.ask("POST", "onlineEndpoints/keyed/listKeys") == after
    azure.refused(409, "POST", "onlineEndpoints/keyed/token")
    endpoint(azure, "tokened", authMode="AMLToken")
    token = azure.ask("POST", "onlineEndpoints/tokened/token")
    assert token["accessToken"].count(".") == 2
    assert token["refreshAfterTimeUtc"] < token["expiryTimeUtc"]
    reader = Azure(azure.site, "rita")
    for action in ("listKeys", "token", "regenerateKeys"):
        reader.refused(403, "POST", f"onlineEndpoints/keyed/{action}", {"keyType": "Primary"})


def test_a_patch_changes_tags_and_the_number_of_instances(azure: Azure) -> None:
    endpoint(azure, "patched")
    deployed(azure, "patched")
    tagged = azure.ask("PATCH", "onlineEndpoints/patched", {"tags": {"a": "1"}})
    assert tagged["tags"] == {"a": "1"}
    path = "onlineEndpoints/patched/deployments/blue"
    changed = azure.ask("PATCH", path, {"tags": {"b": "2"}, "sku": {"capacity": 4}})
    assert (changed["tags"], changed["sku"]["capacity"]) == ({"b": "2"}, 4)
    azure.refused(400, "PATCH", path, {"properties": {"model": MODEL}})
    azure.refused(400, "PATCH", "onlineEndpoints/patched", {"traffic": {"blue": 1}})


def test_a_patch_divides_traffic_as_azureml_mlflow_does(azure: Azure) -> None:
    endpoint(azure, "divided")
    deployed(azure, "divided")
    finish(azure, "divided", ProvisioningState.SUCCEEDED, "")
    body = {"properties": {"traffic": {"blue": 100}, "mirrorTraffic": None}}
    changed = azure.ask("PATCH", "onlineEndpoints/divided", body)
    assert changed["properties"]["traffic"] == {"blue": 100}
    tagged = azure.ask("PATCH", "onlineEndpoints/divided", {"tags": {"a": "1"}})
    assert tagged["properties"]["traffic"] == {"blue": 100}
    azure.refused(400, "PATCH", "onlineEndpoints/divided", {"properties": {"authMode": "Key"}})


def test_logs_are_those_of_the_deployment(azure: Azure) -> None:
    endpoint(azure, "logged")
    deployed(azure, "logged")
    finish(azure, "logged", ProvisioningState.FAILED, "the environment can't be built")
    path = "onlineEndpoints/logged/deployments/blue/getLogs"
    body = {"containerType": "InferenceServer", "tail": 5}
    assert azure.ask("POST", path, body) == {"content": "the environment can't be built"}
    for wrong in ({"tail": "5"}, {"tail": 0}, {"tail": True}, {"containerType": "Other"}):
        azure.refused(400, "POST", path, wrong)
    assert azure.ask("GET", path.replace("getLogs", "skus"))["value"]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"compute": f"{WORKSPACE}/computes/aks"}, "`compute` is not served"),
        ({"publicNetworkAccess": "Disabled"}, "`public_network_access: disabled` is not served"),
        ({"keys": {"primaryKey": "mine-mine"}}, "keys that its client chose"),
        ({"authMode": "Password"}, "`auth_mode` is"),
        ({"authMode": 7}, "`auth_mode` is"),
        ({"nonsense": 1}, "`nonsense` of an online endpoint is not served"),
        ({"properties": [1]}, "must be a mapping"),
        ({"traffic": {"blue": 1}}, "adds up to 1"),
    ],
)
def test_an_endpoint_that_is_refused_leaves_none(
    azure: Azure, properties: dict[str, Any], expected: str
) -> None:
    body = {"properties": properties}
    assert expected in azure.refused(400, "PUT", "onlineEndpoints/refused", body)["message"]
    azure.refused(404, "GET", "onlineEndpoints/refused")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"identity": {"type": "UserAssigned"}, "properties": {}}, "is not served"),
        (
            {
                "identity": {"type": "SystemAssigned", "userAssignedIdentities": {"a": {}}},
                "properties": {},
            },
            "is not served",
        ),
        ({"identity": "SystemAssigned", "properties": {}}, "not a JSON object"),
        ({"tags": [1], "properties": {}}, "must be a mapping"),
        ({"other": 1, "properties": {}}, "`other` is not served"),
        ({}, "`properties` is not a JSON object"),
        ([], "not a JSON object"),
    ],
)
def test_an_endpoint_of_a_wrong_body_is_refused(azure: Azure, body: Any, expected: str) -> None:
    assert expected in azure.refused(400, "PUT", "onlineEndpoints/refused", body)["message"]


@pytest.mark.parametrize(
    ("properties", "status", "expected"),
    [
        ({"endpointComputeType": "Kubernetes"}, 400, "`type: kubernetes` is not served"),
        ({"modelMountPath": "/var/models"}, 400, "`model_mount_path` is not served"),
        ({"containerResourceRequirements": {"requests": {}, "x": 1}}, 400, "`resources`"),
        ({"egressPublicNetworkAccess": "Disabled"}, 400, "is not served"),
        ({"privateNetworkConnection": True}, 400, "`privateNetworkConnection` of an online"),
        ({"requestSettings": {"requestTimeout": 5}}, 400, "must be a duration"),
        ({"requestSettings": {"requestTimeout": "5 s"}}, 400, "is not a duration"),
        ({"requestSettings": {"requestTimeout": "PT9999S"}}, 400, "from 1 to 180000"),
        ({"requestSettings": {"retries": 3}}, 400, "`requestSettings.retries` is not served"),
        ({"requestSettings": [1]}, 400, "`requestSettings` is not a JSON object"),
        ({"livenessProbe": {"failureThreshold": "x"}}, 400, "whole number"),
        ({"scaleSettings": {"scaleType": "Other"}}, 400, "use one of"),
        ({"dataCollector": {"collections": {"a b": {}}}}, 400, "`a b`"),
        ({"dataCollector": {"collections": {"request": 1}}}, 400, "not a JSON object"),
        (
            {"dataCollector": {"requestLogging": {"captureHeaders": ["a"]}, "collections": {}}},
            400,
            "is not served",
        ),
        ({"dataCollector": {"collections": {"request": {"dataId": 7}}}}, 400, "`dataId`"),
        (
            {"dataCollector": {"collections": {"request": {"dataCollectionMode": "Often"}}}},
            400,
            "`Enabled` or `Disabled`",
        ),
        ({"codeConfiguration": {"codeId": CODE, "scoringScript": "no.py"}}, 400, "no file `no.py`"),
        ({"codeConfiguration": {"codeId": CODE}}, 400, "has no `scoring_script`"),
        ({"codeConfiguration": {"codeId": "codes/x", "scoringScript": "a.py"}}, 400, "not a code"),
        ({"codeConfiguration": "score.py"}, 400, "not a JSON object"),
        ({"model": MODEL.replace("birds", "brids")}, 404, "brids"),
        ({"model": MODEL.replace("/default/", "/other/")}, 404, "workspace `other`"),
        ({"model": {"path": "/etc/passwd"}}, 400, "`model`"),
        ({"model": "file:///etc/passwd"}, 400, "/etc/passwd"),
        ({"environmentId": "azureml:nothing:1"}, 400, "nothing"),
        ({"environmentId": 5}, 400, "`environmentId`"),
        ({"environmentVariables": {"A B": "x"}}, 400, "environment variable"),
        ({"environmentVariables": {"A": "*****"}}, 400, "was a secret"),
        ({"properties": {"torchyard.nonsense": "1"}}, 400, "unknown key `torchyard.nonsense`"),
        ({"nonsense": [1]}, 400, "`nonsense` of an online deployment is not served"),
        ({"\x00": 1}, 400, "NUL character"),
    ],
)
def test_a_deployment_that_is_refused_leaves_none(
    azure: Azure, properties: dict[str, Any], status: int, expected: str
) -> None:
    endpoint(azure, "strict")
    path = "onlineEndpoints/strict/deployments/blue"
    error = azure.refused(status, "PUT", path, deployment_body(properties))
    assert expected in error["message"], error
    assert azure.names("onlineEndpoints/strict/deployments") == []


@pytest.mark.parametrize(
    "beside", [{"sku": {"capacity": 0}}, {"sku": {"capacity": "many"}}, {"sku": 1}, {"tags": "x"}]
)
def test_what_stands_beside_the_properties_is_checked(azure: Azure, beside: Any) -> None:
    endpoint(azure, "beside")
    path = "onlineEndpoints/beside/deployments/blue"
    azure.refused(400, "PUT", path, deployment_body({}, **beside))
    assert azure.names("onlineEndpoints/beside/deployments") == []


@pytest.mark.parametrize(
    "path",
    [
        "onlineEndpoints/nothing/deployments",
        "onlineEndpoints/nothing/deployments/blue",
        "onlineEndpoints/nothing/operationsStatus/nonsense",
        "onlineEndpoints/nothing/operationResults/put.blue.x",
        "onlineEndpoints/nothing/other",
    ],
)
def test_what_is_not_there_is_not_found(azure: Azure, path: str) -> None:
    azure.refused(404, "GET", path)


def test_names_of_others_and_of_a_wrong_form_are_refused(azure: Azure) -> None:
    for name in ("a", "1abc", "a" * 40, "a--b", "ä-name"):
        body = {"properties": {"authMode": "Key"}}
        assert "`name`" in azure.refused(400, "PUT", f"onlineEndpoints/{name}", body)["message"]
    azure.refused(404, "PUT", "onlineEndpoints/nothing/deployments/blue", deployment_body({}))
    owner = Azure(azure.site, "olga")
    endpoint(owner, "hers")
    other = {"properties": {"description": "mine"}}
    assert (
        "belongs to `olga`" in azure.refused(403, "PUT", "onlineEndpoints/hers", other)["message"]
    )
    azure.refused(403, "DELETE", "onlineEndpoints/hers")
    azure.refused(403, "PUT", "onlineEndpoints/hers/deployments/blue", deployment_body({}))
