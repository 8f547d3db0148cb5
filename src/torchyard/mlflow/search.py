"""MLflow's filter and order-by language.

Owns: parsing filters and orders, matching, sorting, pages.
Leaves: the value of an attribute to a `lookup` that the caller passes.
Always: a filter or order that can't be parsed is refused, never ignored.

    metrics.acc > 0.9 AND params.`my lr` = '0.1' AND tags.stage LIKE 'dev%'
    AND attributes.run_id IN ('a', 'b') AND tags.note IS NOT NULL
"""

from __future__ import annotations

import base64
import functools
import json
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from torchyard.base.errors import InvalidInput
from torchyard.base.fields import bounded
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

# Every pattern is tried once where the reader stands; none tries a text twice.
_SPACE = re.compile(r"\s*")
_NAME = r"(?:`[^`]+`|\"[^\"]+\"|[\w.\-/]+)"
_KEY = re.compile(rf"(?:(?P<kind>[A-Za-z]+)\.)?(?P<key>{_NAME})")
_NULL = re.compile(r"IS\s+(?:NOT\s+)?NULL", re.IGNORECASE)
_IN = re.compile(r"(?:NOT\s+)?IN(?=[\s(])", re.IGNORECASE)
_OPERATOR = re.compile(r"!=|<=|>=|=|<|>|I?LIKE\b", re.IGNORECASE)
_TEXT = re.compile(r"'[^']*'|\"[^\"]*\"")
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_OPEN, _CLOSE, _COMMA = re.compile(r"\("), re.compile(r"\)"), re.compile(",")
_AND = re.compile(r"AND\b", re.IGNORECASE)
_RUN_NAME = re.compile(r"run name(?![\w.\-/])", re.IGNORECASE)
_DIRECTION = re.compile(r"(?:asc|desc)\b", re.IGNORECASE)

_LONGEST_FILTER = 64 << 10
_LONGEST_ORDER = 1_000
# SQLite nests conditions that are joined by AND at most 1,000 deep.
_MOST_CONDITIONS = 500
_MOST_ORDERS = 100
# Of LIKE, whose time grows with the product of the pattern and what it is compared with.
_LONGEST_PATTERN = 1_000
_LONGEST_PAGE_TOKEN = 1_000


