"""MLflow's filter and order-by language.

Owns: reading filters and orders, deciding what matches and what comes first.
Leaves: what an attribute's value is to a `lookup` that the caller passes.
Always: what is not understood is refused, never ignored.

    metrics.acc > 0.9 AND params.`my lr` = '0.1' AND tags.stage LIKE 'dev%'
    AND attributes.run_id IN ('a', 'b') AND tags.note IS NOT NULL
"""

from __future__ import annotations

import base64
import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torchyard.base.errors import InvalidInput
from torchyard.jobs.requests.run_search import Condition as Condition
from torchyard.jobs.requests.run_search import Order as Order

T = TypeVar("T")
Lookup = Callable[[T, str, str], Any]

_KINDS = {
    "metric": "metric",
    "metrics": "metric",
    "param": "param",
    "params": "param",
    "parameter": "param",
    "parameters": "param",
    "tag": "tag",
    "tags": "tag",
    "attribute": "attribute",
    "attributes": "attribute",
    "attr": "attribute",
    "run": "attribute",
    "dataset": "dataset",
    "datasets": "dataset",
}
_ALIASES = {
    "created": "start_time",
    "Created": "start_time",
    "run name": "run_name",
    "Run name": "run_name",
    "Run Name": "run_name",
}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMERIC_OPERATORS = frozenset(_COMPARE)
_TEXT_OPERATORS = frozenset({"=", "!=", "LIKE", "ILIKE", "IN", "NOT IN"})
# Beyond all that can be there, and small enough for a database to count from.
_MOST_OFFSET = 2**53
_DATASET_KEYS = frozenset({"name", "digest", "context"})
_NULL_OPERATORS = frozenset({"IS NULL", "IS NOT NULL"})

