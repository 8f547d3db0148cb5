"""MLflow's filter and order-by language.

Owns: parsing filters and orders, matching, sorting, pages.
Leaves: the value of an attribute to a `lookup` that the caller passes.
Always: a filter or order that can't be parsed is refused, never ignored.

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
# More than any search finds, and small enough for a database's OFFSET.
_MAX_OFFSET = 2**53
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
    rf"\s*(?:(?P<kind>[A-Za-z]+)\.)?(?P<key>{_NAME}|[Rr]un [Nn]ame)"
    r"(?:\s+(?P<direction>asc|desc))?\s*$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Language:
    """What filters and orders of one kind of item may name."""

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


def matches(condition: Condition, actual: Any) -> bool:
    """Whether a value meets a condition, without a database."""
    expected = condition.value
    if condition.operator == "IS NULL":
        return actual is None
    if condition.operator == "IS NOT NULL":
        return actual is not None
    if actual is None:
        return False
    if condition.operator in _COMPARE:
        return _COMPARE[condition.operator](actual, expected)
    if condition.operator in ("IN", "NOT IN"):
        return (actual in expected) == (condition.operator == "IN")
    flags = re.DOTALL | (re.IGNORECASE if condition.operator == "ILIKE" else 0)
    pattern = re.escape(expected).replace("%", ".*").replace("_", ".")
    return re.fullmatch(pattern, actual, flags) is not None


def parse_filter(text: str, language: Language) -> list[Condition]:
    """
    Raises:
        InvalidInput: quotes the part that can't be parsed.
    """
    conditions: list[Condition] = []
    position = 0
    while text[position:].strip():
        if conditions:
            conjunction = _AND.match(text, position)
            if conjunction is None:
                raise _invalid_filter(text, position)
            position = conjunction.end()
        clause = _CLAUSE.match(text, position)
        if clause is None:
            raise _invalid_filter(text, position)
        conditions.append(_parse_condition(clause, language))
        position = clause.end()
    return conditions


def parse_order_by(texts: Sequence[str], language: Language) -> list[Order]:
    """
    Raises:
        InvalidInput: quotes the order that can't be parsed.
    """
    orders = []
    for text in texts:
        match = _ORDER.match(text)
        if match is None:
            raise InvalidInput(f"can't parse order_by `{text}`", "write `metrics.loss DESC`")
        kind, key = _kind_and_key(match, language)
        orders.append(Order(kind, key, (match["direction"] or "asc").lower() == "desc"))
    return orders


def filter_items(items: Sequence[T], conditions: Sequence[Condition], lookup: Lookup[T]) -> list[T]:
    """The items that meet every condition."""
    return [
        item
        for item in items
        if all(
            matches(condition, lookup(item, condition.kind, condition.key))
            for condition in conditions
        )
    ]


def sort_items(items: list[T], orders: Sequence[Order], lookup: Lookup[T]) -> None:
    """Sort in place; in both directions, NaN and then items without a value come last."""
    for order in reversed(orders):
        keyed = [(_sort_key(lookup(item, order.kind, order.key)), item) for item in items]
        with_value = [(key, item) for key, item in keyed if key[0] == 0]
        with_value.sort(key=lambda pair: pair[0][1], reverse=order.descending)
        rest = sorted((pair for pair in keyed if pair[0][0]), key=lambda pair: pair[0][0])
        items[:] = [item for _, item in with_value + rest]


def slice_page(items: Sequence[T], token: str, size: int) -> tuple[Sequence[T], str]:
    """One page and the token of the next one, empty after the last.

    Raises:
        InvalidInput: the token is not one of `make_page_token`.
    """
    start = parse_page_token(token)
    end = start + size
    return items[start:end], make_page_token(end) if end < len(items) else ""


def find_page(
    token: str, size: int, find: Callable[[int, int], Sequence[T]]
) -> tuple[Sequence[T], str]:
    """One page of what `find` returns for an offset and a limit, and the token of the next one.

    Raises:
        InvalidInput: the token is not one of `make_page_token`.
    """
    offset = parse_page_token(token)
    # One item more than the page holds tells whether there is a next page.
    items = find(offset, size + 1)
    return items[:size], make_page_token(offset + size) if len(items) > size else ""


def make_page_token(offset: int) -> str:
    return base64.b64encode(json.dumps({"offset": offset}).encode()).decode()


def parse_page_token(token: str) -> int:
    """
    Raises:
        InvalidInput: the token is not one of `make_page_token`.
    """
    if not token:
        return 0
    try:
        offset = json.loads(base64.b64decode(token))["offset"]
    except (ValueError, KeyError, TypeError) as error:
        raise _invalid_page_token() from error
    if type(offset) is not int or not 0 <= offset <= _MAX_OFFSET:
        raise _invalid_page_token()
    return offset


def _parse_condition(clause: re.Match[str], language: Language) -> Condition:
    kind, key = _kind_and_key(clause, language)
    if clause["null"]:
        name = " ".join(clause["null"].upper().split())
        return _checked(Condition(kind, key, name), language)
    if clause["list"]:
        texts = tuple(text[1:-1] for text in re.findall(_TEXT, clause["list"]))
        name = " ".join(clause["list_op"].upper().split())
        return _checked(Condition(kind, key, name, texts), language)
    literal = clause["value"]
    value = literal[1:-1] if literal[0] in "'\"" else float(literal)
    return _checked(Condition(kind, key, clause["op"].upper(), value), language)


def _checked(condition: Condition, language: Language) -> Condition:
    """
    Raises:
        InvalidInput: the operator or the value does not suit the attribute.
    """
    is_numeric = condition.kind == "metric" or (
        condition.kind == "attribute" and condition.key in language.number_attributes
    )
    operators = _NUMERIC_OPERATORS if is_numeric else _TEXT_OPERATORS
    if condition.kind in ("tag", "param"):
        operators = operators | _NULL_OPERATORS
    name = f"{condition.kind}.{condition.key}"
    if condition.operator not in operators:
        raise InvalidInput(
            f"Invalid comparator '{condition.operator}' for `{name}`, "
            f"not one of {sorted(operators)}"
        )
    is_number = isinstance(condition.value, float)
    if condition.operator not in _NULL_OPERATORS and is_numeric != is_number:
        operand = "a number" if is_numeric else "a quoted string"
        raise InvalidInput(f"`{name}` must be compared with {operand}")
    return condition


def _kind_and_key(match: re.Match[str], language: Language) -> tuple[str, str]:
    word, key = match["kind"], match["key"]
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
        valid_keys = language.text_attributes | language.number_attributes
        if key not in valid_keys:
            raise InvalidInput(
                f"Invalid attribute key '{key}' specified. Valid keys are {sorted(valid_keys)}"
            )
    if kind == "tag" and '"' in key:
        # Databases can't find such a key in JSON.
        raise InvalidInput(f"can't search for a tag whose key has a double quote: `{key}`")
    if kind == "dataset" and key not in _DATASET_KEYS:
        raise InvalidInput(
            f"Invalid dataset key '{key}' specified. Valid keys are {sorted(_DATASET_KEYS)}"
        )
    return kind, key


def _sort_key(value: Any) -> tuple[int, Any]:
    if value is None:
        return 2, None
    return (1, None) if value != value else (0, value)


def _invalid_page_token() -> InvalidInput:
    return InvalidInput("invalid page token", "request the first page")


def _invalid_filter(text: str, position: int) -> InvalidInput:
    return InvalidInput(
        f"can't parse filter `{text}` at `{text[position : position + 40].strip()}`",
        "write comparisons joined by AND, such as metrics.acc > 0.9 AND tags.a = 'b'",
    )
