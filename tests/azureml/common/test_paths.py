"""Azure's paths, what lies above workspaces, and workspaces themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from azureml.azure_server import PROVIDER, WORKSPACE, Azure
from torchyard.azureml.common.paths import Asked, ours
from torchyard.azureml.entry_routes import CLOUD
from torchyard.workspaces import path_permissions
from torchyard.workspaces.permissions import OWN_JOBS_ONLY
from workspaces.served import HERE, JOB, Served, served

ONE_DATABASE = True

GROUP = "/subscriptions/local/resourceGroups/torchyard"
THE_REST = (
    "/azureml/{workspace}/{path:path}",
    "/azureml/{workspace}/credential/{path:path}",
    "/azureml-above/subscriptions/{path:path}",
)
HOME = f"/subscriptions/S/resourceGroups/G/providers/{PROVIDER}/workspaces/Team"


@pytest.fixture
def site(tmp_path: Path, database_url: str) -> Iterator[Served]:
    with served(tmp_path, database_url) as made:
        yield made


@pytest.fixture
def azure(site: Served) -> Azure:
    return Azure(site)


@pytest.mark.parametrize(
    ("path", "wanted"),
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
def test_a_path_in_any_case(path: str, wanted: str, change: Any) -> None:
    changed = path
    for word in ("subscriptions", "resourceGroups", "providers", PROVIDER, "workspaces"):
        changed = changed.replace(f"/{word}", f"/{change(word)}")
    found = ours(changed)
    assert found is not None and found.path == wanted


def test_names_keep_their_case() -> None:
    found = ours(f"{HOME}/jobs/J")
    assert found == Asked("/azureml/Team/arm/jobs/J", "S", "G", "Team")
    assert found.spelt("team").path == "/azureml/team/arm/jobs/J"
    named_as_the_prefix = ours(HOME.replace("/Team", "/AzureML"))
    assert named_as_the_prefix is not None
    assert named_as_the_prefix.spelt("azureml").path == "/azureml/azureml/arm"


@pytest.mark.parametrize("path", ["/", "/v1/workspaces/default/jobs", "/subscription", "/health"])
def test_other_paths_stay(path: str) -> None:
    assert ours(path) is None


def test_every_route_has_a_line_of_its_own(site: Served) -> None:
    """The lines for all the rest are for what answers that there is nothing."""
    from workspaces.test_permissions import every_route

    lines = {tuple(line.split()[1:]) for line in path_permissions.TABLE.splitlines() if line}
    of_azure = {
        (method, path)
        for method, path in every_route(site)
        if path.startswith("/azureml") and path not in THE_REST
    }
    assert len(of_azure) > 100
    assert of_azure - lines == set(), "write them into workspaces/azure_rights.py"


def test_a_workspace_in_any_case(azure: Azure, site: Served) -> None:
    told = azure.ask("GET", WORKSPACE)
    changed = WORKSPACE.replace("/local/", "/LOCAL/").replace("/default", "/Default")
    assert azure.ask("GET", changed) == told
    assert told["id"] == WORKSPACE and told["name"] == "default"
    assert len(told["properties"]["workspaceId"]) == 36
    site.ok("dan", "POST", f"{HERE}/jobs", {**JOB, "name": "one"})
    found = azure.ask("GET", f"{changed}/JOBS/one")
    assert found["id"] == f"{WORKSPACE}/jobs/one"


def test_wrong_places_are_told_apart(azure: Azure) -> None:
    error = azure.refused(404, "GET", WORKSPACE.replace("/local/", "/other/"))
    assert error["code"] == "ResourceNotFound" and "yard workspace config" in error["message"]
    error = azure.refused(404, "GET", WORKSPACE.replace("/default", "/defualt"))
    assert "did you mean `default`?" in error["message"]
    error = azure.refused(404, "POST", f"{WORKSPACE}/listKeys")
    assert "does not answer POST" in error["message"]
    error = azure.refused(501, "GET", f"{WORKSPACE}/onlineEndpoints")
    assert error["code"] == "NotImplemented"
    error = azure.refused(404, "GET", "/subscriptions/local/providers/Microsoft.Compute/skus")
    assert "does not answer GET `/subscriptions/local" in error["message"]


def test_subscriptions_and_groups(azure: Azure, site: Served) -> None:
    assert [one["subscriptionId"] for one in azure.ask("GET", "/subscriptions")["value"]] == [
        "local"
    ]
    assert azure.ask("GET", "/subscriptions/LOCAL")["subscriptionId"] == "local"
    assert azure.ask("GET", GROUP.upper().replace("/SUBSCRIPTIONS", "/subscriptions"))["name"] == (
        "torchyard"
    )
    assert azure.refused(404, "GET", "/subscriptions/none")["code"] == "ResourceNotFound"
    azure.refused(404, "GET", "/subscriptions/local/resourceGroups/none")
    for place in (GROUP, "/subscriptions/local"):
        assert azure.names(f"{place}/providers/{PROVIDER}/workspaces") == ["default"]
    site.add("stranger", None)
    azure.who = "stranger"
    assert azure.ask("GET", "/subscriptions") == {"value": []}
    assert azure.names(f"{GROUP}/providers/{PROVIDER}/workspaces") == []


def deployment(name: str, **parameters: str) -> tuple[str, dict[str, Any]]:
    """Path and body of what the SDK's `begin_create` sends."""
    given = {"workspaceName": name, "location": "eastus", "kind": "default", **parameters}
    values = {key: {"value": value} for key, value in given.items()}
    path = f"{GROUP}/providers/Microsoft.Resources/deployments/{name}-123"
    return path, {"properties": {"template": {}, "parameters": values, "mode": "incremental"}}


