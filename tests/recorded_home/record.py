"""Make the recorded home again: `make record-home`, until the first release is tagged.

A real server runs jobs of every kind, is killed while some run, and is written down as text.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from end_to_end.yard_under_test import Yard, remove, wait_until
from postgres_server import PostgresServer
from recorded_home import answers, home_as_text
from torchyard.base.db import Database

FOLDER = Path(__file__).parent / "0.1.0"
_HERE = "/v1/workspaces/default"
_ARM = (
    "/subscriptions/local/resourceGroups/torchyard/providers"
    "/Microsoft.MachineLearningServices/workspaces/default"
)
_SECRET = "planted-secret-of-{}"
_TRAIN = """
import json, os, sys, time, urllib.request
def log(kind, **body):
    url = os.environ["MLFLOW_TRACKING_URI"] + f"/api/2.0/mlflow/runs/log-{kind}"
    body["run_id"] = os.environ["MLFLOW_RUN_ID"]
    token = os.environ["MLFLOW_TRACKING_TOKEN"]
    head = {"Content-Type": "application/json", "Authorization": "Bearer " + token}
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)).read()
rate, folder = float(sys.argv[1]), sys.argv[2]
if os.environ.get("RANK", "0") == "0":
    log("parameter", key="rate", value=str(rate))
    points = [{"key": "loss", "value": rate / (n + 1), "step": n, "timestamp": 1796000000000 + n}
              for n in range(700)]
    points += [{"key": "odd", "value": value, "step": n, "timestamp": 1796000000000}
               for n, value in enumerate(("NaN", "Infinity", "-Infinity", 1e300))]
    log("batch", metrics=points, tags=[{"key": "team", "value": "vision ☃"}])
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/weights.bin", "wb") as file:
        file.write(bytes(range(256)))
