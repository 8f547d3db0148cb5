"""torchyard's layers on Pythons that they do not run on."""

from __future__ import annotations

import pytest

from torchyard.base.errors import BuildFailed
from torchyard.environments.packages import layers
from torchyard.environments.types import EnvironmentSpec


def spec(python: str, *names: str) -> EnvironmentSpec:
    return EnvironmentSpec(python, (), "linux-x86_64-cpu", layers=names)


@pytest.mark.parametrize("python", ["3.6.15", "3.5"])
def test_layers_are_refused_for_old_pythons(python: str) -> None:
    with pytest.raises(BuildFailed, match=rf"`horovod` is not available for Python {python}"):
        layers.refuse(spec(python, "horovod"))


@pytest.mark.parametrize("python", ["3.8", "3.11.7", "3.13", ">=3.6,<3.12"])
def test_layers_are_allowed_for_newer_pythons(python: str) -> None:
    layers.refuse(spec(python, "horovod", "torch-ort"))
    layers.refuse(spec("3.6.15"))
