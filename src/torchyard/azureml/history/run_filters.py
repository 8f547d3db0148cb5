"""The run history's filter language for runs.

Owns: reading `RunId eq a or (Status eq Failed and Tags/k eq v)`, and whether a run matches.
Leaves: selecting runs to run_routes.py.
Always: a condition that can't be read is refused; none is ignored.

Source: https://docs.oasis-open.org/odata/odata/v4.01/odata-v4.01-part2-url-conventions.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from torchyard.base.errors import InvalidInput

Condition = Callable[[Mapping[str, Any]], bool]

# SDK v1 writes the values of tags as JSON.
_TOKEN = re.compile(r"""\s*(\(|\)|'(?:[^']|'')*'|"(?:[^"\\]|\\.)*"|[^\s()]+)""")
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "eq": lambda actual, value: actual == value,
    "ne": lambda actual, value: actual != value,
    "ge": lambda actual, value: actual >= value,
    "gt": lambda actual, value: actual > value,
    "le": lambda actual, value: actual <= value,
    "lt": lambda actual, value: actual < value,
}
_MAPS = {"tags": "tags", "properties": "properties"}
_MAX_DEPTH = 50


def read(text: str) -> Condition:
    """The condition of a filter on a run's JSON (see runs.py); an empty filter matches all.

    Raises:
        InvalidInput: it can't be read.
    """
    if not text.strip():
        return lambda run: True
    tokens = _TOKEN.findall(text)
    if text.count("(") > _MAX_DEPTH:
        raise _invalid(text)
    try:
        condition, remaining = _either(tokens)
    except IndexError as error:
        raise _invalid(text) from error
    if remaining:
        raise _invalid(" ".join(remaining))
    return condition


def _either(tokens: list[str]) -> tuple[Condition, list[str]]:
    condition, tokens = _both(tokens)
    while tokens and tokens[0].lower() == "or":
        other, tokens = _both(tokens[1:])
        condition = _or(condition, other)
    return condition, tokens


def _both(tokens: list[str]) -> tuple[Condition, list[str]]:
    condition, tokens = _condition(tokens)
    while tokens and tokens[0].lower() == "and":
        other, tokens = _condition(tokens[1:])
        condition = _and(condition, other)
    return condition, tokens


def _condition(tokens: list[str]) -> tuple[Condition, list[str]]:
    if tokens[0] == "(":
        condition, remaining = _either(tokens[1:])
        if remaining[0] != ")":
            raise _invalid(" ".join(remaining))
        return condition, remaining[1:]
    key, operator, value = tokens[0], tokens[1].lower(), tokens[2]
    compare = _COMPARISONS.get(operator)
    if compare is None:
        raise _invalid(" ".join(tokens[:3]))
    return _comparison(key, operator, compare, _plain(value)), tokens[3:]


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


def _or(first: Condition, second: Condition) -> Condition:
    return lambda run: first(run) or second(run)


def _and(first: Condition, second: Condition) -> Condition:
    return lambda run: first(run) and second(run)


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        f"the filter `{text[:200]}` can't be read",
        "write conditions as `RunId eq <id>`, joined by `and` and `or`",
        at=["filter"],
    )
