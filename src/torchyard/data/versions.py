"""What data assets, models, environments and components have in common: versions of a name.

Owns: finding the version that a text asks for, and what to say when there is none.
Leaves: the rows to the stores.
Always: `latest` is the newest that is not archived, or the newest when all are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from torchyard.base.errors import NotFound, nearest

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


def pick(noun: str, name: str, version: str, known: Sequence[T]) -> T:
    """The one of `known`, newest first and never empty, that `version` means.

    Raises:
        NotFound: with the versions there are.
    """
    if version == LATEST:
        return next((one for one in known if not one.archived), known[0])
    for one in known:
        if str(one.version) == version:
            return one
    there = sorted((str(one.version) for one in reversed(known)), key=_by_number)
    hint = f"it has {', '.join(there)}"
    if not version.isdecimal():
        hint += f"; the newest is `{name}@{LATEST}`"
    raise NotFound(f"{noun} `{name}` has no version `{version}`", hint)


def no_such_name(noun: str, workspace: str, name: str, names: Iterable[str]) -> NotFound:
    """What to raise when there is no version at all."""
    near = nearest(name, sorted(set(names)))
    hint = f"did you mean `{near}`?" if near else f"list what exists with `yard {noun} list`"
    return NotFound(f"{noun} `{name}` does not exist in workspace `{workspace}`", hint)


def next_of(taken: Iterable[str]) -> str:
    """The whole number after the largest of the versions there are, `1` for the first."""
    return str(max((int(one) for one in taken if one.isdecimal()), default=0) + 1)


def newest_of_each(found: Iterable[T]) -> list[T]:
    """The first of each name, sorted by name."""
    newest: dict[str, T] = {}
    for one in found:
        newest.setdefault(one.name, one)
    return [newest[name] for name in sorted(newest)]


def _by_number(version: str) -> tuple[int, int]:
    """Whole numbers by size, anything else before them as it comes."""
    return (1, int(version)) if version.isdecimal() else (0, 0)
