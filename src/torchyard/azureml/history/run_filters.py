"""The run history's filter language for runs.

Owns: reading `RunId eq a or (Status eq Failed and Tags/k eq v)`, whether a run matches, and what
every job that matches has.
Leaves: selecting runs to run_routes.py.
Always: a condition that can't be read is refused; none is ignored.

Source: https://docs.oasis-open.org/odata/odata/v4.01/odata-v4.01-part2-url-conventions.html
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.base.fields import bounded
from torchyard.jobs.records.job_candidates import Having

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\s()]+")
_OPERATOR = re.compile(r"(?<=\s)(eq|ne|ge|gt|le|lt)(?=\s)", re.IGNORECASE)
_SINGLE_QUOTED = re.compile(r"'[^']*'(?:'[^']*')*")
# SDK v1 writes the values of tags between quotation marks and escapes none of those inside.
_LAST_QUOTE = re.compile(r'"(?=\s*(?:\)|\Z|(?:and|or)\b))', re.IGNORECASE)
# A value without quotes ends where its condition does.
_BARE_END = re.compile(r"\)|\s(?:and|or)(?:\s|\Z)|\Z", re.IGNORECASE)
# SDK v1 writes a time with a space between its date and its hours.
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:[\d:.+Z-]+")
_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "eq": lambda actual, value: actual == value,
    "ge": lambda actual, value: actual >= value,
    "gt": lambda actual, value: actual > value,
    "le": lambda actual, value: actual <= value,
    "lt": lambda actual, value: actual < value,
}
_MAPS = {"tags": "tags", "properties": "properties"}
# What a job is found by, in lower case.
# A secret shows as stars, which the job need not hold.
_STAR = "*"
_FOUND_BY = {"runid": "name", "status": "status", "parentrunid": "parent"}
_LONGEST = 64 << 10
_MAX_DEPTH = 50
_MOST_CONDITIONS = 500


@dataclass(frozen=True)
class Condition:
    """Whether a run's JSON matches; called with it.

    Args:
        requires: what every job that matches has, each of them.
    """

    test: Callable[[Mapping[str, Any]], bool]
    requires: tuple[Having, ...] = ()

    def __call__(self, run: Mapping[str, Any]) -> bool:
        return self.test(run)


def read(text: str) -> Condition:
    """The condition of a filter on a run's JSON (see runs.py); an empty filter matches all.

    Raises:
        InvalidInput: it can't be read.
    """
    bounded(text, _LONGEST, "the filter", at=["filter"])
    parser = _Parser(text)
    if parser.is_at_end:
        return Condition(lambda run: True)
    condition = parser.either(0)
    if not parser.is_at_end:
        raise parser.unexpected()
    return condition


class _Parser:
    """The text of a filter and how much of it is read; the rest begins with no space."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._conditions = 0
        self._operators = [match.start() for match in _OPERATOR.finditer(text)]
        self._move(0)

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._text)

    def either(self, depth: int) -> Condition:
        """Conditions that are joined by `or`, of which `and` binds closer."""
        conditions = [self._all(depth)]
        while self._takes("or"):
            conditions.append(self._all(depth))
        return _any_of(conditions)

    def unexpected(self) -> InvalidInput:
        return _invalid(self._text[self._position :])

    def _all(self, depth: int) -> Condition:
        conditions = [self._condition(depth)]
        while self._takes("and"):
            conditions.append(self._condition(depth))
        return _all_of(conditions)

    def _condition(self, depth: int) -> Condition:
        if self._takes("("):
            if depth == _MAX_DEPTH:
                raise InvalidInput(
                    f"the filter nests parentheses more than {_MAX_DEPTH} deep",
                    "leave out those that change nothing",
                    at=["filter"],
                )
            condition = self.either(depth + 1)
            if not self._takes(")"):
                raise self.unexpected()
            return condition
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS:
            raise InvalidInput(
                f"the filter has more than {_MOST_CONDITIONS} conditions",
                "ask in several requests",
                at=["filter"],
            )
        key, operator = self._key_and_operator()
        return _comparison(key, operator, self._values(may_have_spaces="/" in key))

    def _key_and_operator(self) -> tuple[str, str]:
        """The name of a tag or a property may hold spaces and parentheses, other keys do not."""
        number = bisect_left(self._operators, self._position)
        if number == len(self._operators):
            raise self.unexpected()
        position = self._operators[number]
        key = self._text[self._position : position].rstrip()
        if "/" not in key and not _WORD.fullmatch(key):
            raise self.unexpected()
        operator = self._text[position : position + 2].lower()
        self._move(position + 2)
        return key, operator

    def _values(self, may_have_spaces: bool) -> tuple[str, ...]:
        """What the value may mean; nothing for `null`, which is not `"null"`."""
        start, text = self._position, self._text
        if text.startswith("'", start):
            quoted = _SINGLE_QUOTED.match(text, start)
            if quoted is None:
                raise self.unexpected()
            self._move(quoted.end())
            return (quoted[0][1:-1].replace("''", "'"),)
        if text.startswith('"', start):
            last = _LAST_QUOTE.search(text, start + 1)
            if last is None:
                raise self.unexpected()
            self._move(last.end())
            return _meanings(text[start + 1 : last.start()])
        end = _BARE_END.search(text, start)
        value = text[start : end.start()].strip() if end else ""
        if not value or not (may_have_spaces or _WORD.fullmatch(value) or _TIME.fullmatch(value)):
            raise self.unexpected()
        self._move(start + len(value))
        return () if value == "null" else (value,)

    def _takes(self, word: str) -> bool:
        """Whether this comes next, which then is read."""
        end = self._position + len(word)
        if self._text[self._position : end].lower() != word:
            return False
        if word.isalpha() and not self._text[end : end + 1].isspace():
            return False
        self._move(end)
        return True

    def _move(self, position: int) -> None:
        match = _SPACE.match(self._text, position)
        self._position = match.end() if match else position


