"""Models that are served without a scoring script, on a real server: MLflow's and ONNX files."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import Yard, running_yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

# What the models' own conda.yaml says, so that all of it is one environment.
_CONDA = {
    "dependencies": [
        "python=3.11",
        "pip",
        {
            "pip": [
                "azureml-inference-server-http",
                "mlflow-skinny",
                "scikit-learn",
                "pandas",
                "onnx",
                "onnxruntime",
            ]
        },
    ]
}
_TRAIN = """
import json
import os
import sys

import mlflow
import numpy
import onnx
import onnxruntime
import pandas
from mlflow.models import infer_signature
from sklearn.linear_model import LinearRegression

conda = json.loads(os.environ["CONDA"])
sklearn_folder, pyfunc_folder, onnx_folder = sys.argv[1:]
chance = numpy.random.default_rng(0)
table = pandas.DataFrame(chance.normal(size=(50, 2)), columns=["width", "length"])
model = LinearRegression().fit(table, table["width"] * 3 + table["length"] / 7)
signature = infer_signature(table, model.predict(table))
mlflow.sklearn.save_model(
    model, sklearn_folder, conda_env=conda, signature=signature,
    serialization_format="cloudpickle",
)

class Scaled(mlflow.pyfunc.PythonModel):
    def predict(self, context, model_input, params=None):
        factor = (params or {}).get("factor", 10)
        return model_input[["width"]] * factor

signature = infer_signature(table, table[["width"]], params={"factor": 10})
mlflow.pyfunc.save_model(
    pyfunc_folder, python_model=Scaled(), conda_env=conda, signature=signature
)

weights = chance.normal(size=(2, 3)).astype("float32")
node = onnx.helper.make_node("MatMul", ["x", "weights"], ["y"])
value = onnx.helper.make_tensor_value_info
graph = onnx.helper.make_graph(
    [node], "main", [value("x", 1, ["batch", 2])], [value("y", 1, ["batch", 3])],
    [onnx.numpy_helper.from_array(weights, "weights")],
)
opset = [onnx.helper.make_opsetid("", 17)]
file = os.path.join(onnx_folder, "net.onnx")
onnx.save(
    onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), file,
    save_as_external_data=True, location="net.onnx.data", size_threshold=0,
)
rows = numpy.asarray([[1, 2], [3, -4]])
asked = pandas.DataFrame(rows, columns=["width", "length"]).astype(float)
(answer,) = onnxruntime.InferenceSession(file).run(None, {"x": rows.astype("float32")})
print("ANSWERS " + json.dumps({
    "sklearn": model.predict(asked).tolist(),
    "pyfunc": (asked[["width"]] * 10).to_dict("records"),
    "onnx": answer.tolist(),
}))
"""
_ROWS = [[1, 2], [3, -4]]
_TABLE: dict[str, Any] = {"columns": ["width", "length"], "index": [0, 1], "data": _ROWS}


@pytest.fixture(scope="module")
def yard() -> Iterator[Yard]:
    with running_yard("models") as yard:
        yield yard


@pytest.fixture(scope="module")
def answers(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each model answers in the job that made it; the three are registered."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "train.py").write_text(_TRAIN)
    outputs = {
        "mlflow": {"type": "mlflow_model", "name": "linear"},
        "pyfunc": {"type": "mlflow_model", "name": "scaled"},
        "onnx": {"type": "onnx_model", "name": "net"},
    }
    document = {
        "name": "maker",
        "command": "python train.py " + " ".join(f"${{{{outputs.{name}}}}}" for name in outputs),
        "code": "train.py",
        "environment": {"conda_file": _CONDA},
        "environment_variables": {"CONDA": json.dumps(_CONDA)},
        "outputs": outputs,
    }
    (folder / "job.yml").write_text(json.dumps(document))
    yard("job", "create", "-f", str(folder / "job.yml"), "--stream", timeout_s=600)
    yard.completed("maker")
    text = b"\n".join(yard.logs("maker").values()).decode()
    made: dict[str, Any] = json.loads(re.findall(r"^ANSWERS (.*)$", text, re.MULTILINE)[-1])
    return made


@pytest.fixture
def deployed(yard: Yard, request: pytest.FixtureRequest) -> Iterator[Deployed]:
    made = Deployed(yard)
    yield made
    for name in made.names:
        yard("online-endpoint", "delete", "-n", name, "--yes")


class Deployed:
    """Endpoints of one test, by `yard model deploy` or a deployment's file."""

    def __init__(self, yard: Yard) -> None:
        self.yard = yard
        self.names: list[str] = []

    def model(self, name: str) -> str:
        """The endpoint's name."""
        self.names.append(name)
        shown = json.loads(self.yard("model", "deploy", "-n", name, "-o", "json", timeout_s=600))
        assert shown["endpoint"] == name
        return name

    def file(self, endpoint: str, path: Path) -> str:
        self.names.append(endpoint)
        self.yard("online-endpoint", "create", "-n", endpoint)
        self.yard("online-deployment", "create", "-f", str(path), "--all-traffic")
        return endpoint

    def ask(self, endpoint: str, body: Any) -> tuple[int, Any]:
        address = self.yard.get(f"online-endpoints/{endpoint}")["scoring_uri"]
        key = self.yard.post(f"online-endpoints/{endpoint}/keys", {})["primaryKey"]
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


