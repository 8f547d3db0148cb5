"""The job that scores an input: which model, its document, its program, its answers."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.client.onnx import score_program, scoring
from torchyard.client.onnx.inputs import ScoreRequest

MODEL: dict[str, Any] = {
    "name": "net-onnx",
    "version": 2,
    "created_at": "2026-11-02",
    "files": [{"path": "model.onnx"}, {"path": "model.onnx.data"}],
    "properties": {"onnx.source": "net:3"},
    "signature": {
        "format": "onnx",
        "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 2]}],
        "outputs": [],
    },
}


def test_the_job_has_the_model_the_input_and_the_program(tmp_path: Path) -> None:
    request = ScoreRequest("input.json", b'{"data": [[1, 2]]}')
    with scoring.job_document(MODEL, request, "vision:1", "cpu") as document:
        code = Path(document["code"])
        assert (code / "input.json").read_bytes() == request.content
        for name in ("score_program.py", "score_file.py"):
            ast.parse((code / name).read_text(), feature_version=(3, 8))
    assert not code.exists()
    assert document["command"] == 'python score_program.py "${{inputs.model}}" input.json'
    assert document["inputs"]["model"]["path"] == "azureml:net-onnx:2"
    assert (document["environment"], document["compute"]) == ("vision:1", "cpu")


def test_a_model_without_an_onnx_file_is_scored_by_its_newest_export() -> None:
    net = {"name": "net", "version": 3, "files": [{"path": "net.pt"}]}
    older = {**MODEL, "version": 1, "created_at": "2026-11-01"}
    another = {**MODEL, "created_at": "2026-11-03", "properties": {"onnx.source": "net:2"}}
    assert not scoring.is_onnx(net)
    assert scoring.newest_export(net, [older, MODEL, another, net]) == MODEL
    with pytest.raises(InvalidInput, match="no ONNX model was exported from it") as caught:
        scoring.newest_export(net, [another, net])
    assert "yard model export-onnx net:3" in caught.value.hint


def test_a_model_of_several_onnx_files_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"several ONNX files: a\.onnx, b\.ONNX"):
        scoring.is_onnx({**MODEL, "files": [{"path": "a.onnx"}, {"path": "b.ONNX"}]})


def test_what_a_model_takes_is_known_of_onnx_alone() -> None:
    (tensor,) = scoring.tensors_of(MODEL)
    assert str(tensor) == "`x`: float32 of shape [batch, 2]"
    assert scoring.tensors_of({**MODEL, "signature": None}) == []
    assert scoring.tensors_of({"signature": {**MODEL["signature"], "format": "mlflow"}}) == []


def test_an_answer_an_error_and_a_crash_are_told_apart() -> None:
    def reading(body: Any) -> Any:
        def read_file(job: str, path: str) -> bytes:
            assert (job, path) == ("scorer", "outputs/answers.json")
            if body is None:
                raise NotFound("no such file")
            return json.dumps(body).encode()

        return read_file

    body = {"outputs": {"y": [1.5]}, "shapes": {"y": [1]}, "dtypes": {"y": "float32"},
            "not_finite": {}}  # fmt: skip
    answer = scoring.answer_of(reading(body), "scorer", 0, "net-onnx:2")
    assert answer is not None
    assert (answer.outputs, answer.model, answer.job) == ({"y": [1.5]}, "net-onnx:2", "scorer")
    error = {"error": {"message": "does not fit", "hint": "the model takes x"}}
    with pytest.raises(InvalidInput, match="does not fit"):
        scoring.answer_of(reading(error), "scorer", 2, "net-onnx:2")
    assert scoring.answer_of(reading(None), "scorer", 2, "net-onnx:2") is None
    assert scoring.answer_of(reading(body), "scorer", -9, "net-onnx:2") is None
    assert scoring.answer_of(reading(body), "scorer", None, "net-onnx:2") is None


class FakeModel:
    """Stands for the ONNX Runtime's session that score_file.py opens."""

    def __init__(self, path: str) -> None:
        if path == "broken.onnx":
            raise RuntimeError("Protobuf parsing failed.")
        entry = SimpleNamespace(name="x", shape=["batch", 2])
        self.types = {"x": "float32"}
        self.session = SimpleNamespace(
            get_inputs=lambda: [entry],
            get_providers=lambda: ["AzureExecutionProvider", "CPUExecutionProvider"],
        )

    def outputs_of(self, body: Any) -> dict[str, Any]:
        if "data" not in body:
            raise ValueError("the model's inputs are ['x']")
        return {"y": [1.0, float("nan")], "label": body["data"]}


@pytest.fixture
def in_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The job's working folder, with what its environment has replaced by fakes."""
    monkeypatch.chdir(tmp_path)
    score_file = SimpleNamespace(OnnxModel=FakeModel, as_list=lambda value: value)
    monkeypatch.setitem(sys.modules, "score_file", score_file)
    runtime = SimpleNamespace(__version__="1.31.1")
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    return tmp_path


def test_the_program_writes_the_outputs_by_name(
    in_job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_job / "input.json").write_text('{"data": ["a"]}')
    assert score_program.main(["net.onnx", "input.json"]) == 0
    body = json.loads((in_job / score_program.ANSWERS).read_text())
    assert body["outputs"] == {"y": [1.0, None], "label": ["a"]}
    assert "ONNX Runtime 1.31.1 scores on CPUExecutionProvider" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "reason", "hint"),
    [
        ("net.onnx", "the model's inputs are ['x']", "`x`: float32 of shape ['batch', 2]"),
        ("broken.onnx", "ONNX Runtime can't load the model", "--environment"),
    ],
)
def test_the_program_says_why_it_did_not_score(
    model: str, reason: str, hint: str, in_job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (in_job / "input.json").write_text('{"inputs": {}}')
    assert score_program.main([model, "input.json"]) == 2
    error = json.loads((in_job / score_program.ANSWERS).read_text())["error"]
    assert reason in error["message"] and hint in error["hint"]
    assert f"error: {error['message']}\nhint: " in capsys.readouterr().err
