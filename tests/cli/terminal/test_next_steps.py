"""The command that a command names as the next one."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.cli.terminal import next_steps
from torchyard.cli.terminal.tables import Form

JOB = {"name": "otter", "status": "Completed", "experiment_name": "digits"}


@pytest.mark.parametrize(
    ("paths", "path"),
    [
        (["outputs/model.pt", "user_logs/std_log.txt"], "outputs/model.pt"),
        (["outputs/model/MLmodel", "outputs/model/data/model.pth"], "outputs/model"),
        (["outputs/a.onnx", "outputs/deep/b.onnx"], "outputs/a.onnx"),
        (["outputs/a.pt", "outputs/b.pt"], ""),
        (["logs/model.pt", "outputs/metrics.json"], ""),
        ([], ""),
    ],
)
def test_a_jobs_model_is_registered_where_it_is_clear_which_it_is(
    paths: list[str], path: str
) -> None:
    line = f"yard model create -n digits -p runs:/otter/{path}"
    assert next_steps.after_job(JOB, paths) == ([line] if path else [])


@pytest.mark.parametrize("change", [{"status": "Failed"}, {"models": [{"name": "digits"}]}])
def test_a_failed_job_and_one_whose_model_is_registered_name_nothing(
    change: dict[str, Any],
) -> None:
    assert next_steps.after_job({**JOB, **change}, ["outputs/model.pt"]) == []


def test_hostile_names_are_quoted_and_control_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    job = {**JOB, "experiment_name": "$(rm -rf ~)"}
    lines = next_steps.after_job(job, ["outputs/a b\x1b[2J;rm.pt"])
    next_steps.say(Form(), lines)
    printed = capsys.readouterr()
    assert printed.out == "" and "\x1b" not in printed.err
    assert "-n MODEL -p 'runs:/otter/outputs/a b" in printed.err and "rm -rf" not in printed.err


def test_programs_are_told_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    next_steps.say(Form("json"), ["yard job list"])
    next_steps.say(Form(query="name"), ["yard job list"])
    printed = capsys.readouterr()
    assert printed.out == printed.err == ""


@pytest.mark.parametrize(
    ("model", "first"),
    [
        ({"files": [{"path": "net.onnx"}]}, "yard model deploy digits"),
        ({"type": "mlflow_model", "files": []}, "yard model deploy digits"),
        ({"files": [{"path": "model.pt"}]}, "yard model export-onnx digits --example FILE"),
        ({"files": ["weights.bin"]}, "yard model deploy digits --code FOLDER"),
    ],
)
def test_a_model_is_deployed_or_first_exported(model: dict[str, Any], first: str) -> None:
    assert next_steps.after_model({"name": "digits", **model})[0].startswith(first)


def test_an_onnx_model_can_be_scored_without_an_endpoint() -> None:
    lines = next_steps.after_model({"name": "digits-onnx", "files": ["model.onnx"]})
    assert lines[1].startswith("yard model score digits-onnx --input FILE")
    assert len(next_steps.after_model({"name": "net", "files": ["net.pt2"]})) == 1


def test_an_endpoint_is_asked_as_its_models_signature_says() -> None:
    image = {"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, ""]}
    model = {"signature": {"format": "onnx", "inputs": [image], "outputs": []}}
    lines = next_steps.after_deploy(model, "digits-onnx", "blue", True)
    assert lines[0] == "yard online-endpoint invoke -n digits-onnx -r request.json"
    assert '{"data": float32 of shape [batch, 1, 8, ?]}' in lines[1]
    model["signature"]["inputs"] = [image, {**image, "name": "mask"}]
    assert '{"inputs": {"image": float32' in next_steps.after_deploy(model, "a", "blue", True)[1]
    assert next_steps.after_deploy({}, "a", "blue", False) == [
        "yard online-deployment show -n blue -e a"
    ]
