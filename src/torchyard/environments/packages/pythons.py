"""The Pythons that an environment can have on this machine.

Owns: finding one by its version, and what takes the place of a version that can't be had.
Leaves: making an environment of it to build/builder.py, conda's own Python to
conda/conda_packages.py.
Always: only the last part of a version is ever another one: 3.6.15 may take the place of 3.6.2,
3.7 never does; what is here is taken before what uv would download, where the workspace takes
substitutes.
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

from torchyard.base.errors import BuildFailed, InvalidSpec
from torchyard.environments.names.substitutes import Judge, Substitute
from torchyard.environments.packages.uv import find_uv
from torchyard.environments.types import EnvironmentSpec, platform_python

_VERSION = re.compile(r"(3\.\d+)(?:\.\d+)?")
_TOO_OLD = "Invalid version request"
_ASK_S = 30.0
# For so long uv's answer is good: an owner may install a Python while the server runs.
_GOOD_S = 300.0


class Pythons:
    """
    Args:
        variables: the process environment, for uv.
        find: where uv is.
    """

    def __init__(self, variables: Mapping[str, str], find: Callable[[], str] = find_uv) -> None:
        self._variables = dict(variables)
        self._find = find
        self._offers: dict[str, tuple[float, dict[str, bool] | None]] = {}

    def settled(self, spec: EnvironmentSpec, judge: Judge) -> EnvironmentSpec:
        """The spec with a Python that can be had, and a notice where it is another one.

        Raises:
            InvalidSpec: `judge` refuses what takes its place.
        """
        wanted = spec.python
        found = _VERSION.fullmatch(wanted)
        if found is None or wanted == found[1] or spec.conda or is_here(wanted):
            return spec
        here = _versions_here(found[1])
        offers = self._offered(found[1]) or {}
        here += [version for version, is_there in offers.items() if is_there]
        if wanted in here or not (here or offers) or (wanted in offers and not here):
            return spec
        best = max(here or offers, key=_numbers)
        python, instead = f"Python {best}", f"python={found[1]}"
        try:
            judge(Substitute(f"Python {wanted}", python, instead), ("conda_file", "dependencies"))
        except InvalidSpec:
            if wanted in offers:
                return spec
            raise
        told = f"Python {wanted} is not here: {python} takes its place"
        return replace(spec, python=best, notices=(*spec.notices, told))

    def refuse(self, spec: EnvironmentSpec) -> None:
        """
        Raises:
            BuildFailed: it needs a Python that is not here, and that uv has no download of.
        """
        found = _VERSION.fullmatch(spec.python)
        if found is None or spec.conda or is_here(spec.python):
            return
        if not _versions_here(found[1]) and self._offered(found[1]) == {}:
            raise BuildFailed(
                f"Python {spec.python} can't be had: it is not on this machine, and uv has no "
                "download of it",
                f"ask for Python {platform_python()}, which is here, and for packages that run "
                "on it; or name a curated environment (`yard environment list`)",
            )

    def _offered(self, minor: str) -> dict[str, bool] | None:
        """Versions of `3.9`, and whether they are here already; None where uv does not say."""
        asked_at, known = self._offers.get(minor, (0.0, None))
        if known is None or time.monotonic() > asked_at + _GOOD_S:
            known = self._ask(minor)
            self._offers[minor] = time.monotonic(), known
        return known

    def _ask(self, minor: str) -> dict[str, bool] | None:
        words = ["python", "list", minor, "--all-versions", "--output-format", "json"]
        try:
            said = subprocess.run(
                [self._find(), *words],
                env=self._variables, stdin=subprocess.DEVNULL, capture_output=True,
                text=True, timeout=_ASK_S,
            )  # fmt: skip
            if said.returncode != 0:
                return {} if _TOO_OLD in said.stderr else None
            listed = json.loads(said.stdout)
        except (BuildFailed, OSError, subprocess.SubprocessError, ValueError):
            return None
        plain = [one for one in listed if (one["implementation"], one["variant"]) == _PLAIN]
        found: dict[str, bool] = {}
        for one in plain:
            found[one["version"]] = bool(one["path"]) or found.get(one["version"], False)
        return found


_PLAIN = ("cpython", "default")


def interpreter(wanted: str) -> str:
    """A Python for uv: by its path where one is at hand, so that uv need not look for it."""
    if fits(wanted, sys.version_info[:3]):
        return str(Path(getattr(sys, "_base_executable", "") or sys.executable).resolve())
    for version, program in _beside(wanted):
        if fits(wanted, _numbers(version)):
            return str(program)
    return wanted


def is_here(wanted: str) -> bool:
    """Whether a Python of that version is at hand without asking uv."""
    return interpreter(wanted) != wanted


def fits(wanted: str, version: tuple[int, ...]) -> bool:
    """Whether `version` is what `wanted` (`3.11`, `3.11.4`, `>=3.9,<3.12`) asks for."""
    return all(_clause_fits(clause, version) for clause in wanted.split(","))


def _versions_here(minor: str) -> list[str]:
    """Of this machine's Pythons, those that `interpreter` finds."""
    own = [".".join(map(str, sys.version_info[:3]))] if minor == platform_python() else []
    return own + [version for version, _ in _beside(minor)]


def _beside(wanted: str) -> Iterator[tuple[str, Path]]:
    """(version, program) of the Pythons beside ours that have the minor version of `wanted`.

    Tools that keep several Pythons (pyenv, uv, asdf) keep each in a folder named by version.
    """
    minor = _VERSION.fullmatch(wanted)
    if minor is None:
        return
    named = re.compile(rf"(?<!\d){re.escape(minor[1])}\.\d+(?!\d)")
    for program in sorted(Path(sys.base_prefix).parent.glob(f"*/bin/python{minor[1]}")):
        version = named.search(program.parent.parent.name)
        if version:
            yield version[0], program


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _clause_fits(clause: str, version: tuple[int, ...]) -> bool:
    found = re.fullmatch(r"\s*(==|!=|>=|<=|~=|>|<|=)?\s*(\d+(?:\.\d+)*)", clause)
    if found is None:
        return False
    number = tuple(int(part) for part in found[2].split("."))
    same = version[: len(number)] == number
    match found[1]:
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