class _Reader:
    """A text that is read from its beginning to its end, item by item."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """What the pattern matches behind spaces; None and nothing is read if it does not."""
        self._skip_space()
        match = pattern.match(self.text, self.position)
        if match is not None:
            self.position = match.end()
        return match

    def at_end(self) -> bool:
        self._skip_space()
        return self.position == len(self.text)

    def _skip_space(self) -> None:
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space else self.position


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
    return _is_like(actual, expected, ignores_case=condition.operator == "ILIKE")


def parse_filter(text: str, language: Language) -> list[Condition]:
    """
    Raises:
        InvalidInput: quotes the part that can't be parsed, or says which limit is exceeded.
    """
    bounded(text, _LONGEST_FILTER, "the filter")
    conditions: list[Condition] = []
    reader = _Reader(text)
    while not reader.at_end():
        if conditions and reader.take(_AND) is None:
            raise _invalid_filter(reader)
        if len(conditions) == _MOST_CONDITIONS:
            raise InvalidInput(
                f"the filter has more than {_MOST_CONDITIONS} conditions",
                "join what one key is compared with by `IN ('a', 'b')`, or search several times",
            )
        conditions.append(_read_condition(reader, language))
    return conditions


def parse_order_by(texts: Sequence[str], language: Language) -> list[Order]:
    """
    Raises:
        InvalidInput: quotes the order that can't be parsed.
    """
    if len(texts) > _MOST_ORDERS:
        raise InvalidInput(
            f"`order_by` has {len(texts)} entries; the limit is {_MOST_ORDERS}",
            "the first ones that differ decide: leave the others out",
        )
    orders = []
    for text in texts:
        reader = _Reader(bounded(text, _LONGEST_ORDER, "an entry of `order_by`"))
        run_name = reader.take(_RUN_NAME)
        match = run_name or reader.take(_KEY)
        direction = reader.take(_DIRECTION) if match else None
        if match is None or not reader.at_end():
            raise InvalidInput(f"can't parse order_by `{text}`", "write `metrics.loss DESC`")
        word, key = (None, match[0]) if run_name else (match["kind"], match["key"])
        kind, key = _kind_and_key(word, key, language)
        orders.append(Order(kind, key, direction is not None and direction[0].lower() == "desc"))
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
        offset = json.loads(base64.b64decode(token[:_LONGEST_PAGE_TOKEN]))["offset"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _invalid_page_token() from error
    if type(offset) is not int or not 0 <= offset <= _MAX_OFFSET:
        raise _invalid_page_token()
    return offset


def _read_condition(reader: _Reader, language: Language) -> Condition:
    start = reader.position
    match = reader.take(_KEY)
    if match is None:
        raise _invalid_filter(reader)
    operator = reader.take(_NULL) or reader.take(_IN) or reader.take(_OPERATOR)
    if operator is None:
        raise _invalid_filter(reader, start)
    name = " ".join(operator[0].upper().split())
    value: Any = None
    if name in ("IN", "NOT IN"):
        value = _read_texts(reader, start)
    elif name not in _NULL_OPERATORS:
        literal = reader.take(_TEXT) or reader.take(_NUMBER)
        if literal is None:
            raise _invalid_filter(reader, start)
        value = literal[0][1:-1] if literal[0][0] in "'\"" else float(literal[0])
    kind, key = _kind_and_key(match["kind"], match["key"], language)
    return _checked(Condition(kind, key, name, value), language)


def _read_texts(reader: _Reader, start: int) -> tuple[str, ...]:
    """The texts of a list in parentheses; the last one may have a comma behind it."""
    texts: list[str] = []
    if reader.take(_OPEN) is None:
        raise _invalid_filter(reader, start)
    while reader.take(_CLOSE) is None or not texts:
        if texts and reader.take(_COMMA) is None:
            raise _invalid_filter(reader, start)
        text = reader.take(_TEXT)
        if text is None:
            if texts and reader.take(_CLOSE) is not None:
                break
            raise _invalid_filter(reader, start)
        texts.append(text[0][1:-1])
    return tuple(texts)


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
    if condition.operator in ("LIKE", "ILIKE") and isinstance(condition.value, str):
        bounded(condition.value, _LONGEST_PATTERN, f"the pattern for `{name}`")
    is_number = isinstance(condition.value, float)
    if condition.operator not in _NULL_OPERATORS and is_numeric != is_number:
        operand = "a number" if is_numeric else "a quoted string"
        raise InvalidInput(f"`{name}` must be compared with {operand}")
    return condition


def _kind_and_key(word: str | None, key: str, language: Language) -> tuple[str, str]:
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


def _is_like(text: str, pattern: str, *, ignores_case: bool) -> bool:
    """Whether a text is like a pattern in which `%` is any text and `_` any character.

    The parts between `%` are looked for one after the other, each as early as it stands.
    """
    if ignores_case:
        text, pattern = text.lower(), pattern.lower()
    first, *others = pattern.split("%")
    if not others:
        return len(text) == len(first) and _stands_at(text, first, 0)
    if not _stands_at(text, first, 0):
        return False
    position = len(first)
    for part in others[:-1]:
        position = _find(text, part, position)
        if position < 0:
            return False
        position += len(part)
    start = len(text) - len(others[-1])
    return start >= position and _stands_at(text, others[-1], start)


def _find(text: str, part: str, start: int) -> int:
    """Where a part without `%` stands first from `start`; -1 for nowhere."""
    if "_" not in part:
        return text.find(part, start)
    match = _any_characters(part).search(text, start)
    return match.start() if match else -1


def _stands_at(text: str, part: str, start: int) -> bool:
    if "_" in part:
        return _any_characters(part).match(text, start) is not None
    return text.startswith(part, start)


@functools.lru_cache(maxsize=64)
def _any_characters(part: str) -> re.Pattern[str]:
    """A part in which `_` is any character; all that it matches is as long as the part."""
    return re.compile(re.escape(part).replace("_", "."), re.DOTALL)


def _invalid_filter(reader: _Reader, position: int = -1) -> InvalidInput:
    """Quotes what stands at the position; where the reader is, without one."""
    position = reader.position if position < 0 else position
    part = reader.text[position : position + 40].strip()
    return InvalidInput(
        f"can't parse filter `{reader.text[:200]}` at `{part}`",
        "write comparisons joined by AND, such as metrics.acc > 0.9 AND tags.a = 'b'",
    )
