"""Azure's paths, subscriptions and resource groups, and workspaces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import PROVIDER, WORKSPACE, Azure
from torchyard.azureml.common.paths import AzurePath, translate
from torchyard.azureml.entry_routes import CLOUD
from torchyard.workspaces.permissions import OWN_JOBS_ONLY, Permission
from workspaces.served import HERE, JOB, Served, served

ONE_DATABASE = True

GROUP = "/subscriptions/local/resourceGroups/torchyard"
UNKNOWN_PATHS = (
    "/azureml/{workspace}/{path:path}",
    "/azureml/{workspace}/credential/{path:path}",
    "/azureml/{workspace}/modelmanagement/services/{name}/{path:path}",
    "/azureml-above/subscriptions/{path:path}",
)
QUERIES = {
    "/arm/checkcomputenameavailability",
    "/arm/computes/{name}/listnodes",
    "/arm/datastores/{name}/listsecrets",
    "/arm/onlineendpoints/{name}/deployments/{deployment}/getlogs",
    "/content/snapshots/{snapshot_id}/zip",
    "/data/dataversion/batchGetResolvedUris",
    # These say what `build_local` needs.
    "/environment/environments/{name}/recipe",
    "/environment/environments/{name}/versions/{version}/recipe",
    "/history/batchrundata",
    "/history/experimentids/{experiment}/runs:query",
    "/history/experiments/{experiment}/metrics:query",
    "/history/experiments/{experiment}/runs:query",
    "/history/experiments:query",
    "/history/rundata",
    "/history/runs:query",
    "/metric/runs/{name}/full",
    "/metric/runs/{name}/list",
    "/modelregistry/models/batchGetResolvedUris",
}
HOME = f"/subscriptions/S/resourceGroups/G/providers/{PROVIDER}/workspaces/Team"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as created:
        yield created


@pytest.fixture
def azure(site: Served) -> Azure:
    return Azure(site)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (HOME, "/azureml/Team/arm"),
        (f"{HOME}/", "/azureml/Team/arm"),
        (f"{HOME}/jobs/My_Job", "/azureml/Team/arm/jobs/My_Job"),
        (f"{HOME}/JOBS/My_Job/Cancel", "/azureml/Team/arm/jobs/My_Job/cancel"),
        (f"{HOME}/batchEndpoints/E/Jobs/D", "/azureml/Team/arm/batchendpoints/E/jobs/D"),
        (f"/history/v1.0{HOME}/runs/R/details", "/azureml/Team/history/runs/R/details"),
        (f"/History/V1.0{HOME}/runs/R", "/azureml/Team/history/runs/R"),
        (f"/artifact/v2.0{HOME}/artifacts/A/B c", "/azureml/Team/artifact/artifacts/A/B c"),
        (f"/rp/workspaces{HOME}/computes", "/azureml/Team/rp/computes"),
        (f"/mlflow/v1.0{HOME}/api/2.0/mlflow/runs/get", "/mlflow/Team/api/2.0/mlflow/runs/get"),
        ("/subscriptions", "/azureml-above/subscriptions"),
        ("/Subscriptions/S/resourceGroups/G", "/azureml-above/subscriptions/S/resourcegroups/G"),
        (
            f"/subscriptions/S/providers/{PROVIDER}/locations/L/vmSizes",
            "/azureml-above/subscriptions/S/providers/microsoft.machinelearningservices"
            "/locations/L/vmsizes",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("change", [str, str.upper, str.lower])
def test_a_path_in_any_case(path: str, expected: str, change: Any) -> None:
    changed = path
    for text in ("subscriptions", "resourceGroups", "providers", PROVIDER, "workspaces"):
        changed = changed.replace(f"/{text}", f"/{change(text)}")
    result = translate(changed)
    assert result is not None and result.path == expected


def test_names_keep_their_case() -> None:
    result = translate(f"{HOME}/jobs/J")
    assert result == AzurePath("/azureml/Team/arm/jobs/J", "S", "G", "Team")
    assert result.with_workspace("team").path == "/azureml/team/arm/jobs/J"
    named_as_the_prefix = translate(HOME.replace("/Team", "/AzureML"))
    assert named_as_the_prefix is not None
    assert named_as_the_prefix.with_workspace("azureml").path == "/azureml/azureml/arm"


@pytest.mark.parametrize("path", ["/", "/v1/workspaces/default/jobs", "/subscription", "/health"])
def test_other_paths_are_not_translated(path: str) -> None:
    assert translate(path) is None


def test_only_queries_change_nothing_by_another_method_than_get(site: Served) -> None:
    """Every other route that is not a GET needs more than the permission to read."""
    from workspaces.test_permissions import every_permission

    permissions = {
        route: permission
        for route, permission in every_permission(site).items()
        if route[1].startswith("/azureml") and route[1] not in UNKNOWN_PATHS
    }
    assert len(permissions) > 150
    reading = {
        path.removeprefix("/azureml/{workspace}")
        for (method, path), permission in permissions.items()
        if method not in ("GET", "HEAD") and permission is Permission.READ
    }
    assert reading == QUERIES


def test_a_workspaces_name_may_be_in_any_case(azure: Azure, site: Served) -> None:
    response = azure.ask("GET", WORKSPACE)
    changed = WORKSPACE.replace("/local/", "/LOCAL/").replace("/default", "/Default")
    assert azure.ask("GET", changed) == response
    assert response["id"] == WORKSPACE and response["name"] == "default"
    assert len(response["properties"]["workspaceId"]) == 36
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    result = azure.ask("GET", f"{changed}/JOBS/one")
    assert result["id"] == f"{WORKSPACE}/jobs/one"


def test_errors_of_unknown_paths_say_what_is_unknown(azure: Azure) -> None:
    error = azure.refused(404, "GET", WORKSPACE.replace("/local/", "/other/"))
    assert error["code"] == "ResourceNotFound" and "yard workspace config" in error["message"]
    error = azure.refused(404, "GET", WORKSPACE.replace("/default", "/defualt"))
    assert "did you mean `default`?" in error["message"]
    error = azure.refused(404, "POST", f"{WORKSPACE}/listKeys")
    assert "does not answer POST" in error["message"]
    error = azure.refused(501, "GET", f"{WORKSPACE}/serverlessEndpoints")
    assert error["code"] == "NotImplemented"
    error = azure.refused(404, "GET", "/subscriptions/local/providers/Microsoft.Compute/skus")
    assert "does not answer GET `/subscriptions/local" in error["message"]


def test_subscriptions_and_groups(azure: Azure, site: Served) -> None:
    assert [item["subscriptionId"] for item in azure.ask("GET", "/subscriptions")["value"]] == [
        "local"
    ]
    assert azure.ask("GET", "/subscriptions/LOCAL")["subscriptionId"] == "local"
    assert azure.ask("GET", GROUP.upper().replace("/SUBSCRIPTIONS", "/subscriptions"))["name"] == (
        "torchyard"
    )
    assert azure.refused(404, "GET", "/subscriptions/none")["code"] == "ResourceNotFound"
    azure.refused(404, "GET", "/subscriptions/local/resourceGroups/none")
    for prefix in (GROUP, "/subscriptions/local"):
        assert azure.names(f"{prefix}/providers/{PROVIDER}/workspaces") == ["default"]
    site.add("stranger", None)
    azure.user = "stranger"
    assert azure.ask("GET", "/subscriptions") == {"value": []}
    assert azure.names(f"{GROUP}/providers/{PROVIDER}/workspaces") == []


def deployment(name: str, **parameters: str) -> tuple[str, dict[str, Any]]:
    """The path and the body that the SDK's `begin_create` sends."""
    original = {"workspaceName": name, "location": "eastus", "kind": "default", **parameters}
    values = {key: {"value": value} for key, value in original.items()}
    path = f"{GROUP}/providers/Microsoft.Resources/deployments/{name}-123"
    return path, {"properties": {"template": {}, "parameters": values, "mode": "incremental"}}


