"""What differs between two texts, line by line, in time that their length bounds.

Owns: the shortest list of removed and added lines; cutting it into hunks.
Leaves: which files are compared to job_code.py.
Always: texts that differ in more than `MOST_CHANGES` lines between their common ends are one
removal and one addition there, so that no text takes long.

Source: E. Myers, An O(ND) Difference Algorithm and Its Variations, Algorithmica 1986.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

MOST_CHANGES = 400
_CONTEXT = 3

Line = tuple[Literal[" ", "-", "+"], str]
"""A sign and the line's text."""


@dataclass(frozen=True)
class Hunk:
    """Changed lines with those around them; the starts count from 1."""

    old_start: int
    new_start: int
    lines: list[Line]


def hunks(old: Sequence[str], new: Sequence[str]) -> list[Hunk]:
    """The changes that make `new` of `old`, each with three equal lines before and after it."""
    lines = changed_lines(old, new)
    context = {
        index
        for changed, (sign, _) in enumerate(lines)
        if sign != " "
        for index in range(changed - _CONTEXT, changed + _CONTEXT + 1)
    }
    parts: list[Hunk] = []
    old_number, new_number, is_open = 1, 1, False
    for index, (sign, text) in enumerate(lines):
        if index in context:
            if not is_open:
                parts.append(Hunk(old_number, new_number, []))
            parts[-1].lines.append((sign, text))
        is_open = index in context
        old_number += sign != "+"
        new_number += sign != "-"
    return parts


def changed_lines(old: Sequence[str], new: Sequence[str]) -> list[Line]:
    """Every line of both texts, equal ones once."""
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    middle = _shortest(old[start : len(old) - end], new[start : len(new) - end])
    lines: list[Line] = [(" ", text) for text in old[:start]]
    lines += middle
    lines.extend((" ", text) for text in old[len(old) - end :])
    return lines


def _shortest(old: Sequence[str], new: Sequence[str]) -> list[Line]:
    # reached[k] is how far into `old` one gets on diagonal k, where k is the place in `old` minus
    # that in `new`; `rounds` keeps what it was before each change.
    reached, rounds = {1: 0}, []
    for changes in range(min(len(old) + len(new), MOST_CHANGES) + 1):
        rounds.append(dict(reached))
        for k in range(-changes, changes + 1, 2):
            x = _begin(reached, k, changes)
            while x < len(old) and x - k < len(new) and old[x] == new[x - k]:
                x += 1
            reached[k] = x
            if x >= len(old) and x - k >= len(new):
                return _walk_back(old, new, rounds)
    removed: list[Line] = [("-", text) for text in old]
    added: list[Line] = [("+", text) for text in new]
    return removed + added


def _begin(reached: dict[int, int], k: int, changes: int) -> int:
    """The place in `old` after an addition (from diagonal k + 1) or a removal (from k - 1)."""
    if _is_addition(reached, k, changes):
        return reached[k + 1]
    return reached[k - 1] + 1


def _is_addition(reached: dict[int, int], k: int, changes: int) -> bool:
    return k == -changes or (k != changes and reached[k - 1] < reached[k + 1])


def _walk_back(
    old: Sequence[str], new: Sequence[str], rounds: Sequence[dict[int, int]]
) -> list[Line]:
    lines: list[Line] = []
    x, y = len(old), len(new)
    for changes in range(len(rounds) - 1, -1, -1):
        k = x - y
        begin = _begin(rounds[changes], k, changes)
        while x > begin:
            x, y = x - 1, y - 1
            lines.append((" ", old[x]))
        if changes:
            if _is_addition(rounds[changes], k, changes):
                y -= 1
                lines.append(("+", new[y]))
            else:
                x -= 1
                lines.append(("-", old[x]))
    return lines[::-1]
