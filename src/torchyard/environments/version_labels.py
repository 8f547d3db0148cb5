"""What the label of an environment says, compared with what the environment answers.

Owns: the label of a version (name, tags, packages, Python, CUDA, machine, variables), the
comparison.
Leaves: asking an environment to selftest/in_environment/answer.py, reading its disk to contents.py.
Always: each difference is one sentence; what is not known on one side is not compared. A name says
a version where it has a package of the environment before a number, as `acpt-pytorch-2.13-cpu`. The
platform decides the build of torch and the last number of Python's version, so that a curated
environment's label leaves both open.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from torchyard.environments.names.curated_environments import Curated
from torchyard.environments.packages import layers, lock
from torchyard.environments.packages.requirements import normal
from torchyard.environments.types import EnvironmentSpec

# What names call packages.
_CALLED = {"pytorch": "torch", "sklearn": "scikit-learn", "tf": "tensorflow"}
# A part of a name between its dashes: `cuda13.0`, or `2.13` after the part `pytorch`.
_PART = re.compile(r"(?P<word>[a-z][a-z_]{0,63})?(?P<version>\d{1,8}(?:\.\d{1,8}){1,8})")
_PYTHON = re.compile(r"(?:\A|-)py(?P<major>3)(?P<minor>\d{1,2})(?=-|\Z)")
_RUNTIME = re.compile(r"nvidia-cuda-runtime(?:-cu\d{1,3})?")
# It comes with Python.
_BUNDLED = "pip"


@dataclass(frozen=True)
class Label:
    """What is said of a version; empty values, and a `cuda` of None, say nothing.

    `packages` are versions or URLs by name, all that it holds where `is_complete`. `cuda` is empty
    for a build of torch without CUDA, which the machine may have instead where `any_torch` holds.
    `python` is a version, its beginning, or a range.
    """

    name: str
    packages: Mapping[str, str]
    python: str = ""
    cuda: str | None = None
    machine: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True
    any_torch: bool = False


@dataclass(frozen=True)
class Answer:
    """What an environment, or its disk, says of itself; None is what was not asked.

    `torch` is what the module says, not its metadata; `variables` has those that are set.
    """

    packages: Mapping[str, str]
    python: str = ""
    torch: str | None = None
    cuda: str | None = None
    machine: str = ""
    variables: Mapping[str, str] | None = None


def of_lock(name: str, spec: EnvironmentSpec, text: str, tags: Mapping[str, str]) -> Label:
    """The label of a version that is built from a lock.

    Args:
        spec: with the Python that it was built with.
    """
    packages = {**lock.pins(text), **layers.versions(spec.layers)} if text else {}
    return Label(
        name,
        packages,
        spec.python,
        cuda_of(packages),
        machine_of(spec),
        dict(spec.variables),
        tags,
        is_complete=bool(text) and not spec.conda and spec.image is None,
    )


def of_curated(curated: Curated, machine: str) -> Label:
    """The label of a curated environment, as the docs' page and `yard environment show` print it.

    Args:
        machine: what it is built for here, as `x86_64`.
    """
    lines = (line.partition("==") for line in curated.packages)
    packages = {normal(name): version for name, _, version in lines}
    if "torch" in packages:
        packages["torch"] = packages["torch"].partition("+")[0]
    cuda = None
    if "torch" in packages:
        named_cuda = curated.name.partition("-cuda")[2]
        cuda = str(curated.contents.get("cuda", named_cuda))
    python = curated.python or ".".join(str(curated.contents.get("python", "")).split(".")[:2])
    return Label(
        curated.name,
        packages,
        python,
        cuda,
        machine,
        dict(curated.variables),
        is_complete=bool(curated.contents or curated.locked),
        any_torch=not curated.accelerator,
    )


def machine_of(spec: EnvironmentSpec) -> str:
    """`x86_64` of the platform `linux-x86_64-cpu`."""
    return "-".join(spec.platform.split("-")[1:-1])


def read_answer(document: Mapping[str, Any]) -> Answer:
    """What selftest/in_environment/answer.py printed; a value of another type is none."""
    packages, variables = document.get("packages"), document.get("variables")
    return Answer(
        {normal(name): version for name, version in _strings(packages).items()},
        str(document.get("python") or ""),
        _string(document.get("torch")),
        _string(document.get("cuda")),
        str(document.get("machine") or ""),
        _strings(variables) if isinstance(variables, dict) else None,
    )


def differences(label: Label, answer: Answer) -> list[str]:
    """In words, each way in which an environment differs from its label."""
    return [
        *_of_packages(label, answer),
        *_of_interpreter(label, answer),
        *_of_torch(label, answer),
        *_of_variables(label, answer),
        *_of_name(label, answer),
        *_of_tags(label, answer),
    ]


def cuda_of(packages: Mapping[str, str]) -> str | None:
    """The CUDA that torch was built for, as `13.0`; empty for a build without, None if unknown."""
    torch = packages.get("torch", "")
    if "+cu" in torch:
        digits = torch.partition("+cu")[2]
        return f"{digits[:-1]}.{digits[-1]}"
    if "+" in torch:
        return ""
    versions = (version for name, version in packages.items() if _RUNTIME.fullmatch(name))
    runtime = next(versions, "") if torch else ""
    return ".".join(runtime.split(".")[:2]) or None


def _of_packages(label: Label, answer: Answer) -> Iterator[str]:
    names = set(label.packages) | (set(answer.packages) if label.is_complete else set())
    for name in sorted(names):
        there, expected = answer.packages.get(name), label.packages.get(name)
        if there is None:
            yield f"{name} {expected} is in the label and not installed"
        elif name == _BUNDLED:
            continue
        elif expected is None:
            yield f"{name} {there} is installed and not in the label"
        elif "/" not in expected and not _is_same(there, expected):
            yield f"{name} is {there}, and the label says {expected}"


def _of_interpreter(label: Label, answer: Answer) -> Iterator[str]:
    if label.python and answer.python and not _is_in(answer.python, label.python):
        yield f"Python is {answer.python}, and the label says {label.python}"
    if label.machine and answer.machine and answer.machine != label.machine:
        yield f"the machine is {answer.machine}, and the label says {label.machine}"


def _of_torch(label: Label, answer: Answer) -> Iterator[str]:
    expected = label.packages.get("torch", "")
    if (
        expected
        and "/" not in expected
        and answer.torch is not None
        and not _is_same(answer.torch, expected)
    ):
        yield f"the module torch is {answer.torch}, and the label says {expected}"
    cudas = (label.cuda, "") if label.any_torch else (label.cuda,)
    if label.cuda is not None and answer.cuda is not None and answer.cuda not in cudas:
        yield f"torch is built {_for(answer.cuda)}, and the label says {_for(label.cuda)}"


def _of_variables(label: Label, answer: Answer) -> Iterator[str]:
    if answer.variables is None:
        return
    for name, expected in sorted(label.variables.items()):
        there = answer.variables.get(name)
        if there is None:
            yield f"variable {name} is not set, and the label says `{expected}`"
        elif there != expected:
            yield f"variable {name} is `{there}`, and the label says `{expected}`"


def _of_name(label: Label, answer: Answer) -> Iterator[str]:
    lower = label.name.lower()
    parts = lower.split("-")
    for before, part in zip(["", *parts], parts, strict=False):
        if part == "cpu" and answer.cuda:
            yield f"the name says cpu, and torch is built for CUDA {answer.cuda}"
        match = _PART.fullmatch(part)
        if match is None:
            continue
        word, version = match["word"] or before, match["version"]
        there = answer.packages.get(_CALLED.get(word, normal(word)))
        if word == "cuda":
            there = answer.cuda if answer.cuda or "torch" in answer.packages else None
        if there is not None and not _begins(there, version):
            yield f"the name says {word} {version}, and the build holds {there or 'none'}"
    python = _PYTHON.search(lower)
    if python is not None and answer.python:
        expected = f"{python['major']}.{python['minor']}"
        if not _begins(answer.python, expected):
            yield f"the name says Python {expected}, and the build holds {answer.python}"


def _of_tags(label: Label, answer: Answer) -> Iterator[str]:
    for key, value in label.tags.items():
        there = answer.packages.get(_CALLED.get(key.lower(), normal(key)))
        if there is not None and re.match(r"\d", value) and not _begins(there, value):
            yield f"tag `{key}` says {value}, and the build holds {there}"


def _for(cuda: str) -> str:
    return f"for CUDA {cuda}" if cuda else "without CUDA"


def _is_same(there: str, expected: str) -> bool:
    """Whether a version is the expected one; without a local part, `+cpu`, it may have any."""
    try:
        left, right = Version(there), Version(expected)
    except InvalidVersion:
        return there == expected
    return left == right if right.local else left.public == right.public


def _is_in(python: str, expected: str) -> bool:
    """Whether Python's version begins as is expected, or is in the range."""
    if expected[0].isdigit():
        return _begins(python, expected)
    try:
        return SpecifierSet(expected).contains(python, prereleases=True)
    except (InvalidSpecifier, InvalidVersion):
        return False


def _begins(version: str, expected: str) -> bool:
    parts, expected_parts = version.partition("+")[0].split("."), expected.split(".")
    return parts[: len(expected_parts)] == expected_parts


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _strings(values: Any) -> dict[str, str]:
    if not isinstance(values, dict):
        return {}
    return {key: value for key, value in values.items() if isinstance(value, str)}