def test_sdk_v1_creates_a_workspace_in_a_new_resource_group(azure: Azure) -> None:
    azure.user = "home"
    types = azure.ask("GET", f"/subscriptions/local/providers/{PROVIDER}")["resourceTypes"]
    assert "East US 2" in next(t for t in types if t["resourceType"] == "workspaces")["locations"]
    group = "/subscriptions/local/resourceGroups/new"
    assert azure.ask("PUT", group, {"location": "eastus2"})["name"] == "new"
    azure.refused(404, "GET", group)
    deployments = "/subscriptions/local/providers/Microsoft.Resources/deployments"
    assert azure.ask("GET", deployments) == {"value": []}
    resources = [
        {"type": "Microsoft.Storage/storageAccounts", "name": "kept-elsewhere"},
        {"type": f"{PROVIDER}/workspaces", "name": "Vision", "location": "eastus2"},
    ]
    body = {"properties": {"template": {"resources": resources}, "parameters": {}}}
    azure.ask("PUT", f"{group}/providers/Microsoft.Resources/deployments/Vision-1", body)
    workspace = azure.ask("GET", f"{group}/providers/{PROVIDER}/workspaces/Vision")
    assert (workspace["name"], workspace["location"]) == ("Vision", "eastus2")
    assert azure.ask("GET", group)["location"] == "eastus2"
    resources.pop()
    error = azure.refused(400, "PUT", f"{group}/providers/Microsoft.Resources/deployments/x", body)
    assert "template" in error["message"]


