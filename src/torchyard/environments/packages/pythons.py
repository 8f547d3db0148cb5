"""The Pythons that an environment can have on this machine.

Owns: finding one by its version, substitutes for unavailable versions, the end of its support.
Leaves: making an environment of it to build/builder.py, conda's own Python to
conda/conda_packages.py, another one for requirements without a wheel to python_choice.py.
Always: a substitute differs only in the last part of the version: 3.6.15 may take the place of
3.6.2, 3.7 never does; except 3.8 for an older one with a layer. Installed Pythons come before
downloads, where the workspace allows substitutes.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torchyard.base.errors import BuildFailed, InvalidSpec
from torchyard.environments.names.substitutes import Substitute, SubstitutePolicy
from torchyard.environments.packages import layers
from torchyard.environments.packages.uv import find_uv
from torchyard.environments.types import EnvironmentSpec, platform_python

_VERSION = re.compile(r"(3\.\d+)(?:\.\d+)?")
# What ranks run needs it.
_OLDEST = (3, 6)
_TOO_OLD = "Invalid version request"
_ASK_S = 30.0
# The owner may install a Python while the server runs.
_OFFERS_CACHE_S = 300.0
# The month of its last security fix: https://devguide.python.org/versions/
_END_OF_SUPPORT = {
    "3.6": "2021-12",
    "3.7": "2023-06",
    "3.8": "2024-10",
    "3.9": "2025-10",
    "3.10": "2026-10",
    "3.11": "2027-10",
    "3.12": "2028-10",
    "3.13": "2029-10",
    "3.14": "2030-10",
}


def end_of_support(python: str) -> str:
    """The month in which a Python, as `3.11.7`, gets its last fixes; empty where that is open."""
    return _END_OF_SUPPORT.get(".".join(python.split(".")[:2]), "")


class Pythons:
    """
    Args:
        variables: the process environment, for uv.
        find: the path of uv.
    """

    def __init__(self, variables: Mapping[str, str], find: Callable[[], str] = find_uv) -> None:
        self._variables = dict(variables)
        self._find = find
        self._offers: dict[str, tuple[float, dict[str, bool] | None]] = {}

    def settled(self, spec: EnvironmentSpec, policy: SubstitutePolicy) -> EnvironmentSpec:
        """The spec with an available Python, and a notice where that is a substitute.

        Raises:
            InvalidSpec: `policy` refuses the substitute.
        """
        spec = _for_layers(spec, policy)
        requested_python = spec.python
        match = _VERSION.fullmatch(requested_python)
        if match is None or requested_python == match[1] or spec.conda or is_here(requested_python):
            return spec
        here = _versions_here(match[1])
        offers = self._offered(match[1]) or {}
        here += [version for version, is_there in offers.items() if is_there]
        if (
            requested_python in here
            or not (here or offers)
            or (requested_python in offers and not here)
        ):
            return spec
        best = max(here or offers, key=_numbers)
        python, instead = f"Python {best}", f"python={match[1]}"
        try:
            policy(
                Substitute(f"Python {requested_python}", python, instead),
                ("conda_file", "dependencies"),
            )
        except InvalidSpec:
            if requested_python in offers:
                return spec
            raise
        notice = f"Python {requested_python} is not here: {python} takes its place"
        return replace(spec, python=best, notices=(*spec.notices, notice), is_any_python=True)

    def refuse(self, spec: EnvironmentSpec) -> None:
        """
        Raises:
            BuildFailed: it needs a Python that is not here and that uv can't download.
        """
        match = _VERSION.fullmatch(spec.python)
        if match is None or spec.conda or is_here(spec.python):
            return
        if not _versions_here(match[1]) and self._offered(match[1]) == {}:
            raise BuildFailed(
                f"Python {spec.python} is not available: it is not on this machine, and uv has "
                "no download of it",
                f"use Python {platform_python()}, which is here, and packages that run on it; "
                "or name a curated environment (`yard environment list`)",
            )

    def _offered(self, minor: str) -> dict[str, bool] | None:
        """Versions of `3.9`, and whether they are installed; None where uv does not say."""
        fetched_at, offers = self._offers.get(minor, (0.0, None))
        if offers is None or time.monotonic() > fetched_at + _OFFERS_CACHE_S:
            offers = self._ask(minor)
            self._offers[minor] = time.monotonic(), offers
        return offers

    def _ask(self, minor: str) -> dict[str, bool] | None:
        entries = self._list(minor, "--all-versions")
        if entries is None:
            return None
        offers: dict[str, bool] = {}
        for entry in entries:
            offers[entry["version"]] = bool(entry["path"]) or offers.get(entry["version"], False)
        return offers

    def minors(self) -> list[str]:
        """The minor versions that environments can have, newest first, downloads included."""
        versions = [entry["version"] for entry in self._list() or ()]
        released = {match[1] for match in map(_VERSION.fullmatch, versions) if match}
        every = {*released, *installed()}
        return sorted((each for each in every if _numbers(each) >= _OLDEST), key=_numbers)[::-1]

    def _list(self, *request: str) -> list[dict[str, Any]] | None:
        """What uv lists of CPython; None where it fails."""
        words = ["python", "list", *request, "--output-format", "json"]
        try:
            outcome = subprocess.run(
                [self._find(), *words],
                env=self._variables, stdin=subprocess.DEVNULL, capture_output=True,
                # Not where people's files are: uv would ask a Python of a `.venv` there.
                text=True, timeout=_ASK_S, cwd="/",
            )  # fmt: skip
            if outcome.returncode != 0:
                return [] if _TOO_OLD in outcome.stderr else None
            entries = json.loads(outcome.stdout)
        except (BuildFailed, OSError, subprocess.SubprocessError, ValueError):
            return None
        return [entry for entry in entries if (entry["implementation"], entry["variant"]) == _PLAIN]


def _for_layers(spec: EnvironmentSpec, policy: SubstitutePolicy) -> EnvironmentSpec:
    """The spec with the oldest Python that its layers run on, where its own is older."""
    if not layers.is_python_too_old(spec) or spec.conda:
        return spec
    best, requested_python = layers.oldest_python(spec.layers), spec.python
    substitute = Substitute(f"Python {requested_python}", f"Python {best}", f"python={best}")
    try:
        policy(substitute, ("conda_file", "dependencies"))
    except InvalidSpec:
        return spec  # refused by its layer's name
    notice = (
        f"Python {requested_python} is too old for torchyard's layer `{spec.layers[0]}`: "
        f"Python {best} takes its place"
    )
    return replace(spec, python=best, notices=(*spec.notices, notice))


_PLAIN = ("cpython", "default")


def interpreter(python: str) -> str:
    """A Python for uv: the path of an installed one where there is one, else the version."""
    if fits(python, sys.version_info[:3]):
        return str(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve())
    for version, program in _beside(python):
        if fits(python, _numbers(version)):
            return str(program)
    return python


def is_here(python: str) -> bool:
    """Whether a Python of that version is installed, without running uv."""
    return interpreter(python) != python


def installed() -> list[str]:
    """The minor versions of this machine's Pythons that `interpreter` finds, as `3.7`."""
    beside = (version.rpartition(".")[0] for version, _ in _beside(">=3"))
    return sorted({platform_python(), *beside})


