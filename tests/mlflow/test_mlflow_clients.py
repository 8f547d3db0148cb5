"""The real mlflow, unmodified, against the routes."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
import uvicorn
from fastapi import Body

from end_to_end.shared_torch import LOCKS, kept_or_temporary
from mlflow.mlflow_server import Server, add_job
from torchyard.jobs import actions
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import runs
from torchyard.shared.connection import Connection
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.relay.relay import Relay

pytestmark = pytest.mark.end_to_end

SCRIPT = """
import math, mlflow
mlflow.log_metric("loss", 0.5)
mlflow.log_metrics({"a@b %/x-y": math.nan, "far": math.inf}, step=3)
mlflow.log_params({"lr": 0.1, "é": "ü"})
mlflow.set_tag("t", "v")
mlflow.log_text("abc", "note/n ü.txt")
client = mlflow.MlflowClient()
run_id = mlflow.active_run().info.run_id
client.log_batch(run_id, [mlflow.entities.Metric("b", i, 1000 + i, i) for i in range(1000)])
assert len(client.get_metric_history(run_id, "b")) == 1000
assert [f.path for f in client.list_artifacts(run_id, "note")] == ["note/n ü.txt"]
assert mlflow.artifacts.load_text(f"runs:/{run_id}/note/n ü.txt") == "abc"
mlflow.end_run()
assert client.get_run(run_id).info.status == "RUNNING"
with mlflow.start_run(run_name="child") as child:
    mlflow.log_metric("m", 1)
found = client.get_run(child.info.run_id)
assert found.info.status == "FINISHED"
assert found.data.tags["mlflow.parentRunId"] == run_id
mlflow.set_experiment("second")
with mlflow.start_run():
    mlflow.log_metric("acc", 0.7)
assert len(mlflow.search_runs(filter_string="metrics.acc > 0.5", output_format="list")) == 1
try:
    client.get_run("nobody")
except mlflow.exceptions.MlflowException as error:
    assert error.error_code == "RESOURCE_DOES_NOT_EXIST"
"""


@pytest.fixture(scope="module", params=["mlflow-skinny-2.22.5", "mlflow-skinny-3.17.2"])
def client_python(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The Python of an environment that has the real client, built as a job's would be."""
    with kept_or_temporary() as environments:
        yield environments.build(LOCKS / f"{request.param}.txt") / "bin" / "python"


@pytest.fixture
def url(server: Server) -> Iterator[str]:
    running = uvicorn.Server(uvicorn.Config(server.app, port=0, log_level="warning"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    running.should_exit = True
    thread.join(60)


@contextmanager
def relay_to(server: Server, url: str, folder: Path, job: Job) -> Iterator[str]:
    """A job's relay; its history goes where the worker's routes would take it."""

    def take(body: Annotated[dict[str, Any], Body()]) -> dict[str, Any]:
        received = server.services.history.receive(
            lambda run: actions.get(server.services, "default", run).id,
            "att",
            body["node"],
            body["seq"],
            body["records"],
        )
        return {"next": received.next, "rejected": received.rejected}

    server.app.post("/v1/attempts/att/history")(take)
    plan = LaunchPlan(
        attempt_id="att",
        attempt=1,
        job=job.name,
        workspace="default",
        experiment="Default",
        command="",
        server_url=url,
        report_token="yard_a_any",
        run_token="yard_r_job",
        scratch="",
    )
    relay = Relay(
        Connection.of_attempt(ServerAddress(url), plan.report_token, plan.attempt_id),
        plan,
        0,
        folder,
    )
    yield relay.start()
    assert relay.finish(20.0)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("route", ["default workspace", "by name", "relay"])
def test_an_unmodified_script_logs_to_its_own_job(
    server: Server, url: str, route: str, client_python: Path, tmp_path: Path
) -> None:
    experiment = runs.create_experiment(server.services, "default", "Default", {})
    job = add_job(server, "default", "lucky_job", experiment.id)
    with ExitStack() as stack:
        address = url if route == "default workspace" else url + "/mlflow/default"
        if route == "relay":
            address = stack.enter_context(relay_to(server, url, tmp_path, job))
        variables = {
            "MLFLOW_TRACKING_URI": address,
            "MLFLOW_TRACKING_TOKEN": "yard_r_job",
            "MLFLOW_RUN_ID": job.name,
            "HOME": str(tmp_path),
        }
        process = subprocess.run(
            [client_python, "-c", SCRIPT],
            env={
                "PATH": os.environ["PATH"],
                "TMPDIR": tempfile.gettempdir(),
                **variables,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert process.returncode == 0, process.stderr

    assert server.services.history.keys(job.id) == ["a@b %/x-y", "b", "far", "loss"]
    assert server.services.history.params(job.id) == {"lr": "0.1", "é": "ü"}
    assert actions.get(server.services, "default", job.name).tags["t"] == "v"
