"""Whether an environment holds what its label says.

Owns: the comparison of a build with its lock, and with the versions in the environment's name and
tags.
Leaves: reading what is installed to environments/contents.py.
Always: what is compared is what is on the disk; a name says a version where it has a package of the
environment before a number, as `acpt-pytorch-2.13-cpu`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from packaging.version import InvalidVersion, Version

from torchyard.environments.packages import lock
from torchyard.environments.packages.requirements import normal

# What names call packages.
_CALLED = {"pytorch": "torch", "sklearn": "scikit-learn", "tf": "tensorflow"}
# A part of a name between its dashes: `cuda13.0`, or `2.13` after the part `pytorch`.
_PART = re.compile(r"(?P<word>[a-z][a-z_]{0,63})?(?P<version>\d{1,8}(?:\.\d{1,8}){1,8})")
_PYTHON = re.compile(r"(?:\A|-)py(?P<major>3)(?P<minor>\d{1,2})(?=-|\Z)")


def wrong(name: str, tags: Mapping[str, str], contents: Mapping[str, Any], text: str) -> list[str]:
    """In words, each way in which a build differs from its label.

    Args:
        contents: as `environments.contents.read` gives them.
        text: the lock of the build.
    """
    installed = {normal(package): str(version) for package, version in contents["packages"].items()}
    lines = []
    for package, version in lock.pins(text).items():
        there = installed.get(package)
        if there is None:
            lines.append(f"{package} {version} is in the lock and not installed")
        elif "/" not in version and not _is_same(there, version):
            lines.append(f"{package} is {there}, and the lock says {version}")
    lines += _by_name(name, installed, contents)
    lines += _by_tags(tags, installed)
    return lines


def _by_name(name: str, installed: Mapping[str, str], contents: Mapping[str, Any]) -> list[str]:
    lines, lower = [], name.lower()
    parts = lower.split("-")
    for before, part in zip(["", *parts], parts, strict=False):
        match = _PART.fullmatch(part)
        if match is None:
            continue
        word, version = match["word"] or before, match["version"]
        package = _CALLED.get(word, normal(word))
        there = installed.get(package)
        if word == "cuda":
            there = str(contents.get("cuda") or "") or None
        if there is not None and not _begins(there, version):
            lines.append(f"the name says {word} {version}, and the build holds {there}")
    python = _PYTHON.search(lower)
    if python is not None and contents["python"]:
        expected, there = f"{python['major']}.{python['minor']}", str(contents["python"])
        if not _begins(there, expected):
            lines.append(f"the name says Python {expected}, and the build holds {there}")
    return lines


def _by_tags(tags: Mapping[str, str], installed: Mapping[str, str]) -> list[str]:
    lines = []
    for key, value in tags.items():
        there = installed.get(_CALLED.get(key.lower(), normal(key)))
        if there is not None and re.match(r"\d", value) and not _begins(there, value):
            lines.append(f"tag `{key}` says {value}, and the build holds {there}")
    return lines


def _is_same(left: str, right: str) -> bool:
    """Whether two texts are one version: an index normalizes what a package says of itself."""
    try:
        return Version(left) == Version(right)
    except InvalidVersion:
        return left == right


def _begins(version: str, expected: str) -> bool:
    parts, wanted_parts = version.partition("+")[0].split("."), expected.split(".")
    return parts[: len(wanted_parts)] == wanted_parts