def fits(specifier: str, version: tuple[int, ...]) -> bool:
    """Whether `version` fits `specifier` (`3.11`, `3.11.4`, `>=3.9,<3.12`)."""
    return all(_clause_fits(clause, version) for clause in specifier.split(","))


def _versions_here(minor: str) -> list[str]:
    """The versions of this machine's Pythons that `interpreter` finds."""
    versions = [".".join(map(str, sys.version_info[:3]))] if minor == platform_python() else []
    return versions + [version for version, _ in _beside(minor)]


def _beside(python: str) -> Iterator[tuple[str, Path]]:
    """(version, program) of the Pythons beside this one with the minor version of `python`, of
    all when it is a range, newest first.

    Tools that keep several Pythons (pyenv, uv, asdf) keep each in a folder named by version.
    """
    minor = _VERSION.fullmatch(python)
    name = f"python{minor[1]}" if minor else "python3.*"
    programs = []
    for program in Path(sys.base_prefix).parent.glob(f"*/bin/{name}"):
        version = re.search(_version_in(program.name), program.parent.parent.name)
        if version:
            programs.append((version[0], program))
    yield from sorted(programs, key=lambda pair: _numbers(pair[0]), reverse=minor is None)


def _version_in(program: str) -> str:
    """The pattern of a whole version of `python3.11` in a folder's name."""
    return rf"(?<!\d){re.escape(program.removeprefix('python'))}\.\d+(?!\d)"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _clause_fits(clause: str, version: tuple[int, ...]) -> bool:
    match = re.fullmatch(r"\s*(?:(==|!=|>=|<=|~=|>|<|=)\s*)?(\d{1,9}(?:\.\d{1,9}){0,9})", clause)
    if match is None:
        return False
    number = tuple(int(part) for part in match[2].split("."))
    same = version[: len(number)] == number
    match match[1]:
        case None | "=" | "==":
            return same
        case "!=":
            return not same
        case ">=":
            return version >= number
        case "<=":
            return version <= number or same
        case ">":
            return version > number and not same
        case "<":
            return version < number
        case _:
            return version >= number and version[: len(number) - 1] == number[:-1]
