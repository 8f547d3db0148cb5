"""The real mlflow, unmodified, in jobs: what goes through the relay."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from end_to_end.shared_torch import LOCKS, SharedTorch
from end_to_end.yard_under_test import Yard, wait_until

pytestmark = [pytest.mark.end_to_end, pytest.mark.slow, pytest.mark.timeout(300)]

CLIENTS = ["2.22.5", "3.11.1"]
Write = Callable[..., str]

ONE = """
import os, time, mlflow
own = os.environ["MLFLOW_RUN_ID"]
mlflow.log_metric("plain", 1.5, step=3)
assert mlflow.active_run().info.run_id == own
client = mlflow.MlflowClient()

# Asynchronous logging
waits = [mlflow.log_metrics({"batch": i}, step=i, synchronous=False) for i in range(50)]
for one in waits:
    one.wait()
mlflow.config.enable_async_logging()
for i in range(200):
    mlflow.log_metric("async", i, step=i)
mlflow.log_param("async_param", "1")
mlflow.flush_async_logging()
mlflow.config.enable_async_logging(False)
assert len(client.get_metric_history(own, "async")) == 200

# Runs below the job's own; its end is not the script's to tell
with mlflow.start_run(nested=True, run_name="nested") as nested:
    mlflow.log_metric("inner", 1)
    with mlflow.start_run(nested=True) as deeper:
        mlflow.log_metric("innermost", 1)
mlflow.end_run()
client.set_terminated(own, "FAILED")
with mlflow.start_run(run_name="second") as second:
    mlflow.log_params({"a": 1, "b": 2})
parents = [client.get_run(run.info.run_id).data.tags.get("mlflow.parentRunId")
           for run in (nested, deeper, second)]
assert parents == [own, nested.info.run_id, own], parents
assert client.get_run(second.info.run_id).info.status == "FINISHED"
assert client.get_run(own).info.status == "RUNNING"

# Measuring the machine
mlflow.set_system_metrics_sampling_interval(0.1)
mlflow.set_system_metrics_samples_before_logging(1)
with mlflow.start_run(run_name="measured", log_system_metrics=True) as measured:
    until = time.monotonic() + 60
    found = {}
    while "system/cpu_utilization_percentage" not in found:
        assert time.monotonic() < until, found
        time.sleep(0.2)
        found = client.get_run(measured.info.run_id).data.metrics

client.update_run(own, name="my name")
mlflow.MlflowClient().set_tag(own, "mlflow.runName", "my newer name")
print("all is well")
"""

LOGGED_MODEL = """
import mlflow
model = mlflow.initialize_logged_model(name="net")
mlflow.log_metric("acc", 0.5, step=1, model_id=model.model_id)
mlflow.log_metrics({"f1": 0.25}, step=2, model_id=model.model_id)
mlflow.finalize_logged_model(model.model_id, "READY")
mlflow.flush_async_logging()
found = mlflow.get_logged_model(model.model_id)
assert {one.key: one.value for one in found.metrics} == {"acc": 0.5, "f1": 0.25}, found.metrics
run = mlflow.get_run(mlflow.active_run().info.run_id)
assert run.data.metrics == {"acc": 0.5, "f1": 0.25}, run.data.metrics
"""

MANY = """
import os, time, mlflow
rank = int(os.environ["RANK"])
client = mlflow.MlflowClient()
own = os.environ["MLFLOW_RUN_ID"]
mlflow.log_param("lr", "0.1")
if rank in (0, 2):  # one on each node
    mlflow.log_param("seen_by", f"rank {rank}")
if rank == 0:
    child = client.create_run(mlflow.get_run(own).info.experiment_id, run_name="of all")
    client.set_tag(own, "child", child.info.run_id)
while "child" not in (tags := client.get_run(own).data.tags):
    time.sleep(0.1)
for step in range(300):
    mlflow.log_metric("all", rank, step=rank * 1000 + step)
    mlflow.log_metric(f"of rank {rank}", step, step=step)
    client.log_metric(tags["child"], "shared", rank, step=rank * 1000 + step)
"""

AWAY = """
import pathlib, time, mlflow
mlflow.log_metric("before", 1)
pathlib.Path("ready").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.02)
with mlflow.start_run(nested=True, run_name="while away"):
    mlflow.log_metric("inner", 1)
