"""What needs no torch: `ort-moe` becomes a layer, and lies there as a package."""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

import pytest

from torchyard.environments import definition
from torchyard.environments.packages import layers
from torchyard.environments.types import Platform

LINUX = Platform("linux", "x86_64", "cpu")


@pytest.mark.parametrize("line", ["ort-moe", "ort_moe==0.2.0"])
def test_a_listed_ort_moe_becomes_the_layer_and_says_so(line: str) -> None:
    spec = definition.resolve({"pip_requirements": ["six", line]}, LINUX)
    assert (spec.packages, spec.layers) == (("six",), ("ort-moe",))
    assert line in spec.notices[0] and "torch.distributed" in spec.notices[0]


def test_it_lies_there_as_a_package(tmp_path: Path) -> None:
    layers.put(["ort-moe"], tmp_path)
    (package,) = distributions(path=[str(tmp_path)])
    assert (package.metadata["Name"], package.version) == ("ort-moe", "0.2.0+torchyard")
    files = {str(file) for file in package.files or ()}
    assert {"ort_moe/moe.py", "ort_moe/topKgate.py", "ort_moe/layers.py"} <= files
