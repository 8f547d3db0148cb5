"""From a training script to an endpoint: the guide's commands and the notebook, as written."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard, wait_until

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("torch_environment"),
]

GUIDE = "docs/guides/from-model-to-answer.md"
NOTEBOOK = "examples/digits/from_model_to_answer.ipynb"
ENDPOINT = "digits-onnx"
# What the example's own code and torch say of its 360 test images, without ONNX or an endpoint.
LOCAL = """
import json, sys
import torch
sys.path.insert(0, "examples/digits/src")
import train
network = train.make_network()
network.load_state_dict(torch.load(sys.argv[1], weights_only=True))
images, labels = train.read_digits()[1].tensors
with torch.no_grad():
    outputs = network.eval()(images)
texts = {"images": images.tolist(), "labels": labels.tolist(), "outputs": outputs.tolist()}
print(json.dumps(texts))
"""


@dataclass(frozen=True)
class Local:
    images: list[Any]
    labels: list[int]
    outputs: list[list[float]]


@pytest.fixture
def clone(yard: Yard, tmp_path: Path) -> Iterator[Path]:
    """A folder with the example as a clone has it; the endpoint is gone afterwards."""
    shutil.copytree(REPOSITORY / "examples/digits", tmp_path / "examples/digits")
    yield tmp_path
    for endpoint in yard.get("online-endpoints")["value"]:
        yard("online-endpoint", "delete", "-n", endpoint["name"], "--yes")
    wait_until(lambda: not yard.get("online-endpoints")["value"], 120, "the endpoint is gone")


def test_five_commands_of_the_guide_lead_from_the_script_to_the_same_answers(
    yard: Yard, clone: Path
) -> None:
    guide = (REPOSITORY / GUIDE).read_text()
    (block,) = re.findall(r"```sh\n(.*?)```", guide, re.DOTALL)
    lines = block.splitlines()
    assert len(lines) == 5
    printed = [_run(yard, line, clone) for line in lines]
    for (_, messages), expected in zip(
        printed,
        (
            "Next: yard model create -n digits -p runs:/",
            "Next: yard model export-onnx digits",
            "Next: yard model deploy digits-onnx",
            "Next: yard online-endpoint invoke -n digits-onnx",
        ),
        strict=False,
    ):
        assert expected in messages
    assert "within 0.001" in printed[2][0]
    answers = json.loads(printed[4][0])
    sample = json.loads((clone / "examples/digits/request.json").read_text())["data"]
    assert len(answers) == len(sample)
    assert _labels(answers) == _written_labels(guide)
    _assert_same_answers(yard, clone, _local(yard, clone))


def test_the_notebook_leads_from_the_script_to_an_answer(yard: Yard, clone: Path) -> None:
    notebook = json.loads((REPOSITORY / NOTEBOOK).read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    script = clone / "examples/digits/cells.py"
    script.write_text("\n\n".join(cells))
    ended = subprocess.run(
        [sys.executable, script.name],
        cwd=script.parent,
        env=yard.variables,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    (last,) = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"][-1]["outputs"]
    assert ended.stdout.splitlines()[-1] == "".join(last["text"]).splitlines()[-1]
    _assert_same_answers(yard, clone, _local(yard, clone))


def _run(yard: Yard, line: str, folder: Path) -> tuple[str, str]:
    """What the command prints for programs and for people."""
    words = shlex.split(line)
    assert words[0] == "yard"
    with yard.start(
        *words[1:], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, (line, out, errors)
    return out.decode(), errors.decode()


def _local(yard: Yard, clone: Path) -> Local:
    """By the newest model `digits` and the Python of the job's environment."""
    yard("model", "download", "-n", "digits", "-p", str(clone / "downloaded"))
    (file,) = (clone / "downloaded").rglob("model.pt")
    pythons = [
        python
        for python in (yard.home / "environments").glob("*/bin/python")
        if list(python.parents[1].glob("lib/python*/site-packages/sklearn"))
    ]
    made = subprocess.run(
        [pythons[0], "-c", LOCAL, file], cwd=clone, capture_output=True, check=True, timeout=120
    )
    # The example's module says a line when it is imported.
    return Local(**json.loads(made.stdout.splitlines()[-1]))


def _assert_same_answers(yard: Yard, clone: Path, local: Local) -> None:
    request = clone / "all.json"
    request.write_text(json.dumps({"data": local.images}))
    answers = json.loads(yard("online-endpoint", "invoke", ENDPOINT, "-r", str(request)))
    assert len(answers) == len(local.images) == 360
    for answer, expected in zip(answers, local.outputs, strict=True):
        assert answer == pytest.approx(expected, abs=1e-3)
    right = [digit == label for digit, label in zip(_labels(answers), local.labels, strict=True)]
    assert sum(right) / len(right) >= 0.95


def _labels(answers: list[list[float]]) -> list[int]:
    return [answer.index(max(answer)) for answer in answers]


def _written_labels(guide: str) -> list[int]:
    (text,) = re.findall(r"the digits (\d(?:, \d)+)", guide)
    return [int(digit) for digit in re.findall(r"\d", text)]
