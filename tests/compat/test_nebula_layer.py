"""What needs no torch: `nebulaml` becomes a layer, and lies there with what it is made of."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest

from torchyard.base.errors import BuildFailed
from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import EnvironmentSpec, Platform

LINUX = Platform("linux", "x86_64", "cpu")


@pytest.mark.parametrize("line", ["nebulaml", "torch-nebula", "torch_nebula==0.16.1"])
def test_a_listed_package_of_nebula_becomes_the_layer_and_says_so(line: str) -> None:
    spec = definition.resolve({"pip_requirements": ["six", line]}, LINUX)
    assert (spec.packages, spec.layers) == (("six",), ("nebulaml", "torchyard-train"))
    assert line in spec.notices[0] and "torchyard's layer takes its place" in spec.notices[0]


def test_both_names_of_nebula_lie_there_with_torchyard_train(tmp_path: Path) -> None:
    layers.put(["nebulaml", "torchyard-train"], tmp_path)
    packages = {package.metadata["Name"] for package in distributions(path=[str(tmp_path)])}
    assert packages == {"nebulaml", "torch-nebula", "torchyard-train"}
    for file in ("nebulaml/writer.py", "torch_nebula/__init__.py"):
        assert (tmp_path / file).is_file()
    assert (tmp_path / "torchyard/train/checkpoint/messages.py").is_file()
    # No part of the server comes along.
    assert [entry.name for entry in (tmp_path / "torchyard").iterdir()] == ["train"]


def test_it_needs_the_python_of_torchyard_train() -> None:
    spec = EnvironmentSpec("3.9", (), "linux-x86_64-cpu", layers=("nebulaml", "torchyard-train"))
    with pytest.raises(BuildFailed, match=r"`nebulaml` is not available for Python 3.9"):
        layers.refuse(spec)
    assert layers.oldest_python(spec.layers) == "3.10"
