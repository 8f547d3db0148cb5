"""A model that a job made, exported to ONNX and scored by jobs in that job's environment."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from end_to_end.test_guides import lines, run
from end_to_end.yard_under_test import REPOSITORY, Yard
from torchyard import Client
from torchyard.base.settings import Settings
from torchyard.models import onnx_files

pytestmark = [
    pytest.mark.end_to_end,
    pytest.mark.timeout(900),
    pytest.mark.usefixtures("torch_environment"),
]

SCRIPT = """
import json
import sys
import torch

net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 10))
batch = torch.export.Dim("batch")
image = torch.randn(2, 1, 8, 8)
program = torch.export.export(net.eval(), (image,), dynamic_shapes=({0: batch},))
torch.export.save(program, sys.argv[1] + "/net.pt2")
print("SAMPLE " + json.dumps([image.tolist(), net(image).tolist()]))
"""


@pytest.mark.smoke
def test_a_model_of_a_job_becomes_an_onnx_model_with_its_signature(
    yard: Yard, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    document = {
        "name": "maker",
        "command": "python train.py ${{outputs.model}}",
        "code": "train.py",
        "environment": {"pip_requirements": str(REPOSITORY / "examples/digits/requirements.txt")},
        "outputs": {"model": {"type": "custom_model", "name": "net"}},
    }
    (tmp_path / "job.yml").write_text(json.dumps(document))
    yard("job", "create", "-f", str(tmp_path / "job.yml"), "--stream")
    yard.completed("maker")
    export, _ = _typed()
    printed = yard(*export, timeout_s=800)  # it installs the programs that export
    assert "MAX DIFFERENCE" in printed and "within 0.001" in printed
    model = json.loads(yard("model", "show", "-n", "net-onnx", "-o", "json"))
    assert model["signature"]["inputs"] == [
        {"name": "image", "dtype": "float32", "shape": ["batch", 1, 8, 8]}
    ]
    assert model["properties"]["onnx.source"] == "net:1"
    assert model["properties"]["onnx.optimized"] == "extended"
    assert "onnxruntime" in model["environment"]["pip_requirements"]
    yard("model", "download", "-n", "net-onnx", "-p", str(tmp_path / "copy"))
    (file,) = (tmp_path / "copy").rglob("*.onnx")
    assert onnx_files.read(file).opset >= 18
    _scores_as_torch_does(yard, tmp_path)


def _typed() -> list[list[str]]:
    """The two commands of docs/guides/onnx.md, about the model `net`."""
    return [shlex.split(line.replace("digits", "net"))[1:] for line in lines("docs/guides/onnx.md")]


def _scores_as_torch_does(yard: Yard, folder: Path) -> None:
    log = b"\n".join(yard.logs("maker").values()).decode()
    image, expected = json.loads(re.findall(r"^SAMPLE (.*)$", log, re.MULTILINE)[-1])
    (folder / "request.json").write_text(json.dumps({"data": image}))
    _, score = _typed()
    run(yard, shlex.join(["yard", *score]), folder)
    # The model that holds torch's program is scored by its export.
    out, messages = yard.run(
        "model", "score", "net:1", "--input", str(folder / "request.json"), expect=0
    )
    assert "`net:1` is scored by `net-onnx:1`" in messages
    answer = json.loads(out)
    ((name, rows),) = answer["outputs"].items()
    assert answer["shapes"] == {name: [2, 10]}
    for row, expected_row in zip(rows, expected, strict=True):
        assert row == pytest.approx(expected_row, abs=1e-4)
    with Client(workspace="default", settings=_settings(yard)) as client:
        single = client.models.score("net-onnx", input={"image": image[:1]})
    assert single.outputs[name] == [pytest.approx(expected[0], abs=1e-4)]
    (folder / "request.json").write_text(json.dumps({"data": image[0]}))
    _, messages = yard.run(
        "model", "score", "net-onnx", "--input", str(folder / "request.json"), expect=2
    )
    assert "has the shape [1, 8, 8]" in messages
    assert "`image`: float32 of shape [batch, 1, 8, 8]" in messages


def _settings(yard: Yard) -> Settings:
    server = json.loads((yard.home / "server.json").read_text())
    return Settings(yard.home, server["url"], (yard.home / "token").read_text().strip())