_NAME = r"(?:`[^`]+`|\"[^\"]+\"|[\w.\-/]+)"
_TEXT = r"(?:'[^']*'|\"[^\"]*\")"
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_CLAUSE = re.compile(
    rf"""\s*
    (?:(?P<kind>[A-Za-z]+)\.)?(?P<key>{_NAME})\s*
    (?:
      (?P<null>IS\s+(?:NOT\s+)?NULL)
    | (?P<list_op>(?:NOT\s+)?IN)\s*\((?P<list>\s*{_TEXT}(?:\s*,\s*{_TEXT})*\s*,?\s*)\)
    | (?P<op>!=|<=|>=|=|<|>|I?LIKE\b)\s*(?P<value>{_TEXT}|{_NUMBER})
    )
    \s*""",
    re.VERBOSE | re.IGNORECASE,
)
_AND = re.compile(r"AND\b", re.IGNORECASE)
_ORDER = re.compile(
    rf"\s*(?:(?P<kind>[A-Za-z]+)\.)?(?P<key>{_NAME}|[Rr]un [Nn]ame)(?:\s+(?P<way>asc|desc))?\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Language:
    """What may be asked of one kind of thing."""

    text_attributes: frozenset[str]
    number_attributes: frozenset[str]
    kinds: frozenset[str]


RUNS = Language(
    frozenset({"run_id", "run_name", "status", "user_id", "artifact_uri"}),
    frozenset({"start_time", "end_time"}),
    frozenset({"metric", "param", "tag", "attribute", "dataset"}),
)
EXPERIMENTS = Language(
    frozenset({"name", "experiment_id"}),
    frozenset({"creation_time", "last_update_time"}),
    frozenset({"tag", "attribute"}),
)


def holds(condition: Condition, actual: Any) -> bool:
    """Whether a value fits, decided here and not by a database."""
    wanted = condition.value
    if condition.operator == "IS NULL":
        return actual is None
    if condition.operator == "IS NOT NULL":
        return actual is not None
    if actual is None:
        return False
    if condition.operator in _COMPARE:
        return _COMPARE[condition.operator](actual, wanted)
    if condition.operator in ("IN", "NOT IN"):
        return (actual in wanted) == (condition.operator == "IN")
    flags = re.DOTALL | (re.IGNORECASE if condition.operator == "ILIKE" else 0)
    pattern = re.escape(wanted).replace("%", ".*").replace("_", ".")
    return re.fullmatch(pattern, actual, flags) is not None


def read_filter(text: str, language: Language) -> list[Condition]:
    """
    Raises:
        InvalidInput: names the place that is not understood.
    """
    conditions: list[Condition] = []
    place = 0
    while text[place:].strip():
        if conditions:
            joined = _AND.match(text, place)
            if joined is None:
                raise _not_understood(text, place)
            place = joined.end()
        found = _CLAUSE.match(text, place)
        if found is None:
            raise _not_understood(text, place)
        conditions.append(_condition(found, language))
        place = found.end()
    return conditions


def read_orders(texts: Sequence[str], language: Language) -> list[Order]:
    """
    Raises:
        InvalidInput: names the order that is not understood.
    """
    orders = []
    for text in texts:
        found = _ORDER.match(text)
        if found is None:
            raise InvalidInput(f"order_by `{text}` is not understood", "write `metrics.loss DESC`")
        kind, key = _place(found, language)
        orders.append(Order(kind, key, (found["way"] or "asc").lower() == "desc"))
    return orders


def select(items: Sequence[T], conditions: Sequence[Condition], lookup: Lookup[T]) -> list[T]:
    """Those for which every condition holds."""
    return [
        item
        for item in items
        if all(holds(one, lookup(item, one.kind, one.key)) for one in conditions)
    ]


def arrange(items: list[T], orders: Sequence[Order], lookup: Lookup[T]) -> None:
    """Sort in place; what has no value comes last either way, a NaN just before it."""
    for order in reversed(orders):
        ranked = [(_rank(lookup(item, order.kind, order.key)), item) for item in items]
        numbers = [(rank, item) for rank, item in ranked if rank[0] == 0]
        numbers.sort(key=lambda pair: pair[0][1], reverse=order.descending)
        rest = sorted((pair for pair in ranked if pair[0][0]), key=lambda pair: pair[0][0])
        items[:] = [item for _, item in numbers + rest]


def page(items: Sequence[T], token: str, size: int) -> tuple[Sequence[T], str]:
    """One page and the token of the next, empty at the end.

    Raises:
        InvalidInput: the token was not made here.
    """
    start = read_token(token)
    following = start + size
    return items[start:following], page_token(following) if following < len(items) else ""


def paged(
    token: str, size: int, find: Callable[[int, int], Sequence[T]]
) -> tuple[Sequence[T], str]:
    """One page of what `find` answers to an offset and a limit, and the token of the next.

    Raises:
        InvalidInput: the token was not made here.
    """
    offset = read_token(token)
    # One more than asked for tells whether there is a next page.
    found = find(offset, size + 1)
    return found[:size], page_token(offset + size) if len(found) > size else ""


def page_token(offset: int) -> str:
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()


def read_token(token: str) -> int:
    """
    Raises:
        InvalidInput: the token was not made by `page_token`.
    """
    if not token:
        return 0
    try:
        offset = json.loads(base64.b64decode(token))["offset"]
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidInput("the page token is not one of ours", "ask for the first page") from error
    if type(offset) is not int or not 0 <= offset <= _MOST_OFFSET:
        raise InvalidInput("the page token is not one of ours", "ask for the first page")
    return offset


def _condition(found: re.Match[str], language: Language) -> Condition:
    kind, key = _place(found, language)
    if found["null"]:
        shown = " ".join(found["null"].upper().split())
        return _checked(Condition(kind, key, shown), language)
    if found["list"]:
        texts = tuple(text[1:-1] for text in re.findall(_TEXT, found["list"]))
        shown = " ".join(found["list_op"].upper().split())
        return _checked(Condition(kind, key, shown, texts), language)
    value = found["value"]
    read = value[1:-1] if value[0] in "'\"" else float(value)
    return _checked(Condition(kind, key, found["op"].upper(), read), language)


def _checked(condition: Condition, language: Language) -> Condition:
    numeric = condition.kind == "metric" or (
        condition.kind == "attribute" and condition.key in language.number_attributes
    )
    legal = _NUMERIC_OPERATORS if numeric else _TEXT_OPERATORS
    if condition.kind in ("tag", "param"):
        legal = legal | _NULL_OPERATORS
    name = f"{condition.kind}.{condition.key}"
    if condition.operator not in legal:
        raise InvalidInput(
            f"Invalid comparator '{condition.operator}' for `{name}`, not one of {sorted(legal)}"
        )
    if condition.operator not in _NULL_OPERATORS and numeric != isinstance(condition.value, float):
        wanted = "a number" if numeric else "a text in quotes"
        raise InvalidInput(f"`{name}` is compared with {wanted}")
    return condition


def _place(found: re.Match[str], language: Language) -> tuple[str, str]:
    word, key = found["kind"], found["key"]
    if key[0] in '`"':
        key = key[1:-1]
    if word is None:
        kind = "attribute"
    elif word.lower() in _KINDS and _KINDS[word.lower()] in language.kinds:
        kind = _KINDS[word.lower()]
    else:
        raise InvalidInput(
            f"Invalid entity type '{word}'. Valid values are {sorted(language.kinds)}"
        )
    if kind == "attribute":
        key = _ALIASES.get(key, key)
        known = language.text_attributes | language.number_attributes
        if key not in known:
            raise InvalidInput(
                f"Invalid attribute key '{key}' specified. Valid keys are {sorted(known)}"
            )
    if kind == "tag" and '"' in key:
        # No database finds such a key in JSON.
        raise InvalidInput(f"a tag whose key holds a double quote can't be asked for: `{key}`")
    if kind == "dataset" and key not in _DATASET_KEYS:
        raise InvalidInput(
            f"Invalid dataset key '{key}' specified. Valid keys are {sorted(_DATASET_KEYS)}"
        )
    return kind, key


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 2, None
    return (1, None) if value != value else (0, value)


def _not_understood(text: str, place: int) -> InvalidInput:
    return InvalidInput(
        f"filter `{text}` is not understood at `{text[place : place + 40].strip()}`",
        "write comparisons joined by AND, such as metrics.acc > 0.9 AND tags.a = 'b'",
    )
