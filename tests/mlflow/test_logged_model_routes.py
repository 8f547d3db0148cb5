"""MLflow 3's logged models, asked as its client asks."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from mlflow_server import Server
from test_registry_routes import PROXY, files_at, upload


@pytest.fixture
def experiment(server: Server) -> str:
    made: str = server.post("experiments/create", name="e")["experiment_id"]
    return made


def create(server: Server, experiment: str, **fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = server.post("logged-models", experiment_id=experiment, **fields)
    return made["model"]


def get(server: Server, model_id: str, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"logged-models/{model_id}", **asked)["model"]
    return found


def found_by(server: Server, experiment: str, **asked: Any) -> list[str]:
    found = server.post("logged-models/search", experiment_ids=[experiment], **asked)
    return [one["info"]["name"] for one in found["models"]]


def log(server: Server, run_id: str, *metrics: dict[str, Any]) -> None:
    server.post("runs/log-batch", run_id=run_id, metrics=list(metrics))


def point(key: str, value: Any, model_id: str, timestamp: int = 1, **more: Any) -> dict[str, Any]:
    return {"key": key, "value": value, "timestamp": timestamp, "model_id": model_id, **more}


def test_a_model_from_its_log_to_its_end(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    made = create(
        server,
        experiment,
        name="net",
        source_run_id=run_id,
        model_type="agent",
        params=[{"key": "lr", "value": "0.1"}],
        tags=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
    )
    info = made["info"]
    model_id = info["model_id"]
    assert model_id.startswith("m-") and info["status"] == "LOGGED_MODEL_PENDING"
    assert (info["name"], info["source_run_id"], info["model_type"]) == ("net", run_id, "agent")
    assert info["artifact_uri"] == f"mlflow-artifacts:/{experiment}/models/{model_id}/artifacts"

    upload(server, info["artifact_uri"] + "/MLmodel", "flavors: {}")
    upload(server, info["artifact_uri"] + "/data/w.bin", "w")
    server.post("runs/outputs", run_id=run_id, models=[{"model_id": model_id, "step": 3}])
    server.post("runs/log-inputs", run_id=run_id, models=[{"model_id": model_id}])
    server.post(f"logged-models/{model_id}/params", params=[{"key": "n", "value": "7"}])
    server.call("DELETE", f"logged-models/{model_id}/tags/a")
    tags = {"tags": [{"key": "b", "value": "3"}]}
    server.call("PATCH", f"logged-models/{model_id}/tags", json=tags)
    ready = {"model_id": model_id, "status": "LOGGED_MODEL_READY"}
    ended = server.call("PATCH", f"logged-models/{model_id}", json=ready)["model"]
    assert ended["info"]["status"] == "LOGGED_MODEL_READY"

    assert files_at(server, info["artifact_uri"]) == {"MLmodel": "flavors: {}", "data/w.bin": "w"}
    listed = server.get(f"logged-models/{model_id}/artifacts/directories")["files"]
    assert [(one["path"], one["is_dir"]) for one in listed] == [("MLmodel", False), ("data", True)]
    found = get(server, model_id)
    assert found["info"]["tags"] == [{"key": "b", "value": "3"}]
    assert {one["key"]: one["value"] for one in found["data"]["params"]} == {"lr": "0.1", "n": "7"}
    run = server.get("runs/get", run_id=run_id)["run"]
    assert run["outputs"]["model_outputs"] == [{"model_id": model_id, "step": 3}]
    assert run["inputs"]["model_inputs"] == [{"model_id": model_id}]

    server.call("DELETE", f"logged-models/{model_id}")
    gone = server.get(f"logged-models/{model_id}", expect=404)
    assert gone["message"] == f"Logged model with ID '{model_id}' not found."
    assert get(server, model_id, allow_deleted="true")["info"]["name"] == "net"
    assert found_by(server, experiment) == []


def test_a_model_needs_no_run_and_no_name(server: Server, experiment: str) -> None:
    made = create(server, experiment)["info"]
    assert made["name"] and "source_run_id" not in made
    stranger = create(server, experiment, source_run_id="../../etc")["info"]
    upload(server, stranger["artifact_uri"] + "/f", "x")
    assert files_at(server, stranger["artifact_uri"]) == {"f": "x"}
    for name in ("a/b", "a.b", "a:b", "a%b", "a'b", "é" * 101):
        refused = server.post("logged-models", expect=400, experiment_id=experiment, name=name)
        assert refused["message"].startswith("Invalid model name")
    upload(server, made["artifact_uri"] + "/%2e%2e/%2e%2e/x", "x", expect=400)
    missing = server.post("logged-models", expect=404, experiment_id="99", name="m")
    assert missing["error_code"] == "RESOURCE_DOES_NOT_EXIST"


def test_it_becomes_a_version(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    info = create(server, experiment, name="net", source_run_id=run_id)["info"]
    upload(server, info["artifact_uri"] + "/MLmodel", "flavors: {}")
    server.post("registered-models/create", name="m")
    made = server.post(
        "model-versions/create",
        name="m",
        source=f"models:/{info['model_id']}",
        model_id=info["model_id"],
    )["model_version"]
    assert (made["run_id"], made["model_id"]) == (run_id, info["model_id"])
    uri = server.get("model-versions/get-download-uri", name="m", version="1")["artifact_uri"]
    upload(server, info["artifact_uri"] + "/MLmodel", "changed")
    assert files_at(server, uri) == {"MLmodel": "flavors: {}"}
    tags = {one["key"]: one["value"] for one in get(server, info["model_id"])["info"]["tags"]}
    assert json.loads(tags["mlflow.modelVersions"]) == [{"name": "m", "version": 1}]
    for model_id in ("m-none", "none"):
        server.post("model-versions/create", expect=404, name="m", source=f"models:/{model_id}")


def test_metrics_of_a_model_are_the_runs_too(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    model_id = create(server, experiment, name="net")["info"]["model_id"]
    on = {"dataset_name": "d", "dataset_digest": "1"}
    log(
        server,
        run_id,
        point("acc", 0.5, model_id, step=1),
        point("acc", 0.7, model_id, 2, step=2),
        point("acc", "NaN", model_id, 3, **on),
    )
    log(server, run_id, point("acc", 0.6, model_id, 1, step=7))
    server.post("runs/log-metric", run_id=run_id, **point("loss", 1, model_id))

    kept = get(server, model_id)["data"]["metrics"]
    assert {(one["key"], one.get("dataset_name")): one["value"] for one in kept} == {
        ("loss", None): 1.0, ("acc", None): 0.7, ("acc", "d"): "NaN",
    }  # fmt: skip
    assert {one["run_id"] for one in kept} == {run_id}
    series = server.services.history.series(1, "acc")
    assert [one.value for one in series[:2]] == [0.5, 0.7] and math.isnan(series[2].value)


def test_searching(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    ids = {}
    for name, value, lr in (("a", 0.1, "1"), ("b", 0.9, "2"), ("c", 0.5, "2")):
        params = [{"key": "lr", "value": lr}]
        model_id = create(server, experiment, name=name, params=params)["info"]["model_id"]
        ids[name] = model_id
        log(server, run_id, point("acc", value, model_id, dataset_name="d", dataset_digest="1"))
    log(server, run_id, point("acc", 5.0, ids["a"], 2, dataset_name="e"))
    create(server, experiment, name="plain")

    def found(**asked: Any) -> list[str]:
        return found_by(server, experiment, **asked)

    assert found() == ["plain", "c", "b", "a"]
    assert found(filter="name = 'b'") == ["b"]
    assert found(filter="params.lr = '2' AND metrics.acc > 0.8") == ["b"]
    assert found(filter="metrics.acc > 1") == ["a"]
    on_d = [{"dataset_name": "d"}]
    assert found(filter="metrics.acc > 1", datasets=on_d) == []
    assert found(datasets=[{"dataset_name": "e"}]) == ["a"]
    assert found(order_by=[{"field_name": "creation_timestamp"}]) == ["a", "b", "c", "plain"]
    by = {"field_name": "metrics.acc", "ascending": False}
    assert found(order_by=[by]) == ["a", "b", "c", "plain"]
    assert found(order_by=[{**by, "dataset_name": "d"}]) == ["b", "c", "a", "plain"]
    first = server.post("logged-models/search", experiment_ids=[experiment], max_results=3)
    assert found(max_results=3, page_token=first["next_page_token"]) == ["a"]
    for bad in (
        {"datasets": [{"dataset_digest": "1"}]},
        {"order_by": [{"field_name": "params.lr"}]},
        {"order_by": [{"field_name": "size"}]},
        {"filter": "metrics.acc = 'x'"},
    ):
        server.post("logged-models/search", expect=400, experiment_ids=[experiment], **bad)


def test_a_run_lists_its_own_files_beside_its_models(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    info = create(server, experiment, name="net", source_run_id=run_id)["info"]
    upload(server, info["artifact_uri"] + "/MLmodel", "m")
    root = server.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"]
    upload(server, f"{root}/note.txt", "n")
    assert files_at(server, root) == {"note.txt": "n"}
    missing = server.ask("GET", f"{PROXY}/{experiment}/models/m-none/artifacts/f")
    assert missing.status_code == 404
