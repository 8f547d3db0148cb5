"""Pythons that are installed, that uv can download, and that are unavailable."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchyard.base.errors import BuildFailed, InvalidSpec
from torchyard.environments.names import substitutes
from torchyard.environments.packages.pythons import Pythons, interpreter
from torchyard.environments.types import EnvironmentSpec, platform_python

OWN = ".".join(map(str, sys.version_info[:3]))


def spec(python: str, conda: tuple[str, ...] = ()) -> EnvironmentSpec:
    return EnvironmentSpec(python, (), "linux-x86_64-cpu", conda=conda)


@pytest.fixture
def offers(tmp_path: Path) -> Pythons:
    """A uv that offers downloads of 3.4.7, 3.4.9 and 3.3, an installed 3.4.5, and another
    implementation.
    """
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
    ("requested", "got"),
    [("3.4.2", "3.4.5"), ("3.4.7", "3.4.5"), ("3.3.2", "3.3.7"), (f"{platform_python()}.0", OWN)],
)
def test_only_the_last_part_of_a_version_is_substituted(
    offers: Pythons, requested: str, got: str
) -> None:
    settled = offers.settled(spec(requested), substitutes.allow)
    assert settled.notices == (
        f"Python {requested} is not here: Python {settled.python} takes its place",
    )
    # Several Pythons of this one's minor version may be installed.
    assert settled.python == got or requested.startswith(platform_python())


@pytest.mark.parametrize("python", ["3.4.5", "3.3.5", "3.4", OWN, platform_python(), ">=3.4,<3.5"])
def test_an_available_python_is_kept(offers: Pythons, python: str) -> None:
    assert offers.settled(spec(python), substitutes.allow) == spec(python)
    offers.refuse(spec(python))


def test_a_workspace_without_substitutes_gets_the_exact_python_or_an_error(offers: Pythons) -> None:
    policy = substitutes.refusing_in("vision")
    assert offers.settled(spec("3.4.7"), policy) == spec("3.4.7")
    with pytest.raises(InvalidSpec) as caught:
        offers.settled(spec("3.4.2"), policy)
    assert caught.value.code == "substitute_refused"
    assert "`python=3.4`" in caught.value.hint


@pytest.mark.parametrize("python", ["3.1.2", "3.1", "3.2.2"])
def test_an_unavailable_python_is_refused(offers: Pythons, python: str) -> None:
    assert offers.settled(spec(python), substitutes.allow) == spec(python)
    with pytest.raises(BuildFailed, match=rf"Python {python} is not available") as caught:
        offers.refuse(spec(python))
    assert platform_python() in caught.value.hint


def test_a_python_that_uv_says_nothing_about_is_left_to_the_build(offers: Pythons) -> None:
    assert offers.settled(spec("3.0.2"), substitutes.allow) == spec("3.0.2")
    offers.refuse(spec("3.0.2"))


def test_conda_installs_its_own_python(offers: Pythons) -> None:
    requested = spec("3.1.2", conda=("ffmpeg",))
    assert offers.settled(requested, substitutes.allow) == requested
    offers.refuse(requested)


def test_a_layer_gets_the_oldest_python_that_it_runs_on(offers: Pythons) -> None:
    old = replace(spec("3.6"), layers=("horovod",))
    settled = offers.settled(old, substitutes.allow)
    assert settled.python == "3.7" and "too old for torchyard's layer" in settled.notices[0]
    assert offers.settled(old, substitutes.refusing_in("vision")) == old


def test_a_range_gets_the_newest_installed_python_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("3.4.5", "3.4.10", "3.5.2", "3.6.1"):
        program = tmp_path / version / "bin" / f"python{version.rpartition('.')[0]}"
        program.parent.mkdir(parents=True)
        program.touch()
        (program.parent / f"{program.name}-config").touch()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "3.6.1"))
    assert interpreter(">=3.4,<3.6") == str(tmp_path / "3.5.2" / "bin" / "python3.5")
    assert interpreter(">=3.4,<3.5") == str(tmp_path / "3.4.10" / "bin" / "python3.4")
    assert interpreter(">=3.1,<3.4") == ">=3.1,<3.4"
