"""What a label says, and what a build holds."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.releases.running import labels

LOCK = "torch==2.13.0+cpu\nnumpy==2.1.0\n"
CONTENTS: dict[str, Any] = {
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "cuda": "",
    "packages": {"torch": "2.13.0+cpu", "numpy": "2.1.0", "scikit-learn": "1.5.2"},
}


@pytest.mark.parametrize(
    "name", ["vision", "acpt-pytorch-2.13-cpu", "sklearn-1.5", "torch-2.13.0-py311", "numpy2.1"]
)
def test_a_name_that_says_what_is_there(name: str) -> None:
    assert labels.wrong(name, {}, CONTENTS, LOCK) == []


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("acpt-pytorch-2.2-cuda12.1", "the name says pytorch 2.2, and the build holds 2.13.0+cpu"),
        ("pytorch-2.1-cpu", "the name says pytorch 2.1, and the build holds 2.13.0+cpu"),
        ("sklearn-1.1", "the name says sklearn 1.1, and the build holds 1.5.2"),
        ("vision-py310", "the name says Python 3.10, and the build holds 3.11.7"),
    ],
)
def test_a_name_that_says_something_else(name: str, line: str) -> None:
    assert line in labels.wrong(name, {}, CONTENTS, LOCK)


def test_a_name_that_says_another_cuda() -> None:
    contents = {**CONTENTS, "cuda": "12.6"}
    assert labels.wrong("acpt-pytorch-2.13-cuda12.1", {}, contents, LOCK) == [
        "the name says cuda 12.1, and the build holds 12.6"
    ]


def test_tags_are_labels() -> None:
    tags = {"torch": "2.13", "numpy": "1.26", "team": "2 people"}
    assert labels.wrong("vision", tags, CONTENTS, LOCK) == [
        "tag `numpy` says 1.26, and the build holds 2.1.0"
    ]


def test_a_build_that_is_not_its_lock() -> None:
    packages = {"torch": "2.10.0+cpu"}
    assert labels.wrong("vision", {}, {**CONTENTS, "packages": packages}, LOCK) == [
        "torch is 2.10.0+cpu, and the lock says 2.13.0+cpu",
        "numpy 2.1.0 is in the lock and not installed",
    ]
