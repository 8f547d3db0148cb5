"""Azure's clients inside jobs, and one job's metrics seen by every way there is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import quote

import client_venvs
import pytest
import yaml
from yard_under_test import Yard

import other_pythons
from other_pythons import VERSIONS

pytestmark = [pytest.mark.azure, pytest.mark.timeout(600)]

HERE = Path(__file__).resolve().parent
CLIENT = client_venvs.CLIENTS[0]


def printed_by(client: str, environ: dict[str, str], *arguments: str) -> Any:
    """What a script prints in a client's environment, read as JSON."""
    command = [str(client_venvs.python(client)), *arguments]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def job(yard: Yard, variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A job that logged by plain MLflow and by the plug-in."""
    assert variables["IDENTITY_ENDPOINT"]
    file = tmp_path_factory.mktemp("inside") / "job.yml"
    document = {
        "name": "inside",
        "command": f"{client_venvs.python(CLIENT)} -W ignore in_job.py",
        "code": str(HERE / "in_job"),
        "environment": "python",
    }
    file.write_text(yaml.safe_dump(document))
    yard("job", "create", "-f", str(file))
    yard.completed("inside")
    return "inside"


def test_a_script_has_its_jobs_permissions(yard: Yard, job: str) -> None:
    assert b"all is well" in yard.logs(job)["user_logs/std_log.txt"]
    assert yard.read(f"jobs/{job}/files/notes/seen.txt") == b"by the plug-in"


def test_metrics_are_the_same_by_every_way(yard: Yard, job: str, variables: dict[str, str]) -> None:
    server = json.loads((yard.home / "server.json").read_text())
    token = (yard.home / "token").read_text().strip()
    script = str(HERE / "metrics_seen.py")
    plain = {"MLFLOW_TRACKING_TOKEN": token, "PATH": variables["PATH"]}
    by_plain = printed_by(CLIENT, plain, script, f"{server['url']}/mlflow/default", job)
    scope = "/subscriptions/local/resourceGroups/torchyard/providers"
    scope += "/Microsoft.MachineLearningServices/workspaces/default"
    host = variables["ARM_CLOUD_METADATA_URL"].split("/")[2]
    by_plugin = printed_by(CLIENT, variables, script, f"azureml://{host}/mlflow/v1.0{scope}", job)
    assert by_plain == {"plain": [[1, 1.5]], "plugin": [[0, 0.0], [1, 0.5], [2, 1.0]]}
    assert by_plugin == by_plain
    shown = json.loads(yard("job", "show", "-n", job, "-o", "json"))
    assert shown["metrics"] == {key: points[-1][1] for key, points in by_plain.items()}


BOTH = """
import mlflow
from azureml.core import Run

run = Run.get_context()


def by_run_log(key, step, value):
    run.log(key, value, step=step)
    run.flush()


def by_mlflow(key, step, value):
    mlflow.log_metric(key, value, step=step)


for key, clients in (
    ("mlflow first", (by_mlflow, by_run_log)),
    ("run log first", (by_run_log, by_mlflow)),
):
    for client in clients:
        for step in range(3):
            client(key, step, step / 2)
for step in range(3):
    by_run_log("in turn", None, step / 2)
    by_mlflow("in turn", step, step / 2)
    by_run_log("alone", None, step / 2)
run.flush()
assert run.get_metrics()["alone"] == [0, 0.5, 1], run.get_metrics()
assert run.get_metrics()["in turn (run.log)"] == [0, 0.5, 1], run.get_metrics()
"""


def test_both_clients_log_one_key(yard: Yard, variables: dict[str, str], tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "log.py").write_text(BOTH)
    # The last setuptools that has pkg_resources.
    pip = ["azureml-core==1.61.0.post4", "azureml-mlflow", "mlflow-skinny<3", "setuptools<81"]
    document = {
        "name": "both",
        "command": "python -W ignore log.py",
        "code": str(code),
        "environment": {"conda_file": {"dependencies": ["python=3.11", "pip", {"pip": pip}]}},
    }
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump(document))
    yard("job", "create", "-f", str(file))
    job = yard.completed("both")
    shared = ["in turn", "mlflow first", "run log first"]
    keys = ["alone", *sorted([*shared, *(f"{key} (run.log)" for key in shared)])]
    assert sorted(job["metrics"]) == keys
    for key in keys:
        points = yard.get(f"jobs/both/metrics/history?key={quote(key)}")["points"]
        assert [(step, value) for step, _, value in points] == [(0, 0), (1, 0.5), (2, 1)], key
    assert len([notice for notice in job["notices"] if "run.log" in notice]) == 1


SCRIPT = """
import pathlib, mlflow
folder = pathlib.Path("files")
folder.mkdir()
(folder / "weights.txt").write_text("1 2 3")
print("logs to", mlflow.get_tracking_uri())
mlflow.log_metric("loss", 0.5, step=1)
mlflow.log_artifacts("files", "./model")
"""


@pytest.mark.parametrize(
    ("package", "scheme"), [("azureml-mlflow", "azureml://"), ("mlflow-skinny<3", "http://")]
)
def test_a_path_that_begins_with_a_dot_is_a_folder(
    yard: Yard, variables: dict[str, str], tmp_path: Path, package: str, scheme: str
) -> None:
    name = "dot-" + package.partition("<")[0]
    code = tmp_path / "code"
    code.mkdir()
    (code / "log.py").write_text(SCRIPT)
    pip = ["mlflow-skinny<3", package]
    conda = {"dependencies": ["python=3.11", "pip", {"pip": sorted(set(pip))}]}
    document = {
        "name": name,
        "command": "python log.py",
        "code": str(code),
        "environment": {"conda_file": conda},
    }
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump(document))
    yard("job", "create", "-f", str(file))
    yard.completed(name)
    printed = b"".join(yard.logs(name).values())
    assert f"logs to {scheme}".encode() in printed
    assert b"View run" not in printed, "the job's private port is nobody's address"
    assert yard.read(f"jobs/{name}/files/model/weights.txt") == b"1 2 3"
    shown = json.loads(yard("job", "show", "-n", name, "-o", "json"))
    assert shown["metrics"] == {"loss": 0.5}


EARLY = {
    # As old as Python 3.6 may bring it.
    "1.20.0": ("3.6", "mlflow-skinny"),
    # Without a name in its requests, by azureml-core's run history.
    "1.34.0": ("3.7", "mlflow==1.23.1"),
    "1.41.0": ("3.8", "mlflow==1.26.1"),
    # As many conda files have it, with whatever MLflow is there.
    "1.44.0": ("3.9", "mlflow-skinny"),
}


@pytest.mark.parametrize(
    ("python", "version", "mlflow"),
    [
        *((version, "", "mlflow-skinny") for version in VERSIONS if version != "3.14"),
        *((python, version, mlflow) for version, (python, mlflow) in EARLY.items()),
    ],
)
def test_every_version_of_the_plugin_logs(
    yard: Yard, variables: dict[str, str], tmp_path: Path, python: str, version: str, mlflow: str
) -> None:
    """The newest that each Python gets: with MLflow 1.23 for 3.6, with MLflow 3 for 3.13; and early
    ones, with what was there in their time.
    """
    other_pythons.python(python)
    name = f"plugin-{python}-{version}".replace(".", "")
    plugin = f"azureml-mlflow=={version}" if version else "azureml-mlflow"
    pip = [plugin, mlflow, "pandas", "scipy"]
    document = {
        "name": name,
        "command": f"python -W ignore log.py {name}",
        "code": str(HERE / "in_job_plugin"),
        "environment": {"conda_file": {"dependencies": [f"python={python}", "pip", {"pip": pip}]}},
    }
    file = tmp_path / "job.yml"
    file.write_text(yaml.safe_dump(document))
    yard("job", "create", "-f", str(file))
    yard.completed(name)
    printed = yard.logs(name)["user_logs/std_log.txt"].decode()
    lines = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    assert lines["logs"].startswith("to azureml://")
    assert lines["read"] == "1 2 3"
    assert lines["stored"] == "{'loss': 0.5} {'rate': '0.1'}"
    assert (lines["of"], lines["registered"]) == ("the run [3]", "[4]")
    assert yard.read(f"jobs/{name}/files/weights/weights.txt") == b"1 2 3"
    shown = json.loads(yard("job", "show", "-n", name, "-o", "json"))
    assert (shown["metrics"], shown["params"]) == ({"loss": 0.5}, {"rate": "0.1"})
    assert shown["tags"]["team"] == "vision"