def test_the_sdks_template_creates_a_workspace(azure: Azure) -> None:
    azure.user = "home"
    path, body = deployment("Vision", description="ours")
    created = azure.ask("PUT", path, body)
    assert created["properties"]["provisioningState"] == "Succeeded"
    assert azure.ask("GET", path) == created
    assert azure.ask("GET", f"{GROUP}/deployments/Vision-123/operations") == {"value": []}
    # The response was lost, and the client sends the request again.
    assert azure.ask("PUT", path, body) == created
    existing = f"{GROUP}/providers/{PROVIDER}/workspaces/vision"
    response = azure.ask("GET", existing)
    assert (response["name"], response["location"]) == ("Vision", "eastus")
    assert response["properties"]["description"] == "ours"
    changed = azure.ask("PATCH", existing, {"properties": {"description": "new"}, "tags": {}})
    assert changed["properties"]["description"] == "new"
    assert azure.ask("GET", f"{existing}/computes")["value"][0]["name"] == "local"
    azure.site.ok("home", "POST", "/v1/workspaces/Vision/jobs", {**JOB, "name": "one"})
    assert "not empty" in azure.refused(409, "DELETE", existing)["message"]
    azure.refused(409, "DELETE", WORKSPACE)


def test_a_put_creates_a_workspace(azure: Azure) -> None:
    azure.user = "home"
    existing = (
        f"/subscriptions/LOCAL/resourceGroups/TorchYard/providers/{PROVIDER}/workspaces/vision"
    )
    body = {"location": "eastus", "properties": {"description": "ours"}}
    assert azure.answer("PUT", existing, body).status_code == 201
    assert azure.answer("PUT", existing, {"properties": {}}).status_code == 200
    response = azure.ask("GET", existing)
    assert response["id"] == f"{GROUP}/providers/{PROVIDER}/workspaces/vision"
    assert response["properties"]["description"] == "ours"
    elsewhere = existing.replace("TorchYard", "another")
    assert "exists already" in azure.refused(409, "PUT", elsewhere, body)["message"]
    assert azure.answer("DELETE", existing).status_code == 200
    azure.refused(404, "GET", existing)


