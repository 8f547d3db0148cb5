"""Programs of torch.export and TorchScript that a job made, deployed without a scoring script."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from end_to_end.yard_under_test import REPOSITORY, Yard, wait_until

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("torch_environment"),
]

_TRAIN = """
import json
import sys
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).eval()
x = torch.tensor([[1.0, 2.0, 3.0], [3.0, -2.0, 1.0]])
dynamic = ({0: torch.export.Dim("batch")},)
program = torch.export.export(net, (x,), dynamic_shapes=dynamic)
torch.export.save(program, sys.argv[1] + "/net.pt2")
torch.jit.save(torch.jit.script(net), sys.argv[2] + "/net.ts")
with torch.no_grad():
    answers = {"program": program.module()(x).tolist(), "net": net(x).tolist()}
print("ANSWERS " + json.dumps(answers))
"""
_ROWS = [[1, 2, 3], [3, -2, 1]]


@pytest.fixture(scope="module")
def answers(yard: Yard, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the models answer in the job that made them; both are registered."""
    folder = tmp_path_factory.mktemp("train")
    (folder / "train.py").write_text(_TRAIN)
    document = {
        "name": "programs",
        "command": "python train.py ${{outputs.exported}} ${{outputs.scripted}}",
        "code": "train.py",
        "environment": {"pip_requirements": str(REPOSITORY / "examples/digits/requirements.txt")},
        "outputs": {
            name: {"type": "custom_model", "name": name} for name in ("exported", "scripted")
        },
    }
    (folder / "job.yml").write_text(json.dumps(document))
    yard("job", "create", "-f", str(folder / "job.yml"), "--stream")
    yard.completed("programs")
    text = b"\n".join(yard.logs("programs").values()).decode()
    made: dict[str, Any] = json.loads(re.findall(r"^ANSWERS (.*)$", text, re.MULTILINE)[-1])
    return made


@pytest.fixture
def endpoint(yard: Yard, request: pytest.FixtureRequest) -> Iterator[str]:
    name = str(request.node.callspec.params["model"])
    yield name
    yard("online-endpoint", "delete", "-n", name, "--yes")
    wait_until(lambda: not yard.get("online-endpoints")["value"], 120, "the endpoint is gone")


@pytest.mark.parametrize(("model", "answer"), [("exported", "program"), ("scripted", "net")])
def test_a_program_of_torch_answers_as_in_its_job(
    yard: Yard, answers: dict[str, Any], endpoint: str, model: str, answer: str, tmp_path: Path
) -> None:
    yard("model", "deploy", "-n", model, timeout_s=600)
    request = tmp_path / "request.json"

    def ask(body: Any, expect: int = 0) -> Any:
        request.write_text(json.dumps(body))
        words = ("-n", endpoint, "--request-file", str(request))
        return json.loads(yard("online-endpoint", "invoke", *words, expect=expect))

    assert ask({"data": _ROWS}) == [
        pytest.approx(row, rel=1e-6, abs=1e-7) for row in answers[answer]
    ]
    assert ask({"data": _ROWS[:1]}) == [pytest.approx(answers[answer][0], rel=1e-6, abs=1e-7)]
