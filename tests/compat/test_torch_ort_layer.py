"""What needs no torch: `torch-ort` becomes a layer, and lies there as a package."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import Platform

LINUX = Platform("linux", "x86_64", "cpu")


@pytest.mark.parametrize("line", ["torch-ort", "torch_ort==1.17.0"])
def test_a_listed_torch_ort_becomes_the_layer_and_says_so(line: str) -> None:
    spec = definition.resolve({"pip_requirements": ["six", line, "horovod"]}, LINUX)
    assert (spec.packages, spec.layers) == (("six",), ("horovod", "torch-ort"))
    assert line in spec.notices[0] and "ONNX Runtime, torch.compile or torch" in spec.notices[0]


def test_it_lies_there_as_a_package(tmp_path: Path) -> None:
    layers.put(["torch-ort"], tmp_path)
    (package,) = distributions(path=[str(tmp_path)])
    assert (package.metadata["Name"], package.version) == ("torch-ort", "1.19.2+torchyard")
    assert "torch_ort/__init__.py" in {str(file) for file in package.files or ()}
    utils = tmp_path / "torch" / "utils"
    utils.mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").write_text(
        "class nn:\n    Module = object\n\ndef __getattr__(name):\n    return object\n"
    )
    (utils / "__init__.py").write_text("_pytree = None\n")
    configure = [sys.executable, "-m", "torch_ort.configure"]
    done = subprocess.run(configure, cwd=tmp_path, capture_output=True, text=True)
    assert "needs no configuration" in done.stdout, done.stderr
