"""Texts on which a pattern that backtracks takes long.

A pattern is slow where it repeats something and then fails: `\\s*` behind `\\s*`, a repetition in
a repetition, or a repetition whose beginning a search tries at every position. So each repetition
of a pattern gives texts: what stands before it, its body many times, and an end that does not fit.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

# Python's own reader of patterns; the first is its name since 3.11.
parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

Make = Callable[[int], str]
"""A text of about so many characters."""

_ENDS = ("\x00", "")
_MANY = 40
"""A repetition of more than that is one that a text can make long."""
_MOST_BODIES = 4
_PROBES = " aA1_-./\n\t\"'`({[:,$%\\=~"
_CATEGORIES: dict[str, Callable[[str], bool]] = {
    "DIGIT": str.isdigit,
    "SPACE": str.isspace,
    "WORD": lambda character: character.isalnum() or character == "_",
}


def texts(pattern: str | bytes, flags: int) -> list[Make]:
    """What makes the texts for a pattern."""
    tree = parser.parse(pattern, flags)
    made: dict[tuple[str, str, str], None] = {}
    for before, bodies in _repetitions(tree, ""):
        for body in bodies:
            for end in _ENDS:
                made[before, body, end] = None
            if before:
                made["", before, _ENDS[0]] = None
                made["", before + body, _ENDS[0]] = None
                # What stands between two repetitions, for one that takes it as well.
                for length in (len(before) // 2, len(before) - 1):
                    made[before[:length], before[length:], _ENDS[0]] = None
    for character in sorted(set(_literals(tree)))[:_MOST_BODIES]:
        made["", character, _ENDS[0]] = None
    return [_maker(*parts) for parts in made]


def _maker(before: str, body: str, end: str) -> Make:
    return lambda size: before + body * max(1, (size - len(before)) // len(body)) + end


def _repetitions(tree: Any, before: str) -> Iterator[tuple[str, Sequence[str]]]:
    """Each repetition without a small bound: a text that leads to it, and texts that it repeats."""
    for operation, value in tree:
        name = str(operation)
        if name.endswith("_REPEAT"):
            least, maximum, body = value
            if int(maximum) > _MANY:
                yield before, _bodies(body)
            yield from _repetitions(body, before)
            before += _shortest(body) * int(least)
            continue
        for inner in _inside(name, value):
            yield from _repetitions(inner, before)
        before += _shortest([(operation, value)])


def _inside(name: str, value: Any) -> Sequence[Any]:
    if name == "SUBPATTERN":
        return [value[-1]]
    if name == "BRANCH":
        return list(value[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [value[1]]
    if name == "ATOMIC_GROUP":
        return [value]
    return []


def _bodies(body: Any) -> list[str]:
    """Texts that a repetition may repeat: several of one character, otherwise the shortest."""
    items = list(body)
    if len(items) == 1 and str(items[0][0]) in ("IN", "ANY", "NOT_LITERAL"):
        return [character for character in _PROBES if _fits(items[0], character)][:_MOST_BODIES]
    alternatives = [text for text in _alternatives(items) if text]
    return list(dict.fromkeys(alternatives))[:_MOST_BODIES] or ["a"]


def _alternatives(items: Any) -> Iterator[str]:
    """The shortest text, and those with another branch or with one repetition more."""
    shortest = _shortest(items)
    yield shortest
    for position, (operation, value) in enumerate(items):
        head, tail = _shortest(items[:position]), _shortest(items[position + 1 :])
        name = str(operation)
        if name.endswith("_REPEAT"):
            for text in _bodies(value[2])[:2]:
                yield head + text * (int(value[0]) + 1) + tail
        for inner in _inside(name, value):
            for text in _alternatives(list(inner)):
                yield head + text + tail


def _shortest(items: Any) -> str:
    parts = []
    for operation, value in items:
        name = str(operation)
        if name == "LITERAL":
            parts.append(chr(value))
        elif name in ("IN", "ANY", "NOT_LITERAL"):
            fitting = (character for character in _PROBES if _fits((operation, value), character))
            parts.append(next(fitting, "a"))
        elif name.endswith("_REPEAT"):
            parts.append(_shortest(value[2]) * int(value[0]))
        elif name == "BRANCH":
            parts.append(min(map(_shortest, value[1]), key=len))
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            parts.append(_shortest(value[-1] if name == "SUBPATTERN" else value))
    return "".join(parts)


def _fits(item: Any, character: str) -> bool:
    operation, value = item
    name = str(operation)
    if name == "ANY":
        return character != "\n"
    if name == "NOT_LITERAL":
        return bool(chr(value) != character)
    members = list(value)
    negated = str(members[0][0]) == "NEGATE"
    return any(_is_member(member, character) for member in members[negated:]) != negated


def _is_member(member: Any, character: str) -> bool:
    operation, value = member
    name = str(operation)
    if name == "LITERAL":
        return bool(value == ord(character))
    if name == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    category = str(value).removeprefix("CATEGORY_")
    positive = category.removeprefix("NOT_")
    return _CATEGORIES[positive](character) != (positive != category)


def _literals(tree: Any) -> Iterator[str]:
    for operation, value in tree:
        name = str(operation)
        if name == "LITERAL":
            yield chr(value)
        elif name.endswith("_REPEAT"):
            yield from _literals(value[2])
        for inner in _inside(name, value):
            yield from _literals(inner)
