"""The job that exports a model to ONNX: its options, its environment, its files."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.client.onnx import environments, exports
from torchyard.client.onnx.exports import ENVIRONMENT, OnnxExport, OnnxInput

MODEL: dict[str, Any] = {
    "name": "net", "version": 3, "files": [{"path": "net.pt2"}], "environment": "azureml:vision:1",
}  # fmt: skip
EXPORT = OnnxExport(inputs=(OnnxInput("image", (1, 3, 8, 8)),))
WHOLE = ("torch==2.13.0", "onnx==1.23.2", "onnxscript==0.7.2", "onnxruntime-gpu==1.31.1")


class Answer:
    def __init__(self, packages: tuple[str, ...] = (), **raw: Any) -> None:
        self.packages = packages
        self.raw = raw


class FakeEnvironments:
    """Environments with these packages, and this definition."""

    def __init__(self, packages: tuple[str, ...], **definition: Any) -> None:
        self._packages = packages
        self._definition = definition

    def resolve(self, environment: object) -> Answer:
        if environment == "gone":
            raise NotFound("environment `gone` does not exist")
        return Answer(self._packages)

    def get(self, name: str, version: str) -> Answer:
        assert (name, version) == ("vision", "1")
        return Answer(**self._definition)


def choose(listed: FakeEnvironments, model: Any = MODEL, requested: str = "") -> Any:
    return environments.choose(listed, model, exports.NEEDS, requested)  # type: ignore[arg-type]


def test_an_input_is_a_name_a_shape_and_a_type() -> None:
    assert exports.read_input("image=1,3,224,224/Float32") == OnnxInput(
        "image", (1, 3, 224, 224), "float32"
    )
    assert exports.read_input("scale=/float64") == OnnxInput("scale", (), "float64")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("image", "not an input"),
        ("image=1,a/float32", "not an input"),
        ("image=1,,3/float32", "not an input"),
        ("image=-1,3/float32", "not an input"),
        ("image=1,3/float31", "unknown type"),
        ("image=0,3/float32", "empty or too large"),
        ("image=99999999,99999999/float32", "empty or too large"),
        ("im age=1/float32", "not an input"),
    ],
)
def test_an_input_of_another_form_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        exports.read_input(text)


def test_dynamic_dimensions_are_listed_for_each_input() -> None:
    assert exports.read_dynamic(()) is None
    assert exports.read_dynamic(("none",)) == {}
    assert exports.read_dynamic(("x=0,2", "y=1")) == {"x": (0, 2), "y": (1,)}
    for wrong in ("x", "x=a", "x=-1", "x=0,"):
        with pytest.raises(InvalidInput, match="does not name dynamic dimensions"):
            exports.read_dynamic((wrong,))


@pytest.mark.parametrize(
    ("export", "reason"),
    [
        (OnnxExport(), "neither an input nor an example"),
        (OnnxExport(inputs=EXPORT.inputs * 2), "given twice"),
        (OnnxExport(inputs=EXPORT.inputs, optimize="most"), "not a level"),
        (OnnxExport(inputs=EXPORT.inputs, tolerance=float("nan")), "tolerance"),
        (OnnxExport(inputs=EXPORT.inputs, dynamic={"x": (0,)}), "is not an input"),
        (OnnxExport(example=Path("values.txt")), "no known form"),
        (OnnxExport(example=Path("nowhere.npy")), "does not exist"),
        (OnnxExport(inputs=EXPORT.inputs, module="Net"), "does not name a module"),
        (OnnxExport(inputs=EXPORT.inputs, module="nowhere.py:Net"), "does not exist"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(export: OnnxExport, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        exports.check(export, MODEL)


@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ([], "no files here"),
        (["notes.txt", "weights.h5"], "no file of a known format: notes.txt, weights.h5"),
        (["model.onnx"], "ONNX model already"),
    ],
)
def test_a_model_without_a_known_file_is_refused(paths: list[str], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        exports.check(EXPORT, {**MODEL, "files": [{"path": path} for path in paths]})


def test_the_environment_of_the_models_job_is_used_where_it_has_everything() -> None:
    chosen = choose(FakeEnvironments(WHOLE))
    assert (chosen.environment, chosen.notice) == ("azureml:vision:1", "")


def test_missing_packages_are_added_to_what_defines_the_environment() -> None:
    torch = ("torch==2.13.0",)
    chosen = choose(FakeEnvironments(torch, pip_requirements="torch==2.13.0\n"))
    assert chosen.environment == {
        "pip_requirements": "torch==2.13.0\nonnx\nonnxscript\nonnxruntime\n"
    }
    assert "`onnxruntime`: added for this job" in chosen.notice
    conda = "dependencies: [python=3.11, {pip: [torch==2.13.0]}]"
    chosen = choose(FakeEnvironments((*torch, "onnx==1.23.2"), conda_file=conda, image="ubuntu"))
    pip = ["torch==2.13.0", "onnxscript", "onnxruntime"]
    assert chosen.environment == {
        "image": "ubuntu", "conda_file": {"dependencies": ["python=3.11", {"pip": pip}]}
    }  # fmt: skip
    inline = {**MODEL, "environment": {"pip_requirements": "torch"}}
    chosen = choose(FakeEnvironments(("torch",)), inline)
    assert chosen.environment["pip_requirements"].split() == [
        "torch", "onnx", "onnxscript", "onnxruntime"
    ]  # fmt: skip


def test_an_environment_that_can_not_export_gives_way_to_the_curated_one() -> None:
    for listed, model, reason in (
        (FakeEnvironments(("torch==2.4.1",), pip_requirements="torch"), MODEL, "has torch 2.4.1"),
        (FakeEnvironments(("torch==2.13.0",), image="mine"), MODEL, "lacks onnx"),
        (FakeEnvironments(()), {**MODEL, "environment": "gone"}, "does not exist"),
        (FakeEnvironments(()), {**MODEL, "environment": ""}, "no job made the model"),
    ):
        chosen = choose(listed, model)
        assert chosen.environment == ENVIRONMENT
        assert reason in chosen.notice


def test_a_requested_environment_is_never_replaced() -> None:
    with pytest.raises(NotFound):
        choose(FakeEnvironments(()), MODEL, "gone")
    with pytest.raises(InvalidInput, match="lacks torch"):
        choose(FakeEnvironments(("six==1.16.0",), pip_requirements="six"), MODEL, "vision:1")


def test_the_job_carries_the_code_that_scripts_use(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text("class Net: ...\n")
    (tmp_path / "x.npy").write_bytes(b"")
    export = OnnxExport(
        example=tmp_path / "x.npy", module=f"{tmp_path}/net.py:Net", register_as="served",
        compute="cpu",
    )  # fmt: skip
    with exports.job_document(export, MODEL, ENVIRONMENT) as document:
        code = Path(document["code"])
        request = json.loads((code / "onnx-export.json").read_text())
        assert (request["module"], request["source"]) == ("net.py:Net", "net:3")
        for file in (code / "torchyard").rglob("*.py"):
            ast.parse(file.read_text(), feature_version=(3, 10))
        assert (code / "torchyard/train/onnx/program.py").is_file() and (code / "net.py").is_file()
    assert not code.exists()
    assert document["inputs"]["model"] == {"type": "custom_model", "path": "azureml:net:3"}
    assert document["outputs"] == {"onnx": {"type": "onnx_model", "name": "served"}}
    assert (document["environment"], document["compute"]) == (ENVIRONMENT, "cpu")
    assert document["command"].endswith('"${{inputs.example}}"')


def test_client_and_program_know_the_same_options() -> None:
    source = Path(exports.__file__).parents[2] / "train/onnx"
    constants = {
        name.id: node.value
        for file in ("tensors.py", "onnx_files.py", "loading.py")
        for node in ast.parse((source / file).read_text()).body
        if isinstance(node, ast.Assign)
        for name in node.targets
        if isinstance(name, ast.Name)
    }
    dtypes = constants["DTYPES"]
    assert isinstance(dtypes, ast.Dict)
    assert tuple(ast.literal_eval(key) for key in dtypes.keys if key) == exports.DTYPES
    assert ast.literal_eval(constants["LEVELS"]) == exports.LEVELS
    assert ast.literal_eval(constants["EXAMPLES"]) == exports.EXAMPLES
    assert ast.literal_eval(constants["SUFFIXES"]) == exports.FILES
