"""Which version of a name is meant.

Owns: finding the version that a text names, numbering the next, errors that name the versions.
Leaves: the rows to version_table.py.
Always: `latest` is the newest that is not archived, or the newest when all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from torchyard.base.errors import Conflict, NotFound, did_you_mean

LATEST = "latest"


class Versioned(Protocol):
    """One version of a name."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> int | str: ...
    @property
    def archived(self) -> bool: ...


T = TypeVar("T", bound=Versioned)


def pick(noun: str, name: str, version: str, assets: Sequence[T]) -> T:
    """The one of `assets`, newest first and never empty, that `version` means.

    Raises:
        NotFound: names the versions that exist.
    """
    if version == LATEST:
        return next((asset for asset in assets if not asset.archived), assets[0])
    for asset in assets:
        if str(asset.version) == version:
            return asset
    existing = sorted((str(asset.version) for asset in reversed(assets)), key=_by_number)
    hint = f"it has {', '.join(existing)}"
    if not version.isdecimal():
        hint += f"; the newest is `{name}@{LATEST}`"
    raise NotFound(f"{noun} `{name}` has no version `{version}`", hint)


def no_such_name(noun: str, workspace: str, name: str, names: Iterable[str]) -> NotFound:
    """The error for a name without any version."""
    hint = did_you_mean(name, sorted(set(names)), f"list what exists with `yard {noun} list`")
    return NotFound(f"{noun} `{name}` does not exist in workspace `{workspace}`", hint)


def taken(noun: str, name: str, version: str | int) -> Conflict:
    """The error for a new version whose number exists."""
    return Conflict(
        f"{noun} `{name}` already has a version `{version}`",
        "leave `version` out to get the next one",
        at=["version"],
    )


def other_content(noun: str, name: str, version: str) -> Conflict:
    """The error for an existing version that is registered again with another content."""
    return Conflict(
        f"{noun} `{name}` already has a version `{version}` with another content",
        "a version never changes: leave `version` out to get the next one",
        code="version_exists",
        at=["version"],
    )


def next_of(versions: Iterable[str]) -> str:
    """The whole number after the largest of the existing versions, `1` for the first."""
    numbers = (int(version) for version in versions if version.isdecimal())
    return str(max(numbers, default=0) + 1)


def newest_of_each(assets: Iterable[T]) -> list[T]:
    """The first of each name, sorted by name."""
    newest: dict[str, T] = {}
    for asset in assets:
        newest.setdefault(asset.name, asset)
    return [newest[name] for name in sorted(newest)]


def _by_number(version: str) -> tuple[int, int]:
    """Whole numbers by size, anything else before them, oldest first."""
    return (1, int(version)) if version.isdecimal() else (0, 0)
