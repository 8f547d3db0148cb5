"""Set one value inside a document by its path: `inputs.lr`, `limits.timeout`, `tags.a.b`.

Owns: how paths are written and what they lead to.
Leaves: values from a command line to cli/parsing/documents.py.
Always: what is not on the path stays as it is.
"""

from __future__ import annotations

import re
from typing import Any

from torchyard.base.errors import InvalidInput

# Mappings from names to strings: nothing is nested below them.
_FLAT = ("properties", "tags")
_STEP = re.compile(
    r"""(?:"(?P<quoted>[^"]+)"|(?P<plain>[^."\[\]]+))(?P<positions>(?:\[\d+\])*)(?P<dot>\.?)"""
)

At = tuple[str | int, ...]


def steps_of(path: str) -> At:
    """The path's steps; empty if it is malformed.

    A name that contains dots needs double quotes: `a."b.c"`. Below `properties` and `tags`, whose
    values are never mappings, the rest is one name and needs none.
    """
    steps: list[str | int] = []
    rest = path.strip()
    while True:
        match = _STEP.match(rest)
        if match is None or not (match["quoted"] or match["plain"]):
            return ()
        name = match["quoted"] or match["plain"]
        steps += [name, *(int(position) for position in re.findall(r"\d+", match["positions"]))]
        rest, more = rest[match.end() :], match["dot"]
        if not more:
            return () if rest else tuple(steps)
        if name in _FLAT and not rest.startswith('"'):
            return (*steps, rest) if rest else ()


def assign(document: dict[str, Any], steps: At, value: Any, assignment: str) -> None:
    """Set the value at `steps`, at least one; mappings and lists on the way are made.

    Args:
        assignment: as it was written, for the message.

    Raises:
        InvalidInput: a step of the path is neither mapping nor list.
    """
    parent: Any = document
    for position, step in enumerate(steps[:-1]):
        parent = _descend(parent, step, steps[position + 1], assignment)
    last = steps[-1]
    if isinstance(parent, dict):
        parent[str(last)] = value
    elif isinstance(parent, list) and isinstance(last, int) and 0 <= last <= len(parent):
        parent[last : last + 1] = [value]
    else:
        raise _no_step(last, assignment)


def _descend(parent: Any, step: str | int, following: str | int, assignment: str) -> Any:
    if isinstance(parent, dict):
        key = str(step)
        if parent.get(key) is None:
            parent[key] = [] if isinstance(following, int) else {}
        return parent[key]
    if isinstance(parent, list) and str(step).isdecimal() and int(step) < len(parent):
        return parent[int(step)]
    raise _no_step(step, assignment)


def _no_step(step: str | int, assignment: str) -> InvalidInput:
    return InvalidInput(
        f"`{assignment}`: nothing can be set at `{step}`",
        "the value before it must be a mapping, or a list that is long enough",
    )
