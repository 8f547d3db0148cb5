"""References to environments that exist by name."""

from __future__ import annotations

import re

import pytest

from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.environments import builtin, definition
from torchyard.environments.types import Platform

LINUX = Platform("linux", "x86_64", "cpu")


@pytest.mark.parametrize(
    "reference",
    [
        "azureml://registries/azureml/environments/sklearn-1.5/labels/latest",
        "azureml://registries/azureml/environments/sklearn-1.5/versions/12",
        "azureml:AzureML-sklearn-1.5@latest",
        "AzureML-sklearn-1.5",
        "azureml-SKLEARN-1.5:3",
        "sklearn-1.5",
        " azureml:sklearn-1.5:1 ",
    ],
)
def test_a_published_name_is_our_environment_and_says_so(reference: str) -> None:
    spec = definition.resolve(reference, LINUX)
    assert (spec.python, "scikit-learn==1.5.2" in spec.packages) == ("3.11", True)
    assert reference in spec.notices[0] and "scikit-learn==1.5.2" in spec.notices[0]


@pytest.mark.parametrize("reference", ["python", "azureml:Python@latest", "python:1"])
def test_plain_python_needs_no_notice(reference: str) -> None:
    assert definition.resolve(reference, LINUX).notices == ()


@pytest.mark.parametrize(
    ("reference", "hint"),
    [
        ("AzureML-sklearn-1.4@latest", "did you mean `sklearn-1.5`?"),
        ("azureml:acpt-pytorch-2.8-cuda12.7@latest", "`acpt-pytorch-2.8-cuda12.6`"),
        ("azureml://registries/mine/environments/sklearn-1.5/labels/latest", "`sklearn-1.5`"),
        ("sklearn-1.5@prod", "sklearn-1.5@latest"),
        ("python:2", "python@latest"),
        ("my-own-thing:4", "pip_requirements"),
    ],
)
def test_any_other_name_is_refused_with_the_nearest(reference: str, hint: str) -> None:
    with pytest.raises(NotFound) as refused:
        definition.resolve(reference, LINUX, ("environment",))
    assert (hint in refused.value.hint, refused.value.at) == (True, ("environment",))


def test_what_is_no_reference_is_said_to_be_none() -> None:
    with pytest.raises(InvalidSpec):
        definition.resolve("< your environment name >", LINUX)


@pytest.mark.parametrize("known", builtin.BUILT_IN, ids=lambda known: known.name)
def test_every_package_of_a_built_in_is_pinned(known: builtin.BuiltIn) -> None:
    assert all(re.fullmatch(r"[\w-]+==[\d.]+", line) for line in known.requirements)
    assert bool(known.requirements) == bool(known.python) == known.stands_for_published