def test_other_templates_and_kinds_are_refused(azure: Azure) -> None:
    azure.user = "home"
    wrong: Any
    path, body = deployment("Vision", kind="hub")
    assert "kind `hub`" in azure.refused(501, "PUT", path, body)["message"]
    no_name = {"properties": {"parameters": {"workspaceName": {"value": 1}}}}
    bodies: tuple[Any, ...] = (None, [], {}, no_name)
    for wrong in bodies:
        assert azure.answer("PUT", path, wrong).status_code == 400
    path, body = deployment("a b")
    assert "not a valid workspace name" in azure.refused(400, "PUT", path, body)["message"]
    existing = f"{GROUP}/providers/{PROVIDER}/workspaces/new"
    bodies = (None, [], "x", {"kind": "Project"})
    for wrong in bodies:
        assert azure.answer("PUT", existing, wrong).status_code in (400, 501)
    path, body = deployment("vision")
    for user in ("olga", "carl", "dan"):  # Owners of one workspace are not the server's owners.
        azure.user = user
        assert azure.refused(403, "PUT", path, body)["code"] == "AuthorizationFailed"
        azure.refused(403, "PUT", existing, {"location": "x"})
        azure.refused(403, "DELETE", WORKSPACE)
    azure.user = "rita"
    azure.refused(403, "PATCH", WORKSPACE, {"properties": {"description": "mine"}})
    assert azure.names(f"{GROUP}/providers/{PROVIDER}/workspaces") == ["default"]


def test_a_request_refused_before_its_route_has_azures_envelope(azure: Azure) -> None:
    client: Any = azure.site.client
    token = {"Authorization": f"Bearer {azure.site.tokens['dan']}"}
    large = b"x" * ((4 << 20) + 1)
    answer = client.put(f"{WORKSPACE}/jobs/one", content=large, headers=token)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "RequestEntityTooLarge"
    answer = client.put(f"{WORKSPACE}/jobs/one", content=large)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "InvalidAuthenticationToken"


def test_metadata_and_discovery_need_no_token(site: Served) -> None:
    ask: Any = site.client
    for query in ("?api-version=2022-09-01", "", "?api-version=9"):
        cloud = ask.get(f"/metadata/endpoints{query}").json()[0]
        assert cloud["name"] == CLOUD
        assert cloud["resourceManager"] == "http://testserver/"
        assert cloud["suffixes"]["storage"] == "@testserver"
        domain = cloud["portal"].partition(".")[2].rstrip("/")
        assert domain.count(".") == 1
    services = ask.get("/discovery").json()
    assert set(services.values()) == {"http://testserver"} and "api" in services


def test_a_server_without_tls_says_so(site: Served) -> None:
    answer = site.ask("dan", "POST", "/v1/client-env")
    assert answer.status_code == 409 and "which Azure's clients require" in answer.text


def test_a_data_scientist_reaches_no_job_of_another(azure: Azure, site: Served) -> None:
    """By any route of Azure's that changes jobs or logs to them."""
    from workspaces.test_permissions import every_permission

    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "carls"})
    before = site.rows()
    request = 0
    for (method, path), permission in every_permission(site).items():
        if not path.startswith("/azureml/") or path in UNKNOWN_PATHS:
            continue
        for part, text in (("name", "carls"), ("run", "carls"), ("container", "dcid.carls")):
            path = path.replace(f"{{{part}}}", text)
        if "carls" not in path:
            continue
        path = path.replace("{origin}", "ExperimentRun").replace("{workspace}", "default")
        path = re.sub(r"\{\w+(:path)?\}", "a", path)
        if permission in OWN_JOBS_ONLY:
            answer = site.ask("dan", method, path, {"paths": [{"path": "a"}]}, params={"path": "a"})
            assert answer.status_code == 403, (method, path, answer.text)
            assert "belongs to `carl`" in answer.text, (method, path, answer.text)
            request += 1
    assert request > 20
    assert site.rows() == before
