"""What needs no torch: `fairscale` becomes a layer beside torch 2, and lies there as a package."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest

from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import Platform

LINUX = Platform("linux", "x86_64", "cpu")


@pytest.mark.parametrize("torch", ["torch==2.13.0", "torch>=2.1", "torchvision==0.28.0"])
def test_a_listed_fairscale_becomes_the_layer_and_says_so(torch: str) -> None:
    spec = definition.resolve({"pip_requirements": [torch, "fairscale==0.4.13"]}, LINUX)
    assert (spec.packages, spec.layers) == ((torch,), ("fairscale",))
    assert "trains wrongly with torch 2" in spec.notices[0]


@pytest.mark.parametrize("torch", ["torch==1.13.1", "torch == 1.10.2+cpu"])
def test_beside_an_older_torch_it_stays_as_it_is(torch: str) -> None:
    lines = [torch, "fairscale==0.4.13", "horovod"]
    remaining, names, _ = layers.split(lines)
    assert (remaining, names) == (lines[:2], ("horovod",))


def test_it_lies_there_as_a_package(tmp_path: Path) -> None:
    layers.put(["fairscale"], tmp_path)
    (package,) = distributions(path=[str(tmp_path)])
    assert (package.metadata["Name"], package.version) == ("fairscale", "0.4.13+torchyard")
    assert "fairscale/nn/data_parallel/__init__.py" in {str(file) for file in package.files or ()}
