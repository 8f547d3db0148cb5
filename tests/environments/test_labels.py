"""What a label says, and what an environment answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from torchyard.environments import version_labels
from torchyard.environments.names import curated_environments
from torchyard.environments.types import EnvironmentSpec
from torchyard.environments.version_labels import Answer, Label

LOCK = "torch==2.13.0+cpu\nnumpy==2.1.0\nscikit-learn==1.5.2\n"
PACKAGES = {"torch": "2.13.0+cpu", "numpy": "2.1.0", "scikit-learn": "1.5.2", "pip": "25.0"}
ANSWER = Answer(
    PACKAGES,
    python="3.11.7",
    torch="2.13.0+cpu",
    cuda="",
    machine="x86_64",
    variables={"TF_USE_LEGACY_KERAS": "1"},
)
SPEC = EnvironmentSpec("3.11", (), "linux-x86_64-cpu", variables=(("TF_USE_LEGACY_KERAS", "1"),))


def label(name: str = "vision", **tags: str) -> Label:
    return version_labels.of_lock(name, SPEC, LOCK, tags)


@pytest.mark.parametrize(
    "name", ["vision", "acpt-pytorch-2.13-cpu", "sklearn-1.5", "torch-2.13.0-py311", "numpy2.1"]
)
def test_a_label_that_says_what_is_there(name: str) -> None:
    assert version_labels.differences(label(name), ANSWER) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("acpt-pytorch-2.2-cpu", "the name says pytorch 2.2, and the build holds 2.13.0+cpu"),
        ("pytorch-2.1-cpu", "the name says pytorch 2.1, and the build holds 2.13.0+cpu"),
        ("sklearn-1.1", "the name says sklearn 1.1, and the build holds 1.5.2"),
        ("vision-py310", "the name says Python 3.10, and the build holds 3.11.7"),
        ("acpt-pytorch-2.13-cuda12.1", "the name says cuda 12.1, and the build holds none"),
    ],
)
def test_a_name_that_says_something_else(name: str, line: str) -> None:
    assert version_labels.differences(label(name), ANSWER) == [line]


@pytest.mark.parametrize(
    ("cuda", "any_torch", "lines"),
    [
        ("10.2", False, []),
        ("10.2", True, []),
        ("", True, []),
        ("", False, ["torch is built without CUDA, and the label says for CUDA 10.2"]),
        ("11.3", True, ["torch is built for CUDA 11.3, and the label says for CUDA 10.2"]),
    ],
)
def test_where_any_accelerator_will_do_a_machine_may_have_torch_without_cuda(
    cuda: str, any_torch: bool, lines: list[str]
) -> None:
    expected = replace(label(), cuda="10.2", any_torch=any_torch)
    assert version_labels.differences(expected, replace(ANSWER, cuda=cuda)) == lines


@pytest.mark.parametrize("name", ["pytorch-1.10-py38", "acpt-pytorch-2.13-cpu"])
def test_a_curated_environment_leaves_it_open_unless_it_names_an_accelerator(name: str) -> None:
    curated = curated_environments.find_by_name(name)
    assert curated is not None
    assert version_labels.of_curated(curated, "x86_64").any_torch == (not curated.accelerator)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("vision-cuda12.1", ["the name says cuda 12.1, and the build holds 12.6"]),
        ("vision-cuda12.6", []),
        ("vision-cpu", ["the name says cpu, and torch is built for CUDA 12.6"]),
    ],
)
def test_a_name_that_says_another_accelerator(name: str, lines: list[str]) -> None:
    expected = replace(label(name), cuda="12.6")
    assert version_labels.differences(expected, replace(ANSWER, cuda="12.6")) == lines


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"python": "3.10.4"}, "Python is 3.10.4, and the label says 3.11"),
        (
            {"torch": "2.10.0"},
            "the module torch is 2.10.0, and the label says 2.13.0+cpu",
        ),
        ({"cuda": "12.6"}, "torch is built for CUDA 12.6, and the label says without CUDA"),
        ({"machine": "aarch64"}, "the machine is aarch64, and the label says x86_64"),
        (
            {"variables": {"TF_USE_LEGACY_KERAS": "0"}},
            "variable TF_USE_LEGACY_KERAS is `0`, and the label says `1`",
        ),
        ({"variables": {}}, "variable TF_USE_LEGACY_KERAS is not set, and the label says `1`"),
        (
            {"packages": {**PACKAGES, "numpy": "1.26.0"}},
            "numpy is 1.26.0, and the label says 2.1.0",
        ),
        (
            {"packages": {**PACKAGES, "six": "1.17.0"}},
            "six 1.17.0 is installed and not in the label",
        ),
    ],
)
def test_an_answer_that_is_not_what_the_label_says(wrong: dict[str, Any], line: str) -> None:
    assert version_labels.differences(label(), replace(ANSWER, **wrong)) == [line]


def test_what_is_missing_is_named() -> None:
    packages = {name: version for name, version in PACKAGES.items() if name != "numpy"}
    assert version_labels.differences(label(), replace(ANSWER, packages=packages)) == [
        "numpy 2.1.0 is in the label and not installed"
    ]


def test_tags_are_labels() -> None:
    expected = label(torch="2.13", numpy="1.26", team="2 people")
    assert version_labels.differences(expected, ANSWER) == [
        "tag `numpy` says 1.26, and the build holds 2.1.0"
    ]


def test_a_range_of_pythons_is_a_label() -> None:
    expected = replace(label(), python=">=3.9,<3.11")
    assert version_labels.differences(expected, ANSWER) == [
        "Python is 3.11.7, and the label says >=3.9,<3.11"
    ]
    assert version_labels.differences(replace(expected, python=">=3.9,<3.12"), ANSWER) == []


@pytest.mark.parametrize(
    ("packages", "cuda"),
    [
        ({"torch": "2.13.0+cpu"}, ""),
        ({"torch": "2.6.0+cu124"}, "12.4"),
        ({"torch": "2.13.0", "nvidia-cuda-runtime": "13.0.96"}, "13.0"),
        ({"torch": "2.0.1", "nvidia-cuda-runtime-cu11": "11.7.99"}, "11.7"),
        ({"torch": "1.12.1"}, None),
        ({"nvidia-cuda-runtime": "13.0.96"}, None),
    ],
)
def test_the_cuda_that_packages_tell(packages: dict[str, str], cuda: str | None) -> None:
    assert version_labels.cuda_of(packages) == cuda


def test_a_curated_environment_says_what_its_page_says() -> None:
    curated = curated_environments.find_by_name("acpt-pytorch-2.13-cpu")
    assert curated is not None
    expected = version_labels.of_curated(curated, "x86_64")
    there = Answer(
        curated.contents["packages"],
        curated.contents["python"],
        curated.contents["torch"],
        curated.contents["cuda"],
        "x86_64",
        {},
    )
    assert version_labels.differences(expected, there) == []
    # PyPI's build in place of the one for CPUs, as Azure's images drift.
    other = {**curated.contents["packages"], "torch": "2.13.0"}
    drifted = replace(there, packages=other, torch="2.13.0", cuda="13.0", python="3.12.1")
    assert version_labels.differences(expected, drifted) == [
        "Python is 3.12.1, and the label says 3.11",
        "torch is built for CUDA 13.0, and the label says without CUDA",
        "the name says cpu, and torch is built for CUDA 13.0",
    ]


def test_an_answer_of_other_types_is_none() -> None:
    document = {"packages": {"A_b": "1", "c": 2}, "torch": 3, "variables": "x", "python": None}
    assert version_labels.read_answer(document) == Answer({"a-b": "1"})