def test_a_workspace_is_made_as_the_sdk_makes_it(azure: Azure) -> None:
    azure.who = "home"
    path, body = deployment("Vision", description="ours")
    made = azure.ask("PUT", path, body)
    assert made["properties"]["provisioningState"] == "Succeeded"
    assert azure.ask("GET", path) == made
    assert azure.ask("GET", f"{GROUP}/deployments/Vision-123/operations") == {"value": []}
    # The answer was lost, and the client asks again.
    assert azure.ask("PUT", path, body) == made
    there = f"{GROUP}/providers/{PROVIDER}/workspaces/vision"
    told = azure.ask("GET", there)
    assert (told["name"], told["location"]) == ("Vision", "eastus")
    assert told["properties"]["description"] == "ours"
    changed = azure.ask("PATCH", there, {"properties": {"description": "new"}, "tags": {}})
    assert changed["properties"]["description"] == "new"
    assert azure.ask("GET", f"{there}/computes")["value"][0]["name"] == "local"
    azure.site.ok("home", "POST", "/v1/workspaces/Vision/jobs", {**JOB, "name": "one"})
    assert "not empty" in azure.refused(409, "DELETE", there)["message"]
    azure.refused(409, "DELETE", WORKSPACE)


def test_a_workspace_is_made_by_put(azure: Azure) -> None:
    azure.who = "home"
    there = f"/subscriptions/LOCAL/resourceGroups/TorchYard/providers/{PROVIDER}/workspaces/vision"
    body = {"location": "eastus", "properties": {"description": "ours"}}
    assert azure.answer("PUT", there, body).status_code == 201
    assert azure.answer("PUT", there, {"properties": {}}).status_code == 200
    told = azure.ask("GET", there)
    assert told["id"] == f"{GROUP}/providers/{PROVIDER}/workspaces/vision"
    assert told["properties"]["description"] == "ours"
    elsewhere = there.replace("TorchYard", "another")
    assert "is there already" in azure.refused(409, "PUT", elsewhere, body)["message"]
    assert azure.answer("DELETE", there).status_code == 200
    azure.refused(404, "GET", there)


def test_what_makes_no_workspace(azure: Azure) -> None:
    azure.who = "home"
    path, body = deployment("Vision", kind="hub")
    assert "kind `hub`" in azure.refused(501, "PUT", path, body)["message"]
    for wrong in (None, [], {}, {"properties": {"parameters": {"workspaceName": {"value": 1}}}}):
        assert azure.answer("PUT", path, wrong).status_code == 400
    path, body = deployment("a b")
    assert "no name for a workspace" in azure.refused(400, "PUT", path, body)["message"]
    there = f"{GROUP}/providers/{PROVIDER}/workspaces/new"
    for wrong in (None, [], "x", {"kind": "Project"}):
        assert azure.answer("PUT", there, wrong).status_code in (400, 501)
    path, body = deployment("vision")
    for who in ("olga", "carl", "dan"):  # owners of one workspace are not the server's
        azure.who = who
        assert azure.refused(403, "PUT", path, body)["code"] == "AuthorizationFailed"
        azure.refused(403, "PUT", there, {"location": "x"})
        azure.refused(403, "DELETE", WORKSPACE)
    azure.who = "rita"
    azure.refused(403, "PATCH", WORKSPACE, {"properties": {"description": "mine"}})
    assert azure.names(f"{GROUP}/providers/{PROVIDER}/workspaces") == ["default"]


def test_what_the_doors_refuse_has_azures_envelope(azure: Azure) -> None:
    site: Any = azure.site.client
    answer = site.put(f"{WORKSPACE}/jobs/one", content=b"x" * (65 << 10))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "RequestEntityTooLarge"
    answer = site.get(WORKSPACE)
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
    assert answer.status_code == 409 and "insist on it" in answer.text


def test_a_data_scientist_reaches_no_job_of_another(azure: Azure, site: Served) -> None:
    """By any route of Azure's that changes jobs or logs to them."""
    from workspaces.test_permissions import every_route

    site.ok("carl", "POST", f"{HERE}/jobs", {**JOB, "name": "carls"})
    before = site.rows()
    asked = 0
    for method, path in every_route(site):
        if not path.startswith("/azureml/") or path in THE_REST:
            continue
        for part, text in (("name", "carls"), ("run", "carls"), ("container", "dcid.carls")):
            path = path.replace(f"{{{part}}}", text)
        if "carls" not in path:
            continue
        path = path.replace("{origin}", "ExperimentRun").replace("{workspace}", "default")
        path = re.sub(r"\{\w+(:path)?\}", "a", path)
        if path_permissions.of(method, path) in OWN_JOBS_ONLY:
            answer = site.ask("dan", method, path, {"paths": [{"path": "a"}]}, params={"path": "a"})
            assert answer.status_code == 403, (method, path, answer.text)
            assert "belongs to `carl`" in answer.text, (method, path, answer.text)
            asked += 1
    assert asked > 20
    assert site.rows() == before