print("trained with", rate, "ä")
"""
_SCORE = """
import json
def init(): pass
def run(data): return [sum(row) for row in json.loads(data)["data"]]
"""
_BATCH = """
def init(): pass
def run(mini_batch): return [f"{file.rpartition('/')[2]} scored" for file in mini_batch]
"""


class Recorder:
    """A server, and files to submit in a folder of their own."""

    def __init__(self, yard: Yard, folder: Path) -> None:
        self.yard, self.folder = yard, folder

    def ask(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        request = urllib.request.Request(
            self.yard.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": f"Bearer {token or self.yard.token}",
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{method} {path}: {error.code} {error.read().decode()}") from error

    def mlflow(self, path: str, **body: Any) -> Any:
        return self.ask("POST", f"/mlflow/default/api/2.0/mlflow/{path}", body)

    def create(self, noun: str, document: dict[str, Any]) -> None:
        file = self.folder / "document.yml"
        file.write_text(json.dumps(document))
        self.yard(noun, "create", "-f", str(file))

    def run(self, name: str, expect: str = "Completed", **document: Any) -> None:
        self.create("job", {"name": name, "environment": "python", **document})
        job = self.yard.wait(name)
        assert job["status"] == expect, job


def _train(rate: float = 0.1, **more: Any) -> dict[str, Any]:
    return {
        "command": f"python train.py {rate} ${{{{outputs.model}}}}",
        "code": "code",
        "outputs": {"model": {"type": "uri_folder"}},
        **more,
    }


def _people_and_places(made: Recorder) -> None:
    made.ask("POST", "/v1/workspaces", {"name": "research", "description": "of ann"})
    made.ask("POST", "/v1/users", {"name": "ann", "role": "data-scientist", "workspace": "default"})
    made.ask("POST", "/v1/users", {"name": "carl", "role": "contributor", "workspace": "default"})
    token = made.ask("POST", "/v1/users/ann/tokens", {"name": "laptop"})["token"]
    made.ask("PUT", f"{_HERE}/quotas", {"limits": {"nodes": 64}})
    request = {"name": "nodes", "most": 80, "reason": "a larger sweep"}
    made.ask("POST", f"{_HERE}/quota-requests", request, token)
    secret = _SECRET.format("a-datastore")
    credentials = {"access_key_id": "me", "secret_access_key": secret}
    document = {"type": "s3", "bucket": "far-away", "credentials": credentials}
    made.ask("PUT", f"{_HERE}/datastores/far", document)
    connection = {
        "category": "Git",
        "target": "https://git.example.org",
        "authType": "PAT",
        "credentials": {"pat": _SECRET.format("a-connection")},
    }
    made.ask("PUT", f"{_ARM}/connections/git?api-version=2024-04-01", {"properties": connection})
    webhook = {"CHAT_URL": f"https://hooks.example.org/{_SECRET.format('a-webhook')}"}
    made.ask("PATCH", _HERE, {"notify": [{"url_env": "CHAT_URL"}], "notify_secrets": webhook})
    instance = {"type": "computeinstance", "torchyard": {"environment": "python"}}
    made.ask("PUT", f"{_HERE}/instances/anns-lab", instance)
    made.ask("POST", f"{_HERE}/instances/anns-lab/stop", {})


def _assets(made: Recorder) -> None:
    made.create("data", {"name": "digits", "path": "digits", "type": "uri_folder"})
    made.create("data", {"name": "digits", "path": "digits/a.csv", "type": "uri_file"})
    made.create("data", {"name": "unused", "path": "digits/a.csv", "type": "uri_file"})
    made.yard("data", "delete", "-n", "unused", "-v", "1", "--yes")
    step = {"name": "step", "type": "command", "command": "true", "environment": "python"}
    secret = {"environment_variables": {"HF_TOKEN": _SECRET.format("a-component")}}
    made.create("component", {**step, **secret})
    made.create("environment", {"name": "tools", "pip_requirements": ["six==1.16.0"]})
    made.yard("environment", "build", "azureml:tools:1")
    advisory = {
        "id": "CVE-2026-1",
        "modified": "2026-01-01T00:00:00Z",
        "published": "2026-01-01T00:00:00Z",
        "affected": [{"package": {"ecosystem": "PyPI", "name": "six"}, "versions": ["1.16.0"]}],
    }
    advisories = {"set": "0a" * 8, "entries": [advisory], "last": True}
    made.ask("PUT", f"{_HERE}/advisories", advisories)
    made.ask("PUT", f"{_HERE}/release-schedules/tools", {"every_s": 14 * 86400})


def _ended_jobs(made: Recorder) -> None:
    ranks = {
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "resources": {"instance_count": 2},
    }
    data = {"digits": {"type": "uri_folder", "path": "azureml:digits:1"}}
    about: dict[str, Any] = {"tags": {"kept": "yes"}, "description": "ä ☃"}
    about["outputs"] = {"model": {"type": "uri_folder", "name": "trained"}}
    made.run("trained", inputs=data, experiment_name="ranks", **{**_train(0.5), **ranks, **about})
    made.run("failed", "Failed", command="python -c 'raise ValueError(3)'")
    policy = {"retry": {"max_attempts": 2, "backoff_s": 0}}
    made.run("tried", "Failed", command="exit 3", torchyard=policy)
    secret = {"HF_TOKEN": _SECRET.format("a-job")}
    made.run("in-tools", **_train(0.3, environment="azureml:tools:1", environment_variables=secret))
    made.create("job", {"name": "stopped", "command": "sleep 600", "environment": "python"})
    made.yard("job", "cancel", "-n", "stopped")
    made.yard.wait("stopped")
    made.run("hidden", command="true")
    made.yard("job", "archive", "-n", "hidden")
    made.run("removed", command="true")
    made.yard("job", "delete", "-n", "removed", "--yes")
    trial = {"command": "python train.py ${{search_space.rate}} outputs", "code": "code"}
    sweep = {
        "type": "sweep",
        "trial": {**trial, "environment": "python"},
        "search_space": {"rate": {"type": "uniform", "min_value": 0.01, "max_value": 0.1}},
        "sampling_algorithm": {"type": "random", "seed": 5},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 3, "max_concurrent_trials": 3},
    }
    made.create("job", {"name": "swept", **sweep})
    made.yard.completed("swept")
    steps = {
        "type": "pipeline",
        "jobs": {
            "train": {**_train(0.2), "environment": "python"},
            "count": {
                "command": "ls ${{inputs.model}} > ${{outputs.list}}/names",
                "environment": "python",
                "inputs": {"model": "${{parent.jobs.train.outputs.model}}"},
                "outputs": {"list": {}},
            },
        },
    }
    for name in ("steps", "steps-again"):
        made.create("job", {"name": name, **steps})
        made.yard.completed(name)


def _models(made: Recorder) -> None:
    path = "azureml://jobs/trained/outputs/model"
    made.create("model", {"name": "weights", "type": "custom_model", "path": path})
    experiment = made.mlflow("experiments/create", name="by-mlflow")["experiment_id"]
    run = made.mlflow("runs/create", experiment_id=experiment, start_time=1796000000000)
    run_id = run["run"]["info"]["run_id"]
    made.mlflow("runs/log-parameter", run_id=run_id, key="depth", value="3")
    for step in range(3):
        point = {"key": "accuracy", "value": 0.9 + step / 100, "step": step}
        made.mlflow("runs/log-metric", run_id=run_id, timestamp=1796000000000, **point)
    made.mlflow("runs/update", run_id=run_id, status="FINISHED", end_time=1796000001000)
    model = made.mlflow("logged-models", experiment_id=experiment, name="net", source_run_id=run_id)
    model_id = model["model"]["info"]["model_id"]
    made.mlflow(f"logged-models/{model_id}/params", params=[{"key": "n", "value": "7"}])
    made.mlflow("registered-models/create", name="registered", description="by MLflow")


def _endpoints(made: Recorder) -> None:
    made.create("online-endpoint", {"name": "sums", "auth_mode": "key"})
    blue = {
        "name": "blue",
        "endpoint_name": "sums",
        "model": "azureml:weights:1",
        "code_configuration": {"code": "scoring", "scoring_script": "score.py"},
        "environment": {"conda_file": {"dependencies": ["python=3.11", "pip"]}},
        "environment_variables": {"HF_TOKEN": _SECRET.format("a-deployment")},
    }
    made.create("online-deployment", blue)
    made.yard("online-endpoint", "update", "-n", "sums", "--traffic", "blue=100")
    made.create("batch-endpoint", {"name": "many"})
    nightly = {
        "name": "nightly",
        "endpoint_name": "many",
        "model": "azureml:weights:1",
        "code_configuration": {"code": "scoring", "scoring_script": "batch.py"},
        "environment": "python",
        "compute": "local",
        "mini_batch_size": 1,
    }
    made.create("batch-deployment", nightly)
    data = ["--input", "azureml:digits:1", "--job-name", "scored"]
    made.yard("batch-endpoint", "invoke", "-n", "many", *data)
    made.yard.completed("scored")


def _live_jobs(made: Recorder) -> None:
    made.create("compute", {"name": "one", "type": "amlcompute", "max_instances": 1})
    sleeping = {"command": "echo begun; sleep 3600", "environment": "python", "compute": "one"}
    notify = {"torchyard": {"notify": [{"url": "https://hooks.example.org/x"}]}}
    made.create("job", {"name": "running", **sleeping, **notify})
    wait_until(lambda: made.yard.job("running")["status"] == "Running", 60, "a job runs")
    wait_until(lambda: b"begun" in b"".join(made.yard.logs("running").values()), 60, "it prints")
    waits = {"command": "echo waited", "environment": "python", "compute": "one"}
    made.create("job", {"name": "waiting", **waits})


def _write_code(folder: Path) -> None:
    for name, text in {
        "code/train.py": _TRAIN,
        "scoring/score.py": _SCORE,
        "scoring/batch.py": _BATCH,
        "digits/a.csv": "1,2\n",
        "digits/b.csv": "3,4\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def _fill(yard: Yard, folder: Path) -> None:
    _write_code(folder)
    made = Recorder(yard, folder)
    for part in (_people_and_places, _assets, _ended_jobs, _models, _endpoints, _live_jobs):
        print(f"recording {part.__name__.strip('_').replace('_', ' ')} …", file=sys.stderr)
        part(made)


def _kill_all(yard: Yard) -> None:
    """As a machine that loses its power."""
    while processes := yard.processes():
        for process in processes:
            with contextlib.suppress(OSError):
                os.kill(int(process.split()[0]), signal.SIGKILL)


def _empty_postgres(server: PostgresServer) -> str:
    url = server.new_database()
    db = Database(url)
    db.upgrade()
    db.close()
    return url


def main() -> None:
    home, folder = Path(tempfile.mkdtemp(prefix="torchyard-rec-")), Path(tempfile.mkdtemp())
    server = PostgresServer()
    try:
        yard = Yard(home)
        yard("server", "start")
        try:
            _fill(yard, folder)
        finally:
            _kill_all(yard)
        shutil.rmtree(FOLDER, ignore_errors=True)
        for key in home.parent.glob(f"{home.name}-*.key"):
            shutil.move(key, home)  # where a home that went elsewhere looks for it
        home_as_text.save(home, _empty_postgres(server), FOLDER)
        answers.save(FOLDER)
    finally:
        server.close()
        remove(home)
        remove(folder)


if __name__ == "__main__":
    main()
