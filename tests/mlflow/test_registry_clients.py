"""The real mlflow with a real model against a real server: log, register, load, by every name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from end_to_end.shared_torch import LOCKS, kept_or_temporary

# Two environments are built, each of some hundred megabytes.
pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

SCRIPT = """
import os, sys
import mlflow, numpy
from mlflow import MlflowClient
from sklearn.linear_model import LinearRegression

x = numpy.arange(10.0).reshape(-1, 1)
y = 3 * x[:, 0] + 1
model = LinearRegression().fit(x, y)
name, client = "lin reg é", MlflowClient()
third = mlflow.__version__.startswith("3")
place = {"name": "model"} if third else {"artifact_path": "model"}
with mlflow.start_run() as run:
    # MLflow 3.17 would ask for a package of its own to write the model.
    place["serialization_format"] = "cloudpickle"
    logged = mlflow.sklearn.log_model(
        model, registered_model_name=name, pip_requirements=["scikit-learn"], **place
    )
    if third:
        mlflow.log_metric("acc", 0.9, model_id=logged.model_id)
run_id = run.info.run_id
made = mlflow.register_model(f"runs:/{run_id}/model", name)
assert (str(made.version), made.status, made.run_id) == ("2", "READY", run_id)
client.set_registered_model_alias(name, "champion", made.version)
copy = client.copy_model_version(f"models:/{name}@champion", "copy")
for uri in (
    logged.model_uri,
    f"runs:/{run_id}/model",
    f"models:/{name}/1",
    f"models:/{name}@champion",
    f"models:/{name}/latest",
    "models:/copy/1",
):
    assert numpy.allclose(mlflow.pyfunc.load_model(uri).predict(x), y), uri
assert "model/MLmodel" in [one.path for one in client.list_artifacts(run_id, "model")]
assert client.get_registered_model(name).aliases == {"champion": str(made.version)}
assert len(client.search_model_versions(f"run_id = '{run_id}'")) == 3
if third:
    assert [one.model_id for one in client.get_run(run_id).outputs.model_outputs] == [
        logged.model_id
    ]
    found = client.search_logged_models(["0"], filter_string="metrics.acc > 0.8")
    assert [one.model_id for one in found] == [logged.model_id]
client.delete_model_version(name, "1")
print(run_id)
"""
LOAD = """
import mlflow, numpy, sys
x = numpy.arange(10.0).reshape(-1, 1)
assert numpy.allclose(mlflow.sklearn.load_model(sys.argv[1]).predict(x), 3 * x[:, 0] + 1)
"""


@pytest.fixture(scope="module", params=["mlflow-models-2.22.5", "mlflow-models-3.17.2"])
def client_python(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The Python of an environment that has the real client, built as a job's would be."""
    with kept_or_temporary() as environments:
        yield environments.build(LOCKS / f"{request.param}.txt") / "bin" / "python"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address and the token of a server on a fresh home."""
    home = tmp_path / "home"
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "torchyard.server", "--home", str(home), "--port", "0",
         "--ready-fd", str(writing)],
        pass_fds=[writing],
    )  # fmt: skip
    os.close(writing)
    try:
        with os.fdopen(reading) as ready:
            url = ready.readline().strip()
        yield url, (home / "token").read_text().strip()
    finally:
        process.terminate()
        process.wait(60)


def test_a_model_is_logged_registered_and_loaded(
    served: tuple[str, str], client_python: Path, tmp_path: Path
) -> None:
    url, token = served

    def run(script: str, *arguments: str) -> str:
        process = subprocess.run(
            [client_python, "-W", "ignore", "-c", script, *arguments],
            env={
                "PATH": os.environ["PATH"],
                "TMPDIR": tempfile.gettempdir(),
                "HOME": str(tmp_path),
                "MLFLOW_TRACKING_URI": url,
                "MLFLOW_TRACKING_TOKEN": token,
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout.splitlines()[-1] if process.stdout.strip() else ""

    def ask(path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{url}/v1/workspaces/default/{path}", content, headers)) as response:
            return json.load(response)

    run_id = run(SCRIPT)
    models = {item["name"]: item for item in ask("models")["value"]}
    assert {
        name: (item["version"], item["type"], item["job"]) for name, item in models.items()
    } == {
        "copy": (1, "mlflow_model", run_id),
        "lin reg é": (2, "mlflow_model", run_id),
    }
    assert "MLmodel" in [item["path"] for item in models["copy"]["files"]]
    ask("models", {"name": "ours", "type": "mlflow_model", "path": f"runs:/{run_id}/model"})
    run(LOAD, "models:/ours/latest")
