"""Two workspaces of one server never see each other's things: every route of the OpenAPI."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from torchyard import server
from torchyard.app import application
from torchyard.base.settings import Settings
from torchyard.executors.fake import FakeExecutor
from torchyard.jobs.actions import get as get_job
from torchyard.jobs.files import artifacts

SECRET = "s3cretive"
# What has no workspace: server, people, who one is, attempts, which have tokens of their own.
ELSEWHERE = (
    *("/health", "/livez", "/readyz", "/metrics"),
    *("/v1/whoami", "/v1/disk", "/v1/gc", "/v1/attempts/", "/v1/workspaces"),
    *("/v1/users", "/v1/audit", "/v1/server", "/v1/sign-in", "/v1/invitations/accept"),
)


@pytest.fixture
def parts(tmp_path: Path, database_url: str) -> Iterator[application.Parts]:
    made = application.build(
        tmp_path,
        "http://127.0.0.1:1",
        os.environ,
        executor=FakeExecutor(),
        database=database_url,
    )
    server.ensure_token(made, Settings(tmp_path).token_file)
    yield made
    made.services.db.close()


@pytest.fixture
def client(parts: application.Parts, tmp_path: Path) -> Iterator[TestClient]:
    token = Settings(tmp_path).token_file.read_text().strip()
    # Without `with`: no scheduler runs, and what is made stays as it is.
    made = TestClient(application.create_app(parts), raise_server_exceptions=False)
    made.headers["Authorization"] = f"Bearer {token}"
    yield made
    made.close()


def _ok(answer: Any) -> Any:
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def _fill(client: TestClient, parts: application.Parts, workspace: str) -> dict[str, list[str]]:
    """One of everything in a workspace, each carrying the secret; names for path parameters."""
    base = f"/v1/workspaces/{workspace}"
    content = SECRET.encode()
    sha256 = hashlib.sha256(content).hexdigest()
    _ok(client.put(f"{base}/blobs/{sha256}", content=content))
    manifest = {"files": [{"path": f"{SECRET}.txt", "sha256": sha256, "size": len(content)}]}
    snapshot = _ok(client.put(f"{base}/snapshots", json=manifest))["id"]
    job = {
        "name": f"job-{SECRET}", "command": f"echo {SECRET}", "outputs": {"out": None},
        "environment": {"pip_requirements": [f"{SECRET}-package"]}, "tags": {"t": SECRET},
        "experiment_name": f"experiment-{SECRET}", "compute": f"c-{SECRET}",
    }  # fmt: skip
    _ok(client.put(f"{base}/computes/c-{SECRET}", json={"description": SECRET}))
    name = _ok(client.post(f"{base}/jobs", json=job))["name"]
    made = get_job(parts.services, workspace, name)
    with artifacts.writing(parts.services.datastores, made, f"outputs/{SECRET}.txt") as writing:
        writing.write(content)
    with artifacts.writing_output(parts.services, made, "out", f"{SECRET}.txt") as writing:
        writing.write(content)
    parts.services.logs.append(workspace, name, 1, "user_logs/std_log.txt", 0, content)
    with parts.services.db.write() as connection:
        from torchyard.environments import store as environments
        from torchyard.environments.types import from_json
        from torchyard.jobs.records import store

        spec = from_json(store.environment_of(connection, made.id))
        environments.begin(connection, spec, parts.services.clock.now())
    model = {"name": f"model-{SECRET}", "path": f"snapshot:{snapshot}"}
    _ok(client.post(f"{base}/models", json=model))
    data = {"name": f"data-{SECRET}", "path": f"snapshot:{snapshot}", "type": "uri_file"}
    _ok(client.post(f"{base}/data", json=data))
    environment = {"name": f"env-{SECRET}", "pip_requirements": [f"{SECRET}-package"]}
    _ok(client.post(f"{base}/environments", json=environment))
    folder = parts.services.home.parent / f"{parts.services.home.name}-{SECRET}"
    folder.mkdir()
    store_document = {"type": "local", "path": str(folder)}
    _ok(client.put(f"{base}/datastores/store_{SECRET}", json=store_document))
    target = f"azureml://datastores/store_{SECRET}/paths/x"
    _ok(client.put(f"{base}/url-maps", json={"prefix": f"https://{SECRET}.com", "target": target}))
    mlflow = f"/mlflow/{workspace}/api/2.0/mlflow"
    experiment = _ok(client.get(f"{mlflow}/runs/get", params={"run_id": name}))["run"]["info"]
    body = {"experiment_id": experiment["experiment_id"], "start_time": 1}
    run = _ok(client.post(f"{mlflow}/runs/create", json=body))["run"]["info"]["run_id"]
    metric = {"run_id": run, "key": f"metric-{SECRET}", "value": 1, "timestamp": 1}
    client.post(f"{mlflow}/runs/log-metric", json=metric)
    return {
        "name": [
            name,
            run,
            f"c-{SECRET}",
            f"model-{SECRET}",
            f"data-{SECRET}",
            f"store_{SECRET}",
            f"env-{SECRET}",
        ],
        "version": ["1", "latest"],
        "sha256": [sha256, snapshot],
        "snapshot_id": [sha256, snapshot],
        "output": ["out"],
        "path": [f"outputs/{SECRET}.txt", f"{SECRET}.txt", "user_logs/std_log.txt"],
        "run_id": [name, run],
        "experiment_id": [experiment["experiment_id"]],
        "experiment_name": [f"experiment-{SECRET}"],
        "metric_key": [f"metric-{SECRET}"],
    }


@pytest.mark.slow
def test_nothing_of_one_workspace_is_seen_or_changed_from_another(
    client: TestClient, parts: application.Parts
) -> None:
    for workspace in ("vision", "speech"):
        made = _ok(client.post("/v1/workspaces", json={"name": workspace}))
        assert made["name"] == workspace
    names = _fill(client, parts, "vision")
    before = _state(parts)
    app: Any = client.app
    looked, seen_here = 0, 0
    for path, methods in app.openapi()["paths"].items():
        if "{workspace}" not in path:
            # The last of these are MLflow's routes of the default workspace.
            has_no_workspace = path.startswith(ELSEWHERE) or path.startswith("/api/2.0/")
            assert has_no_workspace, path
            continue
        if path == "/v1/workspaces/{workspace}":
            continue
        parameters = [
            part.strip("{}").partition(":")[0] for part in path.split("/") if part.startswith("{")
        ]
        choices = [names.get(part, [SECRET]) for part in parameters if part != "workspace"]
        for values, method in itertools.product(itertools.product(*choices), methods):
            filled = dict(zip([part for part in parameters if part != "workspace"], values,
                              strict=True))  # fmt: skip
            url = _filled(path, {**filled, "workspace": "speech"})
            query: dict[str, str | int] = {key: values[0] for key, values in names.items()}
            query["max_results"] = 10
            query.pop("name")  # a filter that is not a name of the path
            bodies: list[Any] = [None] if method == "get" else [query, {**query, **filled}]
            for body in bodies:
                answer = client.request(method, url, params=query, json=body)
                looked += 1
                # The audit of this workspace tells what was asked of it here.
                echoed = answer.status_code >= 400 or path.endswith("/audit")
                assert echoed or SECRET not in answer.text, (method, url, answer.text[:500])
                assert answer.status_code < 500, (method, url, answer.text)
            if method == "get" and not path.endswith("/stream"):
                here = client.get(url.replace("/speech", "/vision", 1), params=query)
                seen_here += SECRET in here.text and here.status_code == 200
    assert looked > 200
    assert seen_here > 15  # the same requests, in the workspace that has it all, do show it
    assert _state(parts) == before
    for verb in ("jobs", "models", "data", "experiments", "environments", "url-maps"):
        assert SECRET in client.get(f"/v1/workspaces/vision/{verb}").text, verb


def test_a_job_of_one_workspace_cannot_name_another_ones_things(
    client: TestClient, parts: application.Parts
) -> None:
    for workspace in ("vision", "speech"):
        _ok(client.post("/v1/workspaces", json={"name": workspace}))
    _fill(client, parts, "vision")
    long = "azureml://subscriptions/local/resourcegroups/torchyard/workspaces/vision"
    for input in (
        {"path": f"azureml:data-{SECRET}:1", "type": "uri_file"},
        {"path": f"azureml:model-{SECRET}:1", "type": "custom_model"},
        {"path": f"azureml://jobs/job-{SECRET}/outputs/out"},
        {"path": f"runs:/job-{SECRET}/outputs"},
        {"path": f"azureml://datastores/store_{SECRET}/paths/x"},
        {"path": f"{long}/datastores/workspaceblobstore/paths/azureml-models"},
    ):
        job = {"command": "true", "environment": "python", "inputs": {"a": input}}
        answer = client.post("/v1/workspaces/speech/jobs", json=job)
        assert answer.status_code == 400, input
        assert answer.json()["error"]["at"] == ["inputs", "a", "path"]


def _filled(path: str, values: dict[str, str]) -> str:
    for key, value in values.items():
        path = path.replace(f"{{{key}}}", value).replace(f"{{{key}:path}}", value)
    return path


def _state(parts: application.Parts) -> list[Any]:
    """Every row of the other workspace."""
    rows = []
    with parts.services.db.read() as connection:
        for table in ("jobs", "experiments", "models", "data_assets", "datastores", "url_maps",
                      "computes"):  # fmt: skip
            result = connection.exec_driver_sql(f"SELECT * FROM {table} WHERE workspace = 'vision'")
            rows.append((table, result.all()))
            assert rows[-1][1], table
    return rows
