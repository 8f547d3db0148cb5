"""Pythons that are here, that uv could download, and that can't be had."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.errors import BuildFailed, InvalidSpec
from torchyard.environments.names import substitutes
from torchyard.environments.packages.pythons import Pythons
from torchyard.environments.types import EnvironmentSpec, platform_python

OWN = ".".join(map(str, sys.version_info[:3]))


def spec(python: str, **more: Any) -> EnvironmentSpec:
    return EnvironmentSpec(python, (), "linux-x86_64-cpu", **more)


@pytest.fixture
def offers(tmp_path: Path) -> Pythons:
    """A uv that knows 3.4.7 and 3.4.9 for download, 3.4.5 here, another implementation; of 3.3
    only downloads."""
    listed = [
        ("3.4.9", None, "cpython"), ("3.4.7", None, "cpython"),
        ("3.4.5", "/opt/python3.4", "cpython"), ("3.4.99", None, "pypy"),
        ("3.3.7", None, "cpython"), ("3.3.5", None, "cpython"),
    ]  # fmt: skip
    for minor in ("3.3", "3.4"):
        answer = [
            {"version": version, "path": path, "implementation": made_by, "variant": "default"}
            for version, path, made_by in listed
            if version.startswith(minor)
        ]
        (tmp_path / minor).write_text(json.dumps(answer))
    program = tmp_path / "uv"
    program.write_text(
        f"#!/bin/sh\n[ -f {tmp_path}/$3 ] && exec cat {tmp_path}/$3\n"
        '[ "$3" = 3.1 ] && { echo "error: Invalid version request: too old" >&2; exit 2; }\n'
        '[ "$3" = 3.2 ] && { echo "[]"; exit 0; }\nexit 1\n'
    )
    program.chmod(0o755)
    return Pythons({}, lambda: str(program))


@pytest.mark.parametrize(
    ("wanted", "got"),
    [("3.4.2", "3.4.5"), ("3.4.7", "3.4.5"), ("3.3.2", "3.3.7"), (f"{platform_python()}.0", OWN)],
)
def test_the_last_part_of_a_version_may_be_another(offers: Pythons, wanted: str, got: str) -> None:
    found = offers.settled(spec(wanted), substitutes.taken)
    assert found.notices == (f"Python {wanted} is not here: Python {found.python} takes its place",)
    # Of our own minor version there may be several beside us.
    assert found.python == got or wanted.startswith(platform_python())


@pytest.mark.parametrize("python", ["3.4.5", "3.3.5", "3.4", OWN, platform_python(), ">=3.4,<3.5"])
def test_what_can_be_had_stays(offers: Pythons, python: str) -> None:
    assert offers.settled(spec(python), substitutes.taken) == spec(python)
    offers.refuse(spec(python))


def test_a_workspace_that_takes_no_substitutes_gets_the_very_one_or_none(offers: Pythons) -> None:
    judge = substitutes.refused_in("vision")
    assert offers.settled(spec("3.4.7"), judge) == spec("3.4.7")
    with pytest.raises(InvalidSpec) as caught:
        offers.settled(spec("3.4.2"), judge)
    assert caught.value.code == "substitute_refused"
    assert "`python=3.4`" in caught.value.hint


@pytest.mark.parametrize("python", ["3.1.2", "3.1", "3.2.2"])
def test_what_nobody_has_is_refused(offers: Pythons, python: str) -> None:
    assert offers.settled(spec(python), substitutes.taken) == spec(python)
    with pytest.raises(BuildFailed, match=rf"Python {python} can't be had") as caught:
        offers.refuse(spec(python))
    assert platform_python() in caught.value.hint


def test_where_uv_does_not_say_the_build_will(offers: Pythons) -> None:
    assert offers.settled(spec("3.0.2"), substitutes.taken) == spec("3.0.2")
    offers.refuse(spec("3.0.2"))


def test_conda_brings_its_own(offers: Pythons) -> None:
    asked = spec("3.1.2", conda=("ffmpeg",))
    assert offers.settled(asked, substitutes.taken) == asked
    offers.refuse(asked)
