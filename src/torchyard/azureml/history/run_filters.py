"""The run history's filter language for runs.

Owns: reading `RunId eq a or (Status eq Failed and Tags/k eq v)`, and whether a run matches.
Leaves: selecting runs to run_routes.py.
Always: a condition that can't be read is refused; none is ignored.

Source: https://docs.oasis-open.org/odata/odata/v4.01/odata-v4.01-part2-url-conventions.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.base.fields import bounded

Condition = Callable[[Mapping[str, Any]], bool]

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s()]+")
# SDK v1 writes the values of tags as JSON.
_QUOTED = {
    "'": re.compile(r"'[^']*'(?:'[^']*')*"),
    '"': re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL),
}
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "eq": lambda actual, value: actual == value,
    "ne": lambda actual, value: actual != value,
    "ge": lambda actual, value: actual >= value,
    "gt": lambda actual, value: actual > value,
    "le": lambda actual, value: actual <= value,
    "lt": lambda actual, value: actual < value,
}
_MAPS = {"tags": "tags", "properties": "properties"}
_LONGEST = 64 << 10
_MAX_DEPTH = 50
_MOST_CONDITIONS = 500


def read(text: str) -> Condition:
    """The condition of a filter on a run's JSON (see runs.py); an empty filter matches all.

    Raises:
        InvalidInput: it can't be read.
    """
    bounded(text, _LONGEST, "the filter", at=["filter"])
    parser = _Parser(list(_tokens(text)))
    if not parser.tokens:
        return lambda run: True
    condition = parser.either(0)
    if parser.position < len(parser.tokens):
        raise parser.unexpected()
    return condition


def _tokens(text: str) -> Iterator[str]:
    """Parentheses, quoted texts and words."""
    position = 0
    while (position := _end(_SPACE, text, position)) < len(text):
        start = position
        character = text[start]
        if character in "()":
            position += 1
        else:
            position = _end(_QUOTED.get(character, _WORD), text, start)
        if position == start:
            raise _invalid(text[start:])
        yield text[start:position]


def _end(pattern: re.Pattern[str], text: str, start: int) -> int:
    """Where what the pattern matches ends; `start` if it does not match."""
    match = pattern.match(text, start)
    return match.end() if match else start


class _Parser:
    """The tokens and how many of them are read."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.position = 0
        self._conditions = 0

    def either(self, depth: int) -> Condition:
        """Conditions that are joined by `or`, of which `and` binds closer."""
        conditions = [self._all(depth)]
        while self._next().lower() == "or":
            self.position += 1
            conditions.append(self._all(depth))
        return _any_of(conditions)

    def unexpected(self) -> InvalidInput:
        return _invalid(" ".join(self.tokens[self.position : self.position + 20]))

    def _all(self, depth: int) -> Condition:
        conditions = [self._condition(depth)]
        while self._next().lower() == "and":
            self.position += 1
            conditions.append(self._condition(depth))
        return _all_of(conditions)

    def _condition(self, depth: int) -> Condition:
        if self._next() == "(":
            if depth == _MAX_DEPTH:
                raise InvalidInput(
                    f"the filter nests parentheses more than {_MAX_DEPTH} deep",
                    "leave out those that change nothing",
                    at=["filter"],
                )
            self.position += 1
            condition = self.either(depth + 1)
            if self._next() != ")":
                raise self.unexpected()
            self.position += 1
            return condition
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS:
            raise InvalidInput(
                f"the filter has more than {_MOST_CONDITIONS} conditions",
                "ask in several requests",
                at=["filter"],
            )
        key, operator, value = (*self.tokens[self.position : self.position + 3], "", "", "")[:3]
        compare = _COMPARISONS.get(operator.lower())
        if compare is None or not value:
            raise self.unexpected()
        self.position += 3
        return _comparison(key, operator.lower(), compare, _plain(value))

    def _next(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""


def _comparison(
    key: str, operator: str, compare: Callable[[str, str], bool], value: str
) -> Condition:
    def fits(run: Mapping[str, Any]) -> bool:
        actual = _value(run, key)
        if value == "null":
            # SDK v1 tests for a tag by `Tags/k ne null or Tags/k eq null`.
            return actual is not None
        return actual is not None and compare(actual, value)

    return (
        fits
        if value != "null" or "/" in key
        else lambda run: (_value(run, key) is None) == (operator == "eq")
    )


def _value(run: Mapping[str, Any], key: str) -> str | None:
    top, slash, below = key.partition("/")
    if slash and top.lower() in _MAPS:
        # An experiment has no properties.
        value = (run.get(_MAPS[top.lower()]) or {}).get(below)
    else:
        value = next((item for name, item in run.items() if name.lower() == key.lower()), None)
    return None if value is None else str(value)


def _plain(value: str) -> str:
    if value.startswith('"') and len(value) > 1:
        with suppress(ValueError):
            return str(json.loads(value))
    return value[1:-1].replace("''", "'") if value.startswith("'") and len(value) > 1 else value


def _any_of(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    return lambda run: any(condition(run) for condition in conditions)


def _all_of(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    return lambda run: all(condition(run) for condition in conditions)


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        f"the filter `{text[:200]}` can't be read",
        "write conditions as `RunId eq <id>`, joined by `and` and `or`",
        at=["filter"],
    )
