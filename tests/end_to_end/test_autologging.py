"""MLflow's autologging and `log_model` inside a job: what MLflow itself would have recorded.

Each script runs by hand, into an SQLite store of MLflow's own, and as a job; then mlflow's client
reads both.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.shared_torch import LOCKS, SharedTorch
from end_to_end.yard_under_test import REPOSITORY, Yard
from public_examples import recorded_runs

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(480)]

SCRIPTS = REPOSITORY / "tests/end_to_end/autologging"
# One thread adds up in one order.
STEADY = {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true"}
FEATURES = "5x64"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def environment(yard: Yard, shared_torch: SharedTorch) -> dict[str, str]:
    return shared_torch.lend(yard.home, LOCKS / "autologging.txt")


@pytest.fixture(scope="module")
def python(
    yard: Yard, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The interpreter of the jobs' environment, to run the same scripts by hand."""
    file = tmp_path_factory.mktemp("probe") / "job.yml"
    command = 'python -c "import mlflow; print(mlflow.__file__)"'
    file.write_text(json.dumps({"command": command, "environment": environment}))
    printed = yard("job", "create", "-f", str(file), "--stream", timeout_s=420)
    paths = [line for line in printed.splitlines() if line.endswith("mlflow/__init__.py")]
    assert paths, printed
    return Path(paths[-1]).parents[4] / "bin" / "python"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program with nothing of MLflow's or ours around it; what still runs is ended."""
    started: list[subprocess.Popen[str]] = []

    def run(*command: str | Path, **variables: str) -> subprocess.Popen[str]:
        environ = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MLFLOW_", "TORCHYARD_"))
        }
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=tmp_path,
            env={**environ, **STEADY, **variables, "GIT_PYTHON_REFRESH": "quiet"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def output_of(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    return out


@pytest.mark.parametrize("script", ["sklearn_autolog", "lightning_autolog", "plain_torch"])
def test_a_job_records_what_mlflow_would(
    yard: Yard, start: Start, python: Path, environment: dict[str, str], tmp_path: Path, script: str
) -> None:
    theirs = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/by-hand.db"}
    by_hand = start(python, SCRIPTS / f"{script}.py", MLFLOW_EXPERIMENT_NAME=script, **theirs)
    job: dict[str, Any] = {
        "name": script.replace("_", "-"),
        "experiment_name": script,
        "command": f"python {script}.py",
        "code": str(SCRIPTS),
        "environment": environment,
        "environment_variables": STEADY,
    }
    (tmp_path / "job.yml").write_text(json.dumps(job))
    yard("job", "create", "-f", str(tmp_path / "job.yml"))
    yard.completed(job["name"], timeout_s=420)
    output_of(by_hand)

    server = json.loads((yard.home / "server.json").read_text())
    server_store = {
        "MLFLOW_TRACKING_URI": server["url"],
        "MLFLOW_TRACKING_TOKEN": (yard.home / "token").read_text().strip(),
    }
    reader = (python, recorded_runs.__file__, script, FEATURES)
    readings = [start(*reader, **options) for options in (server_store, theirs)]
    recorded, expected = (json.loads(output_of(reading)) for reading in readings)
    counts = recorded_runs.counts(expected)
    assert counts["params"] and counts["points"] and counts["files"] and counts["models"]
    assert any(run["logged_models"] for run in expected)
    different = recorded_runs.differences(recorded, expected)
    assert not different, "\n".join(different)
