"""Another Python for requirements that the environment's own rules out.

Owns: which requirements have no wheel for a Python, the Pythons that have one of each; the line of
a lock that says which Python was taken instead, and why.
Leaves: building with one to build/builder.py, which Pythons can be had to pythons.py.
Always: nothing is asked before a build has failed. Only wheels count: a source package that can't
be built here, and has no wheel for any Python, chooses none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchyard.base.errors import BuildFailed
from torchyard.environments.packages import pythons
from torchyard.environments.packages.requirements import package_name
from torchyard.environments.packages.uv import (
    Outcome,
    PackagesFailed,
    Uv,
    is_unreachable,
    package_at_fault,
)
from torchyard.environments.types import EnvironmentSpec, platform_python

# Of the Pythons that have the wheels, so many are tried, newest first.
TRIED = 3
_NAMED = 3
_MARK = re.compile(r"# python (?P<python>3\.\d+): (?P<reason>.+)\n")
_VERSION = re.compile(r"3\.\d+(?:\.\d+)?", re.ASCII)
_LIMITED = re.compile(r"[=<>~]")
# How uv goes on after what it could not use, whose versions stand behind its name.
_NOT_USED = (" has no usable wheels", " has no wheels with a matching Python")
_NOT_BUILT = re.compile(
    r"Failed to (?:build|download and build) `(?P<line>[\w.-]+==[^`]+)`", re.ASCII
)
_WORD = re.compile(r"[\w.-]+", re.ASCII)
# It becomes a line of a requirements file.
_LINE = re.compile(r"[A-Za-z0-9][\w.*+!,=<>~-]*", re.ASCII)


@dataclass(frozen=True)
class Choice:
    """`lines` have no wheel for `python`; each has one for all of `others`, newest first."""

    python: str
    lines: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def reason(self) -> str:
        few = " and ".join(f"`{line}`" for line in self.lines[:_NAMED])
        more = f" and {len(self.lines) - _NAMED} more" if len(self.lines) > _NAMED else ""
        verb = "has" if len(self.lines) == 1 else "have"
        return f"{few}{more} {verb} no wheel for Python {self.python}"


@dataclass(frozen=True)
class Taken:
    """A Python that was taken for a `reason`, as a lock says it."""

    python: str
    reason: str

    @property
    def mark(self) -> str:
        """A line that is a comment to pip."""
        return f"# python {self.python}: {self.reason}\n"

    @property
    def notice(self) -> str:
        return f"the environment has Python {self.python}: {self.reason}"


def in_lock(lock: str) -> Taken | None:
    """The Python that a lock is for, where it is not the one that the environment names."""
    match = _MARK.match(lock)
    return Taken(match["python"], match["reason"]) if match else None


def without(lock: str) -> str:
    """The lock without that line."""
    match = _MARK.match(lock)
    return lock[match.end() :] if match else lock


def is_free(spec: EnvironmentSpec) -> bool:
    """Whether the build may take another Python: nothing names one, or names a range."""
    return bool(spec.python) and (spec.is_any_python or not _VERSION.fullmatch(spec.python))


def choose(
    spec: EnvironmentSpec, error: BuildFailed, python: str, uv: Uv, folder: Path
) -> Choice | None:
    """The Pythons for which each requirement has a wheel, where `python` lacks one of some.

    `others` is empty where no single Python has them all. None where no Python is ruled out.

    Args:
        error: how the build with `python` (`3.11`) failed.
    """
    question = uv.quiet()
    lines = [line for line in spec.packages if _is_limited(line)]
    names = {package_name(line) for line in lines}
    lines += [line for line in _blamed(error) if package_name(line) not in names]
    missing = _without_wheel(spec, lines, python, question, folder)
    if not missing:
        return None
    if not any(_is_named(line, error) for line in missing):
        return None
    uv.say(f"no wheel for Python {python}: {', '.join(missing)}; looking for other Pythons")
    offered = [
        version for version in pythons.Pythons(uv.config.variables).minors() if version != python
    ]
    fitting = {
        line: {other for other in offered if _has_wheel(spec, [line], other, question, folder)}
        for line in missing
    }
    ruling = {line: others for line, others in fitting.items() if others}
    if not ruling:
        return None
    # The others' wheels count, too, which an older Python may lack.
    lines = [line for line in lines if line in ruling or line not in missing]
    shared = set.intersection(*ruling.values())
    others = [
        other
        for other in offered
        if other in shared and _has_wheel(spec, lines, other, question, folder)
    ]
    return Choice(python, tuple(ruling), tuple(others))


def allowed(spec: EnvironmentSpec, choice: Choice) -> list[str]:
    """Those of the other Pythons that the environment may have; of a range, those within it."""
    if spec.is_any_python:
        return list(choice.others)
    return [other for other in choice.others if _is_within(spec.python, other)]


def refusal(spec: EnvironmentSpec, choice: Choice) -> BuildFailed:
    """The error where the environment names a Python that the requirements rule out."""
    message = f"the packages can't be installed: {choice.reason}"
    if not choice.others:
        return BuildFailed(
            f"{message}, and no Python that can be had has wheels of them all",
            "name versions that were released for the same Python",
        )
    best = choice.others[0]
    return BuildFailed(
        f"{message}, which the environment names",
        f"Python {best} can have them: name it, as `python={best}` in a conda file or as "
        f"`image: python:{best}`, or name no Python",
    )


def exhausted(choice: Choice, python: str, failure: BuildFailed) -> BuildFailed:
    """The error where none of the other Pythons helped; `failure` is that of the last one tried."""
    return BuildFailed(
        f"the packages can't be installed: {choice.reason}, and with Python {python}: "
        f"{failure.message}",
        failure.hint,
        code=failure.code,
    )


def with_python(spec: EnvironmentSpec, python: str) -> EnvironmentSpec:
    """The spec of an environment that names this Python."""
    return replace(spec, python=python, is_any_python=False)


def _is_within(python: str, minor: str) -> bool:
    # The last part of the version is not known before it is installed.
    number = tuple(int(part) for part in minor.split("."))
    return pythons.fits(python, number) or pythons.fits(python, (*number, 99))


def _is_limited(line: str) -> bool:
    """Whether a requirement limits its versions; one from a URL has one file."""
    return "://" not in line and bool(_LIMITED.search(line.partition(";")[0]))


def _blamed(error: BuildFailed) -> list[str]:
    """What uv could not build or find a wheel of, which may be required by other packages only."""
    words = " ".join(error.words.split()) if isinstance(error, PackagesFailed) else ""
    lines = [before.rpartition(" ")[2] for after in _NOT_USED for before in words.split(after)[:-1]]
    lines += [match["line"] for match in _NOT_BUILT.finditer(words)]
    return list(dict.fromkeys(line for line in lines if _LINE.fullmatch(line)))


def _is_named(line: str, error: BuildFailed) -> bool:
    """Whether the error is about this requirement."""
    words = error.words if isinstance(error, PackagesFailed) else error.message
    return package_name(line) in map(package_name, _WORD.findall(words))


def _without_wheel(
    spec: EnvironmentSpec, lines: Sequence[str], python: str, uv: Uv, folder: Path
) -> list[str]:
    """Those of the lines that have no wheel for this Python."""
    remaining, missing = list(lines), []
    while remaining:
        outcome = _compile(spec, remaining, python, uv, folder)
        if outcome.code == 0 or is_unreachable(outcome.words):
            break
        name = package_name(package_at_fault(outcome.words))
        blamed = [line for line in remaining if package_name(line) == name]
        if not blamed:
            break
        # No Python helps against a mistyped name.
        missing += [] if "was not found" in outcome.words else blamed
        remaining = [line for line in remaining if line not in blamed]
    return missing


def _has_wheel(
    spec: EnvironmentSpec, lines: Sequence[str], python: str, uv: Uv, folder: Path
) -> bool:
    return _compile(spec, lines, python, uv, folder).code == 0


def _compile(
    spec: EnvironmentSpec, lines: Sequence[str], python: str, uv: Uv, folder: Path
) -> Outcome:
    file = folder / "wheels.in"
    file.write_text("".join(f"{line}\n" for line in (*spec.options, *lines)), encoding="utf-8")
    arguments = ["pip", "compile", file.name, "--output-file", "wheels.txt", "--quiet"]
    arguments += ["--python", pythons.interpreter(platform_python()), "--python-version", python]
    arguments += ["--no-deps", "--only-binary", ":all:"]
    return uv.run(arguments, folder, f"uv pip compile --python-version {python}")
