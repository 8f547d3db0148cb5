"""Unusual requests are refused in MLflow's words and never fail; concurrent requests."""

from __future__ import annotations

import asyncio
import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event

from mlflow.mlflow_server import Server

FAR = base64.b64encode(json.dumps({"offset": 10**30}).encode()).decode()
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("runs/search", {"experiment_ids": ["0"], "page_token": FAR}),
    ("experiments/search", {"page_token": FAR}),
    ("logged-models/search", {"experiment_ids": ["0"], "page_token": FAR}),
    ("runs/outputs", {"models": [{"model_id": "m-1", "step": 2**63}]}),
    ("runs/log-inputs", {"models": [{"model_id": "m-1", "step": str(-(2**63) - 1)}]}),
    ("runs/log-metric", {"key": "a", "value": 1, "timestamp": "9" * 5000}),
    ("experiments/create", {"name": "far", "artifact_location": "http://[::1"}),
    ("model-versions/create", {"name": "rm", "source": "http://[::1"}),
    ("model-versions/create", {"name": "rm", "source": "models://[::1"}),
    ("runs/log-model", {"model_json": "{"}),
]


@pytest.mark.parametrize("path,fields", REFUSED)
def test_unusual_input_is_refused(server: Server, path: str, fields: dict[str, Any]) -> None:
    run_id = server.new_run()
    server.post("registered-models/create", name="rm")
    error = server.call("POST", path, 400, json={"run_id": run_id, **fields})
    assert error["error_code"] == "INVALID_PARAMETER_VALUE"


def test_experiments_can_be_searched_by_id(server: Server) -> None:
    ids = [server.post("experiments/create", name=name)["experiment_id"] for name in "abc"]

    def search(**fields: Any) -> list[str]:
        experiments = server.post("experiments/search", **fields)["experiments"]
        return [item["experiment_id"] for item in experiments if item["experiment_id"] in ids]

    assert search(filter=f"experiment_id = '{ids[1]}'") == [ids[1]]
    assert search(filter=f"experiment_id IN ('{ids[0]}', '{ids[2]}', 'x')") == [ids[2], ids[0]]
    assert search(filter=f"experiment_id != '{ids[0]}'") == [ids[2], ids[1]]
    assert search(filter=f"experiment_id LIKE '{ids[0]}%'") == [ids[0]]
    assert search(filter=f"experiment_id ILIKE '{ids[0]}%'") == [ids[0]]
    assert search(order_by=["experiment_id ASC"]) == ids


def test_logged_models_of_missing_experiments_are_left_out(server: Server) -> None:
    info = server.post("logged-models", experiment_id="0", name="m")["model"]["info"]
    models = server.post("logged-models/search", experiment_ids=["999999", "no", "0"])["models"]
    assert [item["info"]["model_id"] for item in models] == [info["model_id"]]
    assert server.post("logged-models/search", experiment_ids=["999999"])["models"] == []


def test_concurrent_requests_log_models_to_one_run(server: Server) -> None:
    run_id = server.new_run(tags=[{"key": "mlflow.log-model.history", "value": "no list"}])

    def log(number: int) -> None:
        server.post("runs/log-model", run_id=run_id, model_json=json.dumps({"number": number}))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(log, range(24)))
    tags = server.get("runs/get", run_id=run_id)["run"]["data"]["tags"]
    history = {item["key"]: item["value"] for item in tags}["mlflow.log-model.history"]
    assert sorted(item["number"] for item in json.loads(history)) == list(range(24))
    server.post("runs/delete", run_id=run_id)
    server.post("runs/log-model", 400, run_id=run_id, model_json="{}")


def test_a_logged_model_lists_all_its_versions(server: Server) -> None:
    info = server.post("logged-models", experiment_id="0", name="m")["model"]["info"]
    names = [f"rm{number}" for number in range(8)]
    for name in names:
        server.post("registered-models/create", name=name)

    def register(name: str) -> None:
        server.post("model-versions/create", name=name, source=f"models:/{info['model_id']}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(register, names))
    model = server.get(f"logged-models/{info['model_id']}")["model"]
    history = {item["key"]: item["value"] for item in model["info"]["tags"]}["mlflow.modelVersions"]
    assert sorted(item["name"] for item in json.loads(history)) == names


def test_an_upload_never_blocks_the_event_loop_with_the_database(server: Server) -> None:
    run_id = server.new_run()
    root = server.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"].partition(":/")[2]
    on_the_loop: list[str] = []

    def record(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return  # in another thread
        on_the_loop.append(statement)

    engine = server.services.history._db.engine
    event.listen(engine, "before_cursor_execute", record)
    try:
        base = "/api/2.0/mlflow-artifacts"
        server.request("PUT", f"{base}/artifacts/{root}/f", content=b"12")
        small = {"run_uuid": run_id, "path": "g"}
        server.request("POST", "/api/2.0/mlflow/upload-artifact", params=small, content=b"34")
        upload = server.request(
            "POST", f"{base}/mpu/create/{root}", json={"path": "h", "num_parts": 1}
        ).json()
        server.request("PUT", upload["credentials"][0]["url"], content=b"56")
    finally:
        event.remove(engine, "before_cursor_execute", record)
    files = server.get("artifacts/list", run_id=run_id)["files"]
    assert [item["path"] for item in files] == ["f", "g"]
    assert on_the_loop == []
