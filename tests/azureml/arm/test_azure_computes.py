"""Compute in the requests of Azure ML's clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import Azure
from workspaces.served import HERE, JOB, served

# Older clients read these keys without checking that they exist.
DOCUMENTED = {
    "computeType", "computeLocation", "description", "resourceId", "createdOn", "modifiedOn",
    "provisioningState", "provisioningErrors", "isAttachedCompute", "disableLocalAuth",
    "properties",
}  # fmt: skip
INNER = {
    "vmSize", "vmPriority", "scaleSettings", "userAccountCredentials", "subnet", "errors",
    "remoteLoginPortPublicAccess", "allocationState", "allocationStateTransitionTime",
    "currentNodeCount", "targetNodeCount", "nodeStateCounts", "enableNodePublicIp", "osType",
}  # fmt: skip


@pytest.fixture
def azure(tmp_path: Path, database_url: str) -> Iterator[Azure]:
    with served(tmp_path, database_url) as site:
        yield Azure(site, "carl")


def cluster(size: str = "STANDARD_DS3_v2", idle: str = "PT2M", **overrides: Any) -> dict[str, Any]:
    """As azure-ai-ml writes it, with the keys that it always sends."""
    inner = {
        "osType": "Linux",
        "vmSize": size,
        "vmPriority": "LowPriority",
        "scaleSettings": {
            "minNodeCount": 0, "maxNodeCount": 2, "nodeIdleTimeBeforeScaleDown": idle,
        },
        "remoteLoginPortPublicAccess": "NotSpecified",
        "enableNodePublicIp": True,
        **overrides,
    }  # fmt: skip
    return {"computeType": "AmlCompute", "disableLocalAuth": True, "properties": inner}


def test_a_name_is_available_until_a_compute_has_it(azure: Azure) -> None:
    body = {"Name": "GPU-cluster", "Type": "Microsoft.BatchAI/DataScienceInstance"}
    assert azure.ask("POST", "checkComputeNameAvailability", body) == {"nameAvailable": True}
    azure.put("computes/gpu-cluster", cluster())
    answer = azure.ask("POST", "checkComputeNameAvailability", body)
    assert (answer["nameAvailable"], answer["reason"]) == (False, "AlreadyExists")
    assert "`GPU-cluster` already exists in workspace `default`" in answer["message"]


def test_a_cluster_is_created_changed_read_and_deleted(azure: Azure) -> None:
    body = {"location": "westus", "tags": {"a": "1"}, "properties": cluster()}
    first = azure.answer("PUT", "computes/gpu-cluster", body)
    assert first.status_code == 201
    # The clients of 2023 misread the response unless they can ask for the operation's state.
    done = first.headers["azure-asyncoperation"].removeprefix("http://testserver")
    assert azure.ask("GET", done)["status"] == "Succeeded"
    created = first.json()
    assert (created["name"], created["location"], created["tags"]) == (
        "gpu-cluster",
        "local",
        {"a": "1"},
    )
    document = created["properties"]
    assert set(document) >= DOCUMENTED and set(document["properties"]) >= INNER
    assert document["provisioningState"] == "Succeeded"
    assert document["properties"]["scaleSettings"]["nodeIdleTimeBeforeScaleDown"] == "PT120S"
    native = azure.site.ok("carl", "GET", f"{HERE}/computes/gpu-cluster")
    assert (native["tier"], native["max_instances"]) == ("low_priority", 2)
    assert (native["idle_time_before_scale_down"], native["size"]) == (120, "STANDARD_DS3_v2")
    again = azure.answer("PUT", "computes/GPU-Cluster", {"properties": cluster(idle="PT1H0.5M")})
    assert (again.status_code, again.json()["name"]) == (200, "gpu-cluster")
    scale = again.json()["properties"]["properties"]["scaleSettings"]
    assert scale["nodeIdleTimeBeforeScaleDown"] == "PT3630S"
    wider = {"properties": {"properties": {"scaleSettings": {"maxNodeCount": 7}}}}
    patched = azure.ask("PATCH", "computes/gpu-cluster", wider)["properties"]["properties"]
    assert patched["scaleSettings"] == {**scale, "maxNodeCount": 7}
    assert azure.names("computes") == ["gpu-cluster", "local"]
    assert azure.ask("POST", "computes/gpu-cluster/listNodes")["nodes"] == []
    azure.ask("DELETE", "computes/gpu-cluster", underlyingResourceAction="Delete")
    assert azure.names("computes") == ["local"]


def test_this_machine_has_no_size(azure: Azure) -> None:
    """Changes by a client do not give it a size."""
    got = azure.ask("GET", "computes/local")["properties"]
    assert got["properties"]["vmSize"] == "local"
    got["properties"]["scaleSettings"]["maxNodeCount"] = 9
    azure.put("computes/local", got)
    native = azure.site.ok("carl", "GET", f"{HERE}/computes/local")
    assert (native["size"], native["max_instances"]) == ("", 9)


def test_a_cluster_with_jobs_is_not_deleted(azure: Azure) -> None:
    azure.put("computes/busy", cluster())
    job = {**JOB, "compute": "azureml:busy", "name": "here"}
    azure.site.ok("dan", "POST", f"{HERE}/jobs", job)
    error = azure.refused(409, "DELETE", "computes/busy")
    assert "has 1 job that has not ended: `here`" in error["message"]
    error = azure.refused(400, "DELETE", "computes/busy", underlyingResourceAction="Detach")
    assert "can't be detached" in error["message"]


BAD: tuple[tuple[dict[str, Any], int, str], ...] = (
    (cluster(size="Standard_DS3_v22"), 400, "did you mean `Standard_DS3_v2`?"),
    (cluster(idle="5 minutes"), 400, "not a duration"),
    (cluster(scaleSettings={"minNodeCount": 3, "maxNodeCount": 2}), 400, "maximum"),
    (cluster(scaleSettings={"maxNodeCount": "many"}), 400, "`max_instances`"),
    (cluster(scaleSettings=[1]), 400, "`scaleSettings`"),
    (cluster(vmPriority="Cheap"), 400, "`tier` is `Cheap`"),
    (cluster(vmSize=5), 400, "`size` must be text"),
    (cluster(subnet={"id": "x"}), 400, "`network_settings` is not served"),
    (cluster(userAccountCredentials={"adminUserName": "a"}), 400, "`ssh_settings`"),
    (cluster(remoteLoginPortPublicAccess="Enabled"), 400, "`ssh_public_access_enabled: true`"),
    ({**cluster(), "properties": 3}, 400, "`properties`"),
    ({"computeType": "Kubernetes", "properties": {}}, 501, "Kubernetes"),
    ({"computeType": "VirtualMachine", "properties": {}}, 501, "attached virtual machines"),
    ({"computeType": "SynapseSpark", "properties": {}}, 501, "Spark pools"),
    ({"computeType": "Toaster", "properties": {}}, 501, "`Toaster`"),
)


def test_invalid_values_are_named(azure: Azure) -> None:
    for properties, status, message in BAD:
        error = azure.refused(status, "PUT", "computes/bad-one", {"properties": properties})
        assert message in error["message"], error["message"]
    body = {"properties": cluster()}
    for name in ("ab", "1st", "a" * 25, "under_score"):
        assert (
            "not a valid compute name"
            in azure.refused(400, "PUT", f"computes/{name}", body)["message"]
        )
    identity = {**body, "identity": {"type": "SystemAssigned"}}
    assert "`identity`" in azure.refused(400, "PUT", "computes/bad-one", identity)["message"]
    assert azure.names("computes") == ["local"]
    assert "list what exists" in azure.refused(404, "GET", "computes/nothing")["message"]
    azure.refused(404, "PATCH", "computes/nothing", body)
    error = azure.refused(501, "POST", "computes/local/start")
    assert "neither started nor stopped" in error["message"]
    assert "built in" in azure.refused(409, "DELETE", "computes/local")["message"]


def test_a_data_scientist_reads_computes_but_creates_none(azure: Azure) -> None:
    scientist = Azure(azure.site, "dan")
    assert scientist.names("computes") == ["local"]
    error = scientist.refused(403, "PUT", "computes/mine", {"properties": cluster()})
    assert error["code"] == "AuthorizationFailed"
    assert "create, change or delete compute" in error["message"]
    scientist.refused(403, "DELETE", "computes/local")
    # They may stop instances of their own, and clusters are never stopped.
    scientist.refused(501, "POST", "computes/local/stop")


def test_sizes_and_usage(azure: Azure) -> None:
    top = "/subscriptions/local/providers/Microsoft.MachineLearningServices/locations/westus"
    result = azure.ask("GET", f"{top}/vmSizes")["value"]
    by_name = {item["name"]: item for item in result}
    assert by_name["Standard_NC6s_v3"]["gpus"] == 1
    assert by_name["Standard_DS3_v2"]["vCPUs"] == 4
    usages = azure.ask("GET", f"{top}/usages")["value"]
    assert [item["name"]["value"] for item in usages] == ["cores", "gpus"]
    assert all(item["currentValue"] <= item["limit"] for item in usages)


def test_a_cluster_of_another_engine_is_described_by_tags(azure: Azure) -> None:
    tags = {"torchyard.engine": "slurm", "torchyard.partition": "gpu", "team": "vision"}
    body = {"location": "westus", "tags": tags, "properties": cluster(size="local")}
    assert azure.answer("PUT", "computes/lab", body).json()["tags"] == tags
    native = azure.site.ok("carl", "GET", f"{HERE}/computes/lab")
    assert native["torchyard"] == {"engine": "slurm", "partition": "gpu"}
    assert native["tags"] == {"team": "vision"}
    # Clients that send no tags, or change a single key, leave the engine as it is.
    azure.put("computes/lab", cluster(size="local"))
    wider = {"properties": {"properties": {"scaleSettings": {"maxNodeCount": 7}}}}
    patched = azure.ask("PATCH", "computes/lab", wider)
    assert patched["tags"]["torchyard.partition"] == "gpu"
    assert patched["properties"]["computeType"] == "AmlCompute"
