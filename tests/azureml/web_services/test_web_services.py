"""SDK v1's web services with its client's requests; without the keeper of instances."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any

import pytest

from azureml.azure_server import WORKSPACE, Azure
from postgres_server import NewDatabase
from torchyard.endpoints.actions import deployments, endpoints
from torchyard.endpoints.records import address, store
from torchyard.endpoints.records.types import Instance, InstanceState, ProvisioningState
from workspaces.served import served

SCRIPT = b"def init(): ...\ndef run(raw_data): return raw_data\n"
DRIVER = (
    b"script_location = os.path.join(os.path.dirname(os.path.realpath(__file__)), 'src/score.py')"
)
ENVIRONMENT = {
    "name": "python",
    "version": None,
    "python": {"condaDependencies": {"dependencies": ["python=3.11", {"pip": ["six==1.16.0"]}]}},
    "docker": {"baseImage": "mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04"},
}


class Management(Azure):
    """Model management, as azureml-core asks it."""

    def of(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        where = f"/modelmanagement/v1.0{WORKSPACE}/{path}"
        return self.site.ask(self.user, method, where, body, params=query)

    def json(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        answer = self.of(method, path, body, **query)
        assert answer.status_code in (200, 202), answer.text
        return answer.json()

    def refusal(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, str]:
        answer = self.of(method, path, body, **query)
        assert answer.status_code >= 400, answer.text
        return answer.status_code, answer.json()["error"]["message"]

    def upload(self, name: str, content: bytes) -> str:
        stores = self.site.parts.services.datastores
        path = f"LocalUpload/{name.partition('.')[0]}/{name}"
        with stores.writing("default", "workspaceartifactstore", path) as writing:
            writing.write(content)
        return f"aml://artifact/{path}"

    def model(self, name: str, file: str = "w.bin", **fields: Any) -> str:
        url = self.upload(file, b"weights").removeprefix("aml://artifact/")
        asset = self.json("POST", "assets", {"name": name, "artifacts": [{"id": url}]})
        body = {"name": name, "url": f"aml://asset/{asset['id']}", **fields}
        return str(self.json("POST", "models", body)["id"])

    def deployed(self, name: str, *models: str, **overrides: Any) -> Any:
        return self.of("POST", "services", request(self, name, list(models), **overrides))

    def finish(self, name: str, state: ProvisioningState, message: str = "") -> None:
        """What the keeper does once instances are ready, or are not."""
        services = self.site.parts.services
        row = deployments.get(services.db, "default", name, name)
        with services.db.write() as connection:
            store.change_deployment(connection, row, state=state, message=message)
            if state is ProvisioningState.SUCCEEDED:
                instance = Instance(
                    "default", name, name, row.revision, 0, "j", InstanceState.READY,
                    "/socket", "", row.changed_at,
                )  # fmt: skip
                store.put_instance(connection, instance)


@pytest.fixture(scope="module")
def mms(
    tmp_path_factory: pytest.TempPathFactory, new_database: NewDatabase
) -> Iterator[Management]:
    home = tmp_path_factory.mktemp("home")
    with served(home, new_database(home)) as site:
        address.write(site.parts.services.home, "https://localhost:9999")
        yield Management(site, "olga")


@pytest.fixture(scope="module")
def model(mms: Management) -> str:
    return mms.model("birds")


def request(
    mms: Management,
    name: str,
    models: list[str],
    files: dict[str, bytes] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """As `Model.deploy` sends it for an InferenceConfig with a `source_directory`."""
    folder = tarred(files or {"src/score.py": SCRIPT, "src/lib/names.py": b"NAMES = 1\n"})
    variables = {
        "AZUREML_SOURCE_DIRECTORY": "src",
        "AZUREML_ENTRY_SCRIPT": "src/score.py",
        "MODE": "fast",
    }
    image = {
        "driverProgram": "tmpdriver.py",
        "assets": [
            {"id": "tmpdriver.py", "url": mms.upload("tmpdriver.py", DRIVER)},
            {"id": "c.tar.gz", "url": mms.upload(f"{name}.tar.gz", folder), "unpack": True},
        ],
        "modelIds": models,
        "environment": {**ENVIRONMENT, "environmentVariables": variables},
    }
    return {
        "name": name,
        "description": "classifies birds",
        "kvTags": {"data": "birds"},
        "properties": {},
        "keys": {"primaryKey": None, "secondaryKey": None},
        "computeType": "ACI",
        "environmentImageRequest": image,
        "location": None,
        "containerResourceRequirements": {"cpu": 2, "memoryInGB": 2},
        "cname": None,
        "dnsNameLabel": None,
        **more,
    }


def tarred(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def file_of(mms: Management, name: str) -> dict[str, Any]:
    return dict(deployments.get(mms.site.parts.services.db, "default", name, name).document)


def test_a_deployed_model_is_an_endpoint_with_one_deployment(mms: Management, model: str) -> None:
    answer = mms.deployed("aci-birds", model)
    assert answer.status_code == 202, answer.text
    operation = answer.headers["Operation-Location"].rpartition("/")[2]
    assert mms.json("GET", f"operations/{operation}")["state"] == "Running"
    assert mms.json("GET", "services/aci-birds")["state"] == "Transitioning"

    endpoint = endpoints.get(mms.site.parts.services.db, "default", "aci-birds")
    assert (endpoint.auth_mode.value, endpoint.traffic) == ("key", {"aci-birds": 100})
    document = file_of(mms, "aci-birds")
    code = document["code_configuration"]
    assert code["scoring_script"] == "src/score.py"
    snapshot = mms.site.parts.services.blobs.of("default").snapshot(
        code["code"].removeprefix("snapshot:")
    )
    assert sorted(file.path for file in snapshot.files) == ["src/lib/names.py", "src/score.py"]
    assert document["environment_variables"] == {"AZUREML_SOURCE_DIRECTORY": "src", "MODE": "fast"}
    assert (document["model"]["name"], document["model"]["version"]) == ("birds", "1")

    mms.finish("aci-birds", ProvisioningState.SUCCEEDED)
    done = mms.json("GET", f"operations/{operation}", offset="0")
    assert done["state"] == "Succeeded" and "takes all requests" in done["streamingOperationLog"]
    service = mms.json("GET", "services/aci-birds", expand="true")
    assert service["state"] == "Healthy"
    assert service["scoringUri"] == "https://localhost:9999/endpoints/default/aci-birds/score"
    assert service["kvTags"] == {"data": "birds"} and service["properties"] == {}
    assert service["containerResourceRequirements"]["cpu"] == 2
    assert [item["id"] for item in service["models"]] == [model]
    assert "six==1.16.0" in json.dumps(service["environmentImageRequest"]["environment"])
    keys = mms.json("POST", "services/aci-birds/listkeys")
    assert service["authEnabled"] and keys["primaryKey"] != keys["secondaryKey"]
    assert mms.json("GET", "services/aci-birds/logs", tail="10")["content"] == ""


def test_the_log_of_an_operation_goes_on_where_the_client_is(mms: Management, model: str) -> None:
    label = {"dnsNameLabel": "birds", "location": "eastus"}
    operation = mms.deployed("labelled", model, **label).headers["Operation-Location"]
    id = operation.rpartition("/")[2]
    first = mms.json("GET", f"operations/{id}")["streamingOperationLog"]
    assert "dns_name_label has no effect" in first and "location has no effect" in first
    assert (
        mms.json("GET", f"operations/{id}", offset=str(len(first)))["streamingOperationLog"] == ""
    )
    mms.finish("labelled", ProvisioningState.SUCCEEDED)
    rest = mms.json("GET", f"operations/{id}", offset=str(len(first)))["streamingOperationLog"]
    assert rest.startswith("#") and rest.endswith("It is ready and takes all requests")


def test_a_failed_deployment_says_why(mms: Management, model: str) -> None:
    id = mms.deployed("broken", model).headers["Operation-Location"].rpartition("/")[2]
    mms.finish("broken", ProvisioningState.FAILED, "init() of score.py: KeyError: 'a'")
    operation = mms.json("GET", f"operations/{id}")
    assert operation["state"] == "Failed"
    assert operation["error"]["message"] == "init() of score.py: KeyError: 'a'"
    assert operation["operationDetails"]["subOperationType"] == "DeployService"
    service = mms.json("GET", "services/broken")
    assert (service["state"], service["error"]["code"]) == ("Failed", "DeploymentFailed")


def test_a_name_is_taken_unless_the_service_is_overwritten(mms: Management, model: str) -> None:
    mms.deployed("twice", model)
    message = mms.json("POST", "services/validate/name/twice", {})["error"]["message"]
    assert "`twice` exists already" in message and "overwrite=True" in message
    assert mms.json("POST", "services/validate/name/other", {}) == {}
    assert mms.refusal("POST", "services", request(mms, "twice", [model]))[0] == 409
    more = {"overwrite": True, "kvTags": {"round": "2"}}
    assert mms.deployed("twice", model, **more).status_code == 202
    assert deployments.get(mms.site.parts.services.db, "default", "twice", "twice").revision == 2
    assert mms.json("GET", "services/twice")["kvTags"] == {"round": "2"}


def test_an_endpoint_of_others_is_no_web_service(mms: Management, model: str) -> None:
    mms.site.ok("olga", "PUT", "/v1/workspaces/default/online-endpoints/native", {"name": "native"})
    assert mms.refusal("GET", "services/native")[0] == 404
    assert mms.of("DELETE", "services/native").status_code == 204
    status, message = mms.refusal("POST", "services", request(mms, "native", [model]))
    assert status == 409 and "was not deployed with SDK v1" in message
    body = {**request(mms, "native", [model]), "overwrite": True}
    assert mms.refusal("POST", "services", body)[0] == 409
    assert "native" not in [each["name"] for each in mms.json("GET", "services")["value"]]


def test_a_property_that_others_wrote_makes_no_web_service(mms: Management) -> None:
    where = "/v1/workspaces/default/online-endpoints/marked"
    for text in ("{", "[1]", "7", '{"computeType": "other"}', '{"modelIds": 1}'):
        properties = {"azureml.v1.webService": text}
        mms.site.ok("olga", "PUT", where, {"name": "marked", "properties": properties})
        assert "marked" not in [each["name"] for each in mms.json("GET", "services")["value"]]
        assert mms.refusal("GET", "services/marked")[0] == 404


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"sslEnabled": True}, "a certificate of its own"),
        ({"vnetConfiguration": {"vnetName": "v"}}, "a virtual network"),
        ({"encryptionProperties": {"keyName": "k"}}, "a key of a key vault"),
        ({"cname": "birds.example.org"}, "a host name of its own"),
        ({"namespace": "birds"}, "a namespace of Kubernetes"),
        ({"imageId": "birds:1"}, "an image"),
        ({"authEnabled": False}, "without a key"),
        ({"computeType": "AKSENDPOINT"}, "type `AKSENDPOINT` is not served"),
        ({"computeType": "ACI", "aadAuthEnabled": True}, "keys, not tokens"),
        ({"computeType": "AKS", "aadAuthEnabled": True, "authEnabled": True}, "not both"),
        ({"keys": {"primaryKey": "mine-mine-mine-mine"}}, "a key that its client chose"),
        ({"dataCollection": {"eventHubEnabled": True}}, "event hub"),
        ({"numReplicas": "two"}, "`numReplicas` must be a number"),
        ({"numReplicas": 1.5}, "`numReplicas` must be a whole number"),
        ({"autoScaler": {"other": 1}}, "unknown key `other`"),
        ({"nonsense": 1}, "`nonsense` is not a setting"),
        ({"kvTags": {"a": ["b"]}}, "must be text or a number"),
        ({"properties": {"azureml.v1.webService": "{}"}}, "is torchyard's"),
    ],
)
def test_what_only_a_cloud_has_is_refused_by_name(
    mms: Management, model: str, setting: dict[str, Any], expected: str
) -> None:
    body = {**request(mms, "refused", [model]), **setting}
    answer = mms.json("POST", "services/validate", {"type": "Create", "createRequest": body})
    assert expected in answer["error"]["message"]
    assert expected in mms.refusal("POST", "services", body)[1]
    assert mms.refusal("GET", "services/refused")[0] == 404


def test_kubernetes_settings_become_those_of_the_deployment(mms: Management, model: str) -> None:
    settings: dict[str, Any] = {
        "computeType": "AKS",
        "numReplicas": 2,
        "maxConcurrentRequestsPerContainer": 4,
        "maxQueueWaitMs": 800,
        "scoringTimeoutMs": 9000,
        "livenessProbeRequirements": {"initialDelaySeconds": 20, "failureThreshold": 5},
        "autoScaler": {"autoscaleEnabled": True, "minReplicas": 2, "maxReplicas": 3},
        "dataCollection": {"storageEnabled": True, "eventHubEnabled": False},
        "aadAuthEnabled": True,
        "authEnabled": False,
    }
    assert mms.deployed("aks-birds", model, **settings).status_code == 202
    document = file_of(mms, "aks-birds")
    assert document["instance_count"] == 2
    assert document["request_settings"] == {
        "request_timeout_ms": 9000,
        "max_concurrent_requests_per_instance": 4,
        "max_queue_wait_ms": 800,
    }
    assert document["liveness_probe"] == {"initial_delay": 20, "failure_threshold": 5}
    assert document["scale_settings"]["max_instances"] == 3
    assert set(document["data_collector"]["collections"]) == {"model_inputs", "model_outputs"}
    service = mms.json("GET", "services/aks-birds")
    assert (service["aadAuthEnabled"], service["authEnabled"]) == (True, False)
    assert service["autoScaler"]["targetUtilization"] == 70
    token = mms.json("POST", "services/aks-birds/token")
    assert token["refreshAfter"] < token["expiryOn"] and token["accessToken"].count(".") == 2
    assert mms.refusal("POST", "services/aks-birds/listkeys")[0] == 409


def test_tags_change_without_a_new_revision(mms: Management, model: str) -> None:
    mms.deployed("tagged", model)
    patch = [
        {"op": "add", "path": "/properties/rate", "value": "0.1"},
        {"op": "replace", "path": "/description", "value": "new"},
    ]
    assert mms.json("PATCH", "services/tagged", patch)["operationId"] == "create-tagged-1"
    service = mms.json("GET", "services/tagged")
    assert (service["properties"], service["description"]) == ({"rate": "0.1"}, "new")
    assert service["kvTags"] == {"data": "birds"} and [m["id"] for m in service["models"]] == [
        model
    ]


def test_an_update_takes_models_and_code_and_keeps_the_rest(mms: Management, model: str) -> None:
    mms.deployed("updated", model)
    before = file_of(mms, "updated")
    files = {"src/score.py": SCRIPT + b"# two\n"}
    newer = mms.model("birds", "newer.bin")
    image = request(mms, "updated", [newer], files)["environmentImageRequest"]
    patch = [{"op": "replace", "path": "/environmentImageRequest", "value": image}]
    check = {"type": "Update", "serviceName": "updated", "updateRequest": patch}
    assert mms.json("POST", "services/validate", check) == {}
    assert mms.json("PATCH", "services/updated", patch)["operationId"] == "create-updated-2"
    after = file_of(mms, "updated")
    assert after["code_configuration"] != before["code_configuration"]
    assert after["request_settings"] == before["request_settings"]
    service = mms.json("GET", "services/updated")
    assert [item["id"] for item in service["models"]] == [newer]
    assert service["kvTags"] == {"data": "birds"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"op": "replace", "path": "/sslEnabled", "value": True}, "a certificate of its own"),
        ({"op": "replace", "path": "/authEnabled", "value": False}, "without a key"),
        ({"op": "replace", "path": "/computeType", "value": "AKS"}, "can't be changed"),
        ({"op": "replace", "path": "/name", "value": "x"}, "can't be changed"),
        ({"op": "move", "path": "/kvTags"}, "has `add`, `replace` and `remove`"),
        ({"op": "replace"}, "is not a JSON patch"),
        ("nonsense", "is not a JSON patch"),
    ],
)
def test_changes_that_a_service_can_not_have(
    mms: Management, model: str, change: Any, expected: str
) -> None:
    if mms.of("GET", "services/changing").status_code == 404:
        mms.deployed("changing", model)
    assert expected in mms.refusal("PATCH", "services/changing", [change])[1]
    check = {"type": "Update", "serviceName": "changing", "updateRequest": [change]}
    assert expected in mms.json("POST", "services/validate", check)["error"]["message"]


def test_a_deleted_service_is_gone_when_its_instances_are(mms: Management, model: str) -> None:
    creation = mms.deployed("passing", model).headers["Operation-Location"].rpartition("/")[2]
    answer = mms.of("DELETE", "services/passing")
    assert answer.status_code == 202
    id = answer.headers["Operation-Location"].rpartition("/")[2]
    assert mms.json("GET", f"operations/{id}")["state"] == "Running"
    assert mms.json("GET", "services/passing")["state"] == "Deleting"
    assert mms.json("GET", f"operations/{creation}")["state"] == "Cancelled"
    services = mms.site.parts.services
    with services.db.write() as connection:
        endpoint = store.endpoint_named(connection, "default", "passing")
        assert endpoint is not None
        store.remove_endpoint(connection, endpoint)
    assert mms.json("GET", f"operations/{id}")["state"] == "Succeeded"
    assert mms.of("DELETE", "services/passing").status_code == 204


def test_a_key_is_replaced_by_a_new_one(mms: Management, model: str) -> None:
    mms.deployed("keyed", model)
    before = mms.json("POST", "services/keyed/listkeys")
    answer = mms.of("POST", "services/keyed/regenerateKeys", {"keyType": "Secondary"})
    id = answer.headers["Operation-Location"].rpartition("/")[2]
    assert mms.json("GET", f"operations/{id}")["state"] == "Succeeded"
    after = mms.json("POST", "services/keyed/listkeys")
    assert after["primaryKey"] == before["primaryKey"]
    assert after["secondaryKey"] != before["secondaryKey"]
    body = {"keyType": "Primary", "keyValue": "mine"}
    assert "its client chose" in mms.refusal("POST", "services/keyed/regenerateKeys", body)[1]


def test_services_are_listed_by_type_model_tag_and_property(mms: Management, model: str) -> None:
    mms.deployed("listed", model, kvTags={"team": "owls"}, properties={"rate": "1"})
    for query, is_listed in (
        ({"tags": "team=owls"}, True),
        ({"tags": "team=cats"}, False),
        ({"properties": "rate"}, True),
        ({"computeType": "ACI"}, True),
        ({"computeType": "AKS"}, False),
        ({"modelName": "birds"}, True),
        ({"modelId": model}, True),
        ({"modelId": "birds:99"}, False),
        ({"imageId": "x"}, False),
    ):
        there = mms.json("GET", "services", **query)["value"]
        assert ("listed" in [each["name"] for each in there]) is is_listed, query


def test_several_models_lie_in_one_folder_by_name_and_version(mms: Management, model: str) -> None:
    other = mms.model("cats", "cats.bin")
    assert mms.deployed("several", model, other).status_code == 202
    path = file_of(mms, "several")["model"]["path"]
    snapshot = mms.site.parts.services.blobs.of("default").snapshot(path.removeprefix("snapshot:"))
    assert sorted(file.path for file in snapshot.files) == ["birds/1/w.bin", "cats/1/cats.bin"]
    there = mms.json("GET", "services/several")["models"]
    assert [item["id"] for item in there] == [model, other]


def test_scikit_learn_and_onnx_models_need_no_code(mms: Management) -> None:
    sklearn = mms.model("diabetes", "model.pkl", framework="ScikitLearn", frameworkVersion="1.5.2")
    bare = {"environmentImageRequest": {"modelIds": [sklearn]}}
    assert mms.deployed("no-code", **bare).status_code == 202
    document = file_of(mms, "no-code")
    assert document["code_configuration"]["scoring_script"] == "score.py"
    onnx = mms.model("net", "net.onnx", framework="Onnx")
    assert mms.deployed("onnx", **{"environmentImageRequest": {"modelIds": [onnx]}}).is_success
    assert "code_configuration" not in file_of(mms, "onnx")
    flow = mms.model("flow", "flow.pb", framework="TensorFlow")
    body = request(mms, "flow", [], environmentImageRequest={"modelIds": [flow]})
    assert "model_framework=TensorFlow" in mms.refusal("POST", "services", body)[1]


@pytest.mark.parametrize(
    ("change", "status", "expected"),
    [
        ({"modelIds": ["nothing:1"]}, 404, "nothing"),
        ({"modelIds": "birds:1"}, 400, "must be a list"),
        ({"assets": [{"id": "a", "url": "https://example.org/a.py"}]}, 501, "is not served"),
        ({"assets": [{"id": "a", "url": "aml://artifact/LocalUpload/no/a"}]}, 404, "a"),
        ({"assets": [{"id": "a", "url": "aml://artifact/LocalUpload/x/../../a"}]}, 400, "`..`"),
        ({"assets": "x"}, 400, "list of JSON objects"),
    ],
)
def test_code_that_is_not_there(
    mms: Management, model: str, change: dict[str, Any], status: int, expected: str
) -> None:
    body = request(mms, "absent", [model])
    body["environmentImageRequest"].update(change)
    result, message = mms.refusal("POST", "services", body)
    assert (result, expected in message) == (status, True), message
    assert mms.refusal("GET", "services/absent")[0] == 404


def test_without_an_environment_the_program_names_the_script(mms: Management, model: str) -> None:
    body = request(mms, "bare", [model])
    body["environmentImageRequest"].pop("environment")
    status, message = mms.refusal("POST", "services", body)
    assert status == 400 and "has no `environment`" in message
    assert mms.refusal("GET", "services/bare")[0] == 404


def test_a_script_that_is_not_in_the_code_leaves_no_service(mms: Management, model: str) -> None:
    body = request(mms, "lost", [model], {"src/other.py": b""})
    status, message = mms.refusal("POST", "services", body)
    assert status == 400 and "the code has no file `src/score.py`" in message
    assert mms.refusal("GET", "services/lost")[0] == 404


@pytest.mark.parametrize("path", ["services/x/deploymentStatus", "packages", "profiles", "images"])
def test_packages_and_profiles_are_refused_by_name(mms: Management, path: str) -> None:
    status, message = mms.refusal("POST", path, {})
    assert status == 501 and ("no images, packages" in message or "is not served" in message)


def test_others_read_services_and_can_not_change_them(mms: Management, model: str) -> None:
    mms.deployed("shared", model)
    reader = Management(mms.site, "rita")
    assert reader.json("GET", "services/shared")["name"] == "shared"
    assert reader.refusal("POST", "services/shared/listkeys")[0] == 403
    scientist = Management(mms.site, "dan")
    assert scientist.refusal("DELETE", "services/shared")[0] == 403
    patch = [{"op": "replace", "path": "/kvTags", "value": {}}]
    assert scientist.refusal("PATCH", "services/shared", patch)[0] == 403


@pytest.mark.parametrize("id", ["create-", "create-no-such-1", "x", "delete-a-1"])
def test_operations_of_services_that_are_gone(mms: Management, id: str) -> None:
    answer = mms.of("GET", f"operations/{id}")
    if answer.status_code == 200:
        assert answer.json()["state"] in ("Cancelled", "Succeeded")
    else:
        assert answer.status_code == 404
