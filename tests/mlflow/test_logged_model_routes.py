"""MLflow 3's logged models, requested as its client does."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from mlflow.mlflow_server import Server
from mlflow.test_registry_routes import PROXY, files_at, upload


@pytest.fixture
def experiment(server: Server) -> str:
    experiment_id: str = server.post("experiments/create", name="e")["experiment_id"]
    return experiment_id


def create(server: Server, experiment: str, **fields: Any) -> dict[str, Any]:
    body = server.post("logged-models", experiment_id=experiment, **fields)
    model: dict[str, Any] = body["model"]
    return model


def get(server: Server, model_id: str, **fields: Any) -> dict[str, Any]:
    model: dict[str, Any] = server.get(f"logged-models/{model_id}", **fields)["model"]
    return model


def search_names(server: Server, experiment: str, **fields: Any) -> list[str]:
    body = server.post("logged-models/search", experiment_ids=[experiment], **fields)
    return [item["info"]["name"] for item in body["models"]]


def log(server: Server, run_id: str, *metrics: dict[str, Any]) -> None:
    server.post("runs/log-batch", run_id=run_id, metrics=list(metrics))


def point(
    key: str, value: Any, model_id: str, timestamp: int = 1, **options: Any
) -> dict[str, Any]:
    return {"key": key, "value": value, "timestamp": timestamp, "model_id": model_id, **options}


def test_a_logged_model_is_created_changed_finished_and_deleted(
    server: Server, experiment: str
) -> None:
    run_id = server.new_run(experiment)
    created = create(
        server,
        experiment,
        name="net",
        source_run_id=run_id,
        model_type="agent",
        params=[{"key": "lr", "value": "0.1"}],
        tags=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}],
    )
    info = created["info"]
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
    finished = server.call("PATCH", f"logged-models/{model_id}", json=ready)["model"]
    assert finished["info"]["status"] == "LOGGED_MODEL_READY"

    assert files_at(server, info["artifact_uri"]) == {"MLmodel": "flavors: {}", "data/w.bin": "w"}
    files = server.get(f"logged-models/{model_id}/artifacts/directories")["files"]
    assert [(item["path"], item["is_dir"]) for item in files] == [
        ("MLmodel", False),
        ("data", True),
    ]
    model = get(server, model_id)
    assert model["info"]["tags"] == [{"key": "b", "value": "3"}]
    assert {item["key"]: item["value"] for item in model["data"]["params"]} == {
        "lr": "0.1",
        "n": "7",
    }
    run = server.get("runs/get", run_id=run_id)["run"]
    assert run["outputs"]["model_outputs"] == [{"model_id": model_id, "step": 3}]
    assert run["inputs"]["model_inputs"] == [{"model_id": model_id}]

    server.call("DELETE", f"logged-models/{model_id}")
    error = server.get(f"logged-models/{model_id}", expect=404)
    assert error["message"] == f"Logged model with ID '{model_id}' not found."
    assert get(server, model_id, allow_deleted="true")["info"]["name"] == "net"
    assert search_names(server, experiment) == []


def test_a_model_needs_no_run_and_no_name(server: Server, experiment: str) -> None:
    info = create(server, experiment)["info"]
    assert info["name"] and "source_run_id" not in info
    other_model = create(server, experiment, source_run_id="../../etc")["info"]
    upload(server, other_model["artifact_uri"] + "/f", "x")
    assert files_at(server, other_model["artifact_uri"]) == {"f": "x"}
    for name in ("a/b", "a.b", "a:b", "a%b", "a'b", "é" * 101):
        refused = server.post("logged-models", expect=400, experiment_id=experiment, name=name)
        assert refused["message"].startswith("Invalid model name")
    upload(server, info["artifact_uri"] + "/%2e%2e/%2e%2e/x", "x", expect=400)
    missing = server.post("logged-models", expect=404, experiment_id="99", name="m")
    assert missing["error_code"] == "RESOURCE_DOES_NOT_EXIST"


def test_a_logged_model_can_be_registered_as_a_version(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    info = create(server, experiment, name="net", source_run_id=run_id)["info"]
    upload(server, info["artifact_uri"] + "/MLmodel", "flavors: {}")
    server.post("registered-models/create", name="m")
    version = server.post(
        "model-versions/create",
        name="m",
        source=f"models:/{info['model_id']}",
        model_id=info["model_id"],
    )["model_version"]
    assert (version["run_id"], version["model_id"]) == (run_id, info["model_id"])
    uri = server.get("model-versions/get-download-uri", name="m", version="1")["artifact_uri"]
    upload(server, info["artifact_uri"] + "/MLmodel", "changed")
    assert files_at(server, uri) == {"MLmodel": "flavors: {}"}
    tags = {item["key"]: item["value"] for item in get(server, info["model_id"])["info"]["tags"]}
    assert json.loads(tags["mlflow.modelVersions"]) == [{"name": "m", "version": 1}]
    for model_id in ("m-none", "none"):
        server.post("model-versions/create", expect=404, name="m", source=f"models:/{model_id}")


def test_metrics_of_a_model_are_also_metrics_of_its_run(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    model_id = create(server, experiment, name="net")["info"]["model_id"]
    dataset = {"dataset_name": "d", "dataset_digest": "1"}
    log(
        server,
        run_id,
        point("acc", 0.5, model_id, step=1),
        point("acc", 0.7, model_id, 2, step=2),
        point("acc", "NaN", model_id, 3, **dataset),
    )
    log(server, run_id, point("acc", 0.6, model_id, 1, step=7))
    server.post("runs/log-metric", run_id=run_id, **point("loss", 1, model_id))

    metrics = get(server, model_id)["data"]["metrics"]
    assert {(item["key"], item.get("dataset_name")): item["value"] for item in metrics} == {
        ("loss", None): 1.0, ("acc", None): 0.7, ("acc", "d"): "NaN",
    }  # fmt: skip
    assert {item["run_id"] for item in metrics} == {run_id}
    series = server.services.history.series(1, "acc")
    assert [item.value for item in series[:2]] == [0.5, 0.7] and math.isnan(series[2].value)


def test_search_filters_orders_and_pages_logged_models(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    ids = {}
    for name, value, lr in (("a", 0.1, "1"), ("b", 0.9, "2"), ("c", 0.5, "2")):
        params = [{"key": "lr", "value": lr}]
        model_id = create(server, experiment, name=name, params=params)["info"]["model_id"]
        ids[name] = model_id
        log(server, run_id, point("acc", value, model_id, dataset_name="d", dataset_digest="1"))
    log(server, run_id, point("acc", 5.0, ids["a"], 2, dataset_name="e"))
    create(server, experiment, name="plain")

    def search(**fields: Any) -> list[str]:
        return search_names(server, experiment, **fields)

    assert search() == ["plain", "c", "b", "a"]
    assert search(filter="name = 'b'") == ["b"]
    assert search(filter="params.lr = '2' AND metrics.acc > 0.8") == ["b"]
    assert search(filter="metrics.acc > 1") == ["a"]
    on_d = [{"dataset_name": "d"}]
    assert search(filter="metrics.acc > 1", datasets=on_d) == []
    assert search(datasets=[{"dataset_name": "e"}]) == ["a"]
    assert search(order_by=[{"field_name": "creation_timestamp"}]) == ["a", "b", "c", "plain"]
    by = {"field_name": "metrics.acc", "ascending": False}
    assert search(order_by=[by]) == ["a", "b", "c", "plain"]
    assert search(order_by=[{**by, "dataset_name": "d"}]) == ["b", "c", "a", "plain"]
    first = server.post("logged-models/search", experiment_ids=[experiment], max_results=3)
    assert search(max_results=3, page_token=first["next_page_token"]) == ["a"]
    for bad in (
        {"datasets": [{"dataset_digest": "1"}]},
        {"order_by": [{"field_name": "params.lr"}]},
        {"order_by": [{"field_name": "size"}]},
        {"filter": "metrics.acc = 'x'"},
    ):
        server.post("logged-models/search", expect=400, experiment_ids=[experiment], **bad)


def test_a_run_does_not_list_the_files_of_its_models(server: Server, experiment: str) -> None:
    run_id = server.new_run(experiment)
    info = create(server, experiment, name="net", source_run_id=run_id)["info"]
    upload(server, info["artifact_uri"] + "/MLmodel", "m")
    root = server.get("runs/get", run_id=run_id)["run"]["info"]["artifact_uri"]
    upload(server, f"{root}/note.txt", "n")
    assert files_at(server, root) == {"note.txt": "n"}
    missing = server.request("GET", f"{PROXY}/{experiment}/models/m-none/artifacts/f")
    assert missing.status_code == 404