mlflow.log_text("abc", "note.txt")
assert mlflow.artifacts.load_text(mlflow.get_artifact_uri("note.txt")) == "abc"
"""


@pytest.fixture(scope="module", autouse=True)
def environments(yard: Yard, shared_torch: SharedTorch) -> None:
    for version in CLIENTS:
        shared_torch.lend(yard.home, lock(version))


def lock(version: str) -> Path:
    """Of the client and of psutil, which it measures the machine with."""
    return LOCKS / f"mlflow-relay-{version}.txt"


def environment(version: str) -> dict[str, Any]:
    return {"pip_requirements": str(lock(version))}


def mlflow_answer(yard: Yard, path: str, **body: Any) -> Any:
    """An answer of the MLflow routes."""
    server = json.loads((yard.home / "server.json").read_text())
    token = (yard.home / "token").read_text().strip()
    request = urllib.request.Request(
        f"{server['url']}/mlflow/default/api/2.0/mlflow/{path}",
        data=json.dumps(body).encode() if body else None,
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def steps(yard: Yard, run: str, key: str) -> list[int]:
    path = f"metrics/get-history?run_id={run}&metric_key={key.replace(' ', '%20')}"
    return sorted(int(point["step"]) for point in mlflow_answer(yard, path)["metrics"])


@pytest.mark.parametrize("version", CLIENTS)
def test_one_script_logs_by_every_call(yard: Yard, write_job: Write, version: str) -> None:
    name = f"one-{version[0]}"
    job = {"name": name, "command": "python one.py", "environment": environment(version)}
    yard("job", "create", "-f", write_job(job, one=ONE))
    done = yard.completed(name)
    assert done["display_name"] == "my newer name"
    assert done["notices"] == []
    assert steps(yard, name, "async") == list(range(200))
    assert steps(yard, name, "batch") == list(range(50))
    assert steps(yard, name, "plain") == [3]


def test_metrics_of_a_logged_model(yard: Yard, write_job: Write) -> None:
    job = {"name": "model", "command": "python model.py", "environment": environment("3.11.1")}
    yard("job", "create", "-f", write_job(job, model=LOGGED_MODEL))
    yard.completed("model")


@pytest.mark.parametrize("version", CLIENTS)
def test_ranks_of_two_nodes_log_to_one_run(yard: Yard, write_job: Write, version: str) -> None:
    name = f"many-{version[0]}"
    job = {
        "name": name,
        "command": "python many.py",
        "environment": environment(version),
        "resources": {"instance_count": 2},
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
    }
    yard("job", "create", "-f", write_job(job, many=MANY))
    done = yard.completed(name)
    everyone = [rank * 1000 + step for rank in range(4) for step in range(300)]
    assert steps(yard, name, "all") == everyone
    for rank in range(4):
        assert steps(yard, name, f"of rank {rank}") == list(range(300))
    run = mlflow_answer(yard, f"runs/get?run_id={name}")["run"]["data"]
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    assert steps(yard, tags["child"], "shared") == everyone
    params = {param["key"]: param["value"] for param in run["params"]}
    assert params["lr"] == "0.1"
    # Each node's relay took its own rank's word for it; the server has the first and tells.
    assert len(done["notices"]) == 1
    assert "Changing param values is not allowed" in done["notices"][0]
    assert f"value='{params['seen_by']}'" in done["notices"][0]
    assert done["notices"][0] in yard("job", "show", "-n", name)


@pytest.mark.parametrize("version", CLIENTS)
def test_what_needs_the_server_waits_for_it(yard: Yard, write_job: Write, version: str) -> None:
    name = f"waits-{version[0]}"
    job = {"name": name, "command": "python away.py", "environment": environment(version)}
    yard("job", "create", "-f", write_job(job, away=AWAY))
    wait_until(lambda: yard.job(name)["status"] == "Running", 120, "the job runs")
    folder = yard.node_of(name) / "work"
    wait_until((folder / "ready").exists, 60, "the script is ready")
    yard.kill_server()
    (folder / "go").touch()
    time.sleep(3)
    yard("server", "start")
    done = yard.completed(name)
    experiment = mlflow_answer(yard, f"runs/get?run_id={name}")["run"]["info"]["experiment_id"]
    expression = f"tags.mlflow.parentRunId = '{name}'"
    results = mlflow_answer(yard, "runs/search", experiment_ids=[experiment], filter=expression)
    assert [run["info"]["run_name"] for run in results["runs"]] == ["while away"]
    assert done["notices"] == []