def _meanings(quoted: str) -> tuple[str, ...]:
    """A text between quotation marks as it stands, and what it means if it is JSON."""
    with suppress(ValueError):
        meaning = json.loads(f'"{quoted}"')
        return (quoted,) if meaning == quoted else (quoted, meaning)
    return (quoted,)


def _comparison(key: str, operator: str, values: tuple[str, ...]) -> Condition:
    top, slash, name = key.partition("/")
    if slash and top.lower() in _MAPS:
        return _comparison_below(_MAPS[top.lower()], name, operator, values)
    if not values:
        return Condition(lambda run: (_value(run, key) is None) == (operator == "eq"))
    kind = _FOUND_BY.get(key.lower())
    is_exact = operator == "eq" and not any(_STAR in value for value in values)
    requires = (Having(kind, "", values),) if kind and is_exact else ()
    return Condition(lambda run: _compares(operator, _value(run, key), values), requires)


def _comparison_below(part: str, name: str, operator: str, values: tuple[str, ...]) -> Condition:
    """Of a tag or a property. A tag without a value is there: SDK v1 asks for tags that are there
    by `Tags/k ne null or Tags/k eq null`.
    """

    def fits(run: Mapping[str, Any]) -> bool:
        # An experiment has no properties.
        texts = run.get(part) or {}
        if name not in texts:
            return False
        if not values:
            return (texts[name] is None) == (operator == "eq")
        return _compares(operator, texts[name], values)

    if part != "tags" or _STAR in name:
        return Condition(fits)
    is_exact = operator == "eq" and values and not any(_STAR in value for value in values)
    return Condition(fits, (Having("tag", name, values if is_exact else None),))


def _compares(operator: str, actual: Any, values: tuple[str, ...]) -> bool:
    if actual is None:
        return False
    if operator == "ne":
        return str(actual) not in values
    return any(_COMPARISONS[operator](str(actual), value) for value in values)


def _value(run: Mapping[str, Any], key: str) -> Any:
    return next((item for name, item in run.items() if name.lower() == key.lower()), None)


def _any_of(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    first, *others = conditions
    requires = tuple(
        either for having in first.requires if (either := _in_each(having, others)) is not None
    )
    return Condition(lambda run: any(condition(run) for condition in conditions), requires)


def _in_each(having: Having, others: Sequence[Condition]) -> Having | None:
    """What all jobs have of which each has this or fits one of the others; None for nothing."""
    values = having.values
    for other in others:
        same = next((more for more in other.requires if more.is_about(having)), None)
        if same is None:
            return None
        values = None if values is None or same.values is None else values + same.values
    return Having(having.kind, having.key, values)


def _all_of(conditions: Sequence[Condition]) -> Condition:
    if len(conditions) == 1:
        return conditions[0]
    requires = tuple(having for condition in conditions for having in condition.requires)
    return Condition(lambda run: all(condition(run) for condition in conditions), requires)


def _invalid(text: str) -> InvalidInput:
    return InvalidInput(
        f"the filter `{text[:200]}` can't be read",
        "write conditions as `RunId eq <id>`, joined by `and` and `or`",
        at=["filter"],
    )