def test_an_mlflow_model_of_sklearn_answers_as_in_its_job(
    deployed: Deployed, answers: dict[str, Any]
) -> None:
    name = deployed.model("linear")
    expected = answers["sklearn"]
    assert deployed.ask(name, {"input_data": _TABLE}) == (200, expected)
    assert deployed.ask(name, {"dataframe_split": _TABLE}) == (200, {"predictions": expected})
    records = [dict(zip(_TABLE["columns"], row, strict=True)) for row in _ROWS]
    assert deployed.ask(name, {"dataframe_records": records}) == (200, {"predictions": expected})
    status, answer = deployed.ask(name, {"rows": _ROWS})
    assert status == 424 and "the request has none of `input_data`" in answer["message"]
    status, answer = deployed.ask(name, {"input_data": {"columns": ["width"], "data": [[1]]}})
    assert status == 424 and "length" in answer["message"]


def test_an_mlflow_model_of_python_answers_and_takes_parameters(
    deployed: Deployed, answers: dict[str, Any]
) -> None:
    name = deployed.model("scaled")
    assert deployed.ask(name, {"input_data": _TABLE}) == (200, answers["pyfunc"])
    body = {"input_data": _TABLE, "params": {"factor": 100}}
    assert deployed.ask(name, body) == (200, [{"width": 100.0}, {"width": 300.0}])


def test_an_onnx_file_answers_as_onnx_runtime_does_in_its_job(
    deployed: Deployed, answers: dict[str, Any]
) -> None:
    name = deployed.model("net")
    assert deployed.ask(name, {"data": _ROWS}) == (200, answers["onnx"])
    tensor_answer = deployed.ask(name, {"inputs": {"x": _ROWS}})
    assert tensor_answer == (200, {"outputs": {"y": answers["onnx"]}})
    status, answer = deployed.ask(name, {"data": [[1, 2, 3]]})
    assert status == 424 and "x" in answer["message"]
    status, answer = deployed.ask(name, {"inputs": {"z": _ROWS}})
    assert status == 424 and answer["message"] == "the model's inputs are ['x']"


def test_a_folder_with_an_onnx_file_is_deployed_by_a_file(
    yard: Yard, deployed: Deployed, answers: dict[str, Any], tmp_path: Path
) -> None:
    yard("model", "download", "-n", "net", "-p", str(tmp_path))
    (file,) = tmp_path.rglob("net.onnx")
    document = {
        "name": "blue",
        "endpoint_name": "inline",
        "model": {"path": str(file.parent)},
        "environment": {"conda_file": _CONDA},
    }
    (tmp_path / "blue.yml").write_text(json.dumps(document))
    name = deployed.file("inline", tmp_path / "blue.yml")
    assert deployed.ask(name, {"data": _ROWS}) == (200, answers["onnx"])
