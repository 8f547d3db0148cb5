"""MLflow's REST API, requested as its clients do."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mlflow.mlflow_server import Server, add_job
from torchyard.jobs import actions
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import runs


def metric(key: str, value: Any, timestamp: int = 1, step: int = 0) -> dict[str, Any]:
    return {"key": key, "value": value, "timestamp": timestamp, "step": step}


def data(server: Server, run_id: str) -> dict[str, dict[str, Any]]:
    run_data = server.get("runs/get", run_id=run_id)["run"]["data"]
    return {
        kind: {item["key"]: item["value"] for item in run_data[kind]}
        for kind in ("metrics", "params", "tags")
    }


@pytest.fixture
def job(server: Server) -> str:
    experiment = runs.create_experiment(server.services, "default", "Default", {})
    return add_job(server, "default", "lucky_job", experiment.id).name


def test_requests_without_a_valid_token_are_refused(server: Server) -> None:
    for path in (
        "mlflow/runs/get?run_id=x",
        "mlflow-artifacts/artifacts/1/x/artifacts/f",
        "mlflow/x",
    ):
        response = server.request("GET", f"/api/2.0/{path}", token="yard_p_nobody")
        assert response.status_code == 401
        assert response.json()["error_code"] == "UNAUTHENTICATED"
    assert server.request("GET", "/api/3.0/mlflow/server-info", token="").status_code == 200
    assert server.request("GET", "/version", token="").text.startswith("2.")


def test_a_token_of_one_workspace_opens_no_other(server: Server) -> None:
    body = server.get("runs/get", expect=403, token="yard_r_vision", run_id="lucky_job")
    assert body["error_code"] == "PERMISSION_DENIED"
    path = "/mlflow/vision/api/2.0/mlflow/experiments/get?experiment_id=0"
    assert server.request("GET", path, token="yard_r_vision").status_code == 200
    assert server.request("GET", path, token="yard_r_job").status_code == 403


def test_a_missing_endpoint_returns_mlflows_404(server: Server) -> None:
    for method, path in (("POST", "traces"), ("GET", "runs"), ("PATCH", "traces/t/tags")):
        assert server.call(method, path, expect=404)["error_code"] == "ENDPOINT_NOT_FOUND"
    response = server.request("POST", "/mlflow/default/api/2.0/mlflow/registered-models/promote")
    assert response.status_code == 404 and response.json()["error_code"] == "ENDPOINT_NOT_FOUND"


def test_a_run_is_created_logged_to_finished_and_restarted(server: Server) -> None:
    run = server.post(
        "runs/create",
        experiment_id="0",
        start_time=1700000000123,
        run_name="first",
        tags=[{"key": "a", "value": "b"}],
    )["run"]
    run_id = run["info"]["run_id"]
    assert run["info"]["start_time"] == 1700000000123
    assert run["info"]["artifact_uri"] == f"mlflow-artifacts:/1/{run_id}/artifacts"
    assert run["info"]["user_id"] == "ada"

    server.post("runs/log-metric", run_id=run_id, **metric("loss", 0.5))
    server.post("runs/log-metric", run_uuid=run_id, **metric("loss", "NaN", "2", "1"))  # type: ignore[arg-type]
    server.post("runs/log-parameter", run_id=run_id, key="lr", value="0.1")
    server.post("runs/set-tag", run_id=run_id, key="t", value="v")
    server.post("runs/delete-tag", run_id=run_id, key="a")
    server.post("runs/set-tag", run_id=run_id, key="mlflow.runName", value="renamed")
    finished = server.post("runs/update", run_id=run_id, status="FINISHED", end_time=1700000001000)

    assert finished["run_info"]["status"] == "FINISHED"
    assert finished["run_info"]["end_time"] == 1700000001000
    assert finished["run_info"]["run_name"] == "renamed"
    run_data = data(server, run_id)
    assert run_data["metrics"] == {"loss": "NaN"}
    assert run_data["params"] == {"lr": "0.1"}
    assert run_data["tags"] == {
        "t": "v",
        "mlflow.runName": "renamed",
        "mlflow.user": "ada",
        "mlflow.source.type": "JOB",
    }
    restarted = server.post("runs/update", run_id=run_id, status="RUNNING", run_name="third")
    assert restarted["run_info"]["status"] == "RUNNING"
    assert "end_time" not in restarted["run_info"]
    assert restarted["run_info"]["run_name"] == "third"


def test_a_client_cannot_end_a_jobs_run(server: Server, job: str) -> None:
    info = server.post("runs/update", run_id=job, status="FINISHED", end_time=5, run_name="mine")
    assert info["run_info"]["status"] == "RUNNING"
    assert info["run_info"]["run_name"] == "mine"
    assert actions.get(server.services, "default", job).status is Status.RUNNING


def test_a_run_started_inside_a_job_is_its_child(server: Server, job: str) -> None:
    run = server.post("runs/create", token="yard_r_job", experiment_id="1")["run"]
    tags = {item["key"]: item["value"] for item in run["data"]["tags"]}
    assert tags["mlflow.parentRunId"] == job
    assert actions.get(server.services, "default", run["info"]["run_id"]).parent == job


def test_a_batch_is_stored_completely_or_not_at_all(server: Server, job: str) -> None:
    server.post(
        "runs/log-batch",
        run_id=job,
        metrics=[metric("m", step, 5, step) for step in range(1000)],
        params=[{"key": "p", "value": "1"}],
        tags=[{"key": "t", "value": "ü"}],
    )
    refused = server.post(
        "runs/log-batch",
        expect=400,
        run_id=job,
        metrics=[metric("n", 1)],
        params=[{"key": "p", "value": "2"}],
    )

    assert refused["error_code"] == "INVALID_PARAMETER_VALUE"
    assert "Changing param values is not allowed" in refused["message"]
    run_data = data(server, job)
    assert run_data["metrics"] == {"m": 999.0}
    assert run_data["tags"]["t"] == "ü"


def test_unusual_keys_and_numbers_are_preserved(server: Server, job: str) -> None:
    values = {"a@b %/x-y": 1.5, "é 漢": "Infinity", "minus": "-Infinity", "none": "NaN"}
    for key, value in values.items():
        server.post("runs/log-metric", run_id=job, **metric(key, value))

    assert data(server, job)["metrics"] == values
    point = server.get("metrics/get-history", run_id=job, metric_key="é 漢")["metrics"]
    assert point == [{"key": "é 漢", "value": "Infinity", "timestamp": 1, "step": 0}]
    assert server.services.history.series(1, "none")[0].value is math.nan


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("runs/log-metric", {"value": 1, "timestamp": 1}),
        ("runs/log-metric", {"key": "m", "timestamp": 1}),
        ("runs/log-metric", {"key": "m", "value": 1}),
        ("runs/log-metric", {"key": "m", "value": "high", "timestamp": 1}),
        ("runs/log-metric", {"key": "m", "value": 1, "timestamp": -1}),
        ("runs/log-metric", {"key": "m", "value": 1, "timestamp": 1, "step": 2**63}),
        ("runs/log-metric", {"key": "m", "value": 1, "timestamp": 1, "step": "x"}),
        ("runs/log-metric", {"key": "k" * 251, "value": 1, "timestamp": 1}),
        ("runs/log-parameter", {"value": "1"}),
        ("runs/set-tag", {"key": "t", "value": 7}),
        ("runs/log-batch", {"metrics": 5}),
        ("runs/log-batch", {"metrics": [{"key": "m"}]}),
        ("runs/update", {"status": "DONE"}),
        ("runs/search", {"experiment_ids": ["1"], "filter": "colour = 'red'"}),
        ("runs/search", {"experiment_ids": ["1"], "page_token": "x"}),
        ("runs/search", {"experiment_ids": ["1"], "max_results": 0}),
        ("runs/search", {"experiment_ids": [str(number) for number in range(5_001)]}),
        ("logged-models/search", {"experiment_ids": ["1"] * 5_001}),
    ],
)
def test_invalid_fields_are_refused(server: Server, path: str, fields: dict[str, Any]) -> None:
    run_id = server.new_run()
    body = server.post(path, expect=400, **{"run_id": run_id, **fields})
    assert body["error_code"] == "INVALID_PARAMETER_VALUE"
    assert data(server, run_id)["metrics"] == {}


def test_bodies_that_are_not_json_objects_are_refused(server: Server) -> None:
    for content in (b"{", b"[1]", b"\xff", b"[" * 5000):
        response = server.request("POST", "/api/2.0/mlflow/runs/log-metric", content=content)
        assert response.status_code == 400, content


def test_a_missing_run_returns_404(server: Server, job: str) -> None:
    for path in ("runs/log-metric", "runs/update", "runs/delete", "runs/set-tag"):
        value = "v" if path == "runs/set-tag" else 1
        body = server.post(path, expect=404, run_id="nobody", key="k", value=value, timestamp=1)
        assert body["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    assert server.get("runs/get", expect=404, run_id="nobody")["error_code"] == (
        "RESOURCE_DOES_NOT_EXIST"
    )
    assert server.post("runs/delete-tag", expect=404, run_id=job, key="absent")


def test_metric_history_is_paged(server: Server, job: str) -> None:
    for start in range(0, 2500, 1000):
        points = [metric("m", step, 10, step) for step in range(start, min(start + 1000, 2500))]
        server.post("runs/log-batch", run_id=job, metrics=points)

    history = server.get("metrics/get-history", run_id=job, metric_key="m")
    assert len(history["metrics"]) == 2500 and "next_page_token" not in history
    token, steps = "", []
    for _ in range(3):
        body = server.get(
            "metrics/get-history", run_id=job, metric_key="m", max_results=900, page_token=token
        )
        steps += [item["step"] for item in body["metrics"]]
        token = body.get("next_page_token", "")
    assert (steps, token) == (list(range(2500)), "")


def test_experiments_of_a_search_may_be_many_doubled_and_unknown(server: Server) -> None:
    run_id = server.new_run()
    numbers = [str(number) for number in range(1, 2_400)]
    body = server.post("runs/search", experiment_ids=[*numbers, *numbers, "x", "9" * 30, "0"])
    assert [item["info"]["run_id"] for item in body["runs"]] == [run_id]


def test_runs_can_be_filtered_ordered_and_paged(server: Server) -> None:
    ids = [server.new_run(start_time=1000 + index, run_name=f"n{index}") for index in range(7)]
    for index, run_id in enumerate(ids):
        server.post("runs/log-metric", run_id=run_id, **metric("acc", index / 10))
        server.post("runs/log-parameter", run_id=run_id, key="i", value=str(index))

    def search(**fields: Any) -> list[str]:
        body = server.post("runs/search", experiment_ids=["1"], **fields)
        return [item["info"]["run_name"] for item in body.get("runs", [])]

    assert search() == ["n6", "n5", "n4", "n3", "n2", "n1", "n0"]
    assert search(filter="metrics.acc >= 0.4 AND params.i != '5'", order_by=["metrics.acc"]) == [
        "n4",
        "n6",
    ]
    assert search(filter="attributes.run_name = 'n3' AND status = 'RUNNING'") == ["n3"]
    assert search(filter="tags.mlflow.user = 'ada'", max_results=2) == ["n6", "n5"]
    server.post("runs/delete", run_id=ids[6])
    assert search()[0] == "n5"
    assert search(run_view_type="DELETED_ONLY") == ["n6"]
    assert len(search(run_view_type="ALL")) == 7
    server.post("runs/log-metric", expect=400, run_id=ids[6], **metric("late", 1))
    server.post("runs/restore", run_id=ids[6])
    assert search()[0] == "n6"


def test_experiments_are_created_found_changed_and_deleted(server: Server) -> None:
    experiment_id = server.post(
        "experiments/create", name="vision é", tags=[{"key": "team", "value": "a"}]
    )["experiment_id"]
    error = server.post("experiments/create", expect=400, name="vision é")
    assert error["error_code"] == "RESOURCE_ALREADY_EXISTS"
    by_name = server.get("experiments/get-by-name", experiment_name="vision é")["experiment"]
    assert by_name == server.get("experiments/get", experiment_id=experiment_id)["experiment"]
    assert by_name["tags"] == [{"key": "team", "value": "a"}]
    for path, field in (("get", "experiment_id"), ("get-by-name", "experiment_name")):
        missing = server.get(f"experiments/{path}", expect=404, **{field: "77"})
        assert missing["error_code"] == "RESOURCE_DOES_NOT_EXIST"
    default = server.get("experiments/get", experiment_id="0")["experiment"]
    assert default["name"] == "Default"
    assert default == server.get("experiments/get-by-name", experiment_name="Default")["experiment"]

    def names(**fields: Any) -> list[str]:
        by_body = server.post("experiments/search", max_results=10, **fields)["experiments"]
        by_query = server.get("experiments/search", max_results=10, **fields)["experiments"]
        assert by_body == by_query
        return [item["name"] for item in by_body]

    assert names() == ["Default", "vision é"]
    assert names(filter="name LIKE 'vis%' AND tags.team = 'a'") == ["vision é"]
    assert names(order_by=["name DESC"]) == ["vision é", "Default"]
    server.post("experiments/set-experiment-tag", experiment_id=experiment_id, key="k", value="v")
    server.post("experiments/update", experiment_id=experiment_id, new_name="other")
    server.post("experiments/delete", experiment_id=experiment_id)
    assert names() == ["Default"]
    assert names(view_type="DELETED_ONLY") == ["other"]
    assert server.post("runs/create", expect=400, experiment_id=experiment_id)
    server.post("experiments/restore", experiment_id=experiment_id)
    assert len(names(view_type="ALL")) == 2


def test_datasets_and_models_are_stored_with_the_run(server: Server, job: str) -> None:
    dataset = {"dataset": {"name": "d", "digest": "1", "source_type": "local", "source": "s"}}
    for _ in range(2):
        server.post("runs/log-inputs", run_id=job, datasets=[dataset])
    server.post("runs/log-model", run_id=job, model_json='{"artifact_path": "m"}')

    run = server.get("runs/get", run_id=job)["run"]
    assert run["inputs"]["dataset_inputs"] == [{**dataset, "tags": []}]
    tags = data(server, job)["tags"]
    assert tags["mlflow.log-model.history"] == '[{"artifact_path": "m"}]'
    assert not [key for key in tags if "torchyard" in key]


def test_artifacts_are_uploaded_listed_downloaded_and_deleted(server: Server, job: str) -> None:
    base = "/api/2.0/mlflow-artifacts/artifacts"
    root = f"{base}/1/{job}/artifacts"
    content = bytes(range(256)) * 9000
    for path in ("model/weights.bin", "model/sub/ü %41.txt", "top.txt"):
        response = server.request("PUT", f"{root}/{path.replace('%', '%25')}", content=content)
        assert response.status_code == 200, response.text

    assert server.request("GET", f"{root}/model/weights.bin").content == content
    assert server.request("GET", f"{root}/model/sub/ü %2541.txt").content == content
    part = server.request("GET", f"{base}?path=1/{job}/artifacts/model").json()["files"]
    assert part == [
        {"path": "sub", "is_dir": True},
        {"path": "weights.bin", "is_dir": False, "file_size": len(content)},
    ]
    listing = server.get("artifacts/list", run_id=job, path="model")
    assert listing["root_uri"] == f"mlflow-artifacts:/1/{job}/artifacts"
    assert [item["path"] for item in listing["files"]] == ["model/sub", "model/weights.bin"]
    assert [item["path"] for item in server.get("artifacts/list", run_id=job)["files"]] == [
        "model",
        "top.txt",
    ]
    assert server.request("DELETE", f"{root}/model").status_code == 200
    assert server.request("GET", f"{root}/model/weights.bin").status_code == 404
    for bad in (f"{root}/a/%2e%2e/%2e%2e/%2e%2e/x", f"{root}/%2e%2e/x"):
        assert server.request("PUT", bad, content=b"x").status_code in (400, 404)
    for absent in (f"{base}/1/nobody/artifacts/x", f"{base}/x", f"{root}/none"):
        body = server.request("GET", absent)
        assert (body.status_code, body.json()["error_code"]) == (404, "RESOURCE_DOES_NOT_EXIST")
