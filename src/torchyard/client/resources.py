"""What every object of the SDK has: frozen fields, the JSON it was made of, a page in a notebook.

Owns: the base of those types, lists of them, reading texts, times and mappings out of JSON.
Leaves: each noun's fields to its own module.
Always: `raw` is the server's JSON, whole, whatever keys it has; fields are read from it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, SupportsIndex, TypeVar, overload

from torchyard.base import clock
from torchyard.base.errors import InvalidInput

_SHOWN_CHARACTERS = 300

Json = dict[str, Any]
Made = TypeVar("Made", bound="Resource")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Resource:
    """One thing of a server. Two are equal when the server said the same of both."""

    raw: Json = field(repr=False)
    """The JSON that the server answered."""

    _shown: ClassVar[Sequence[str]] = ("name", "version", "status")
    _making: ClassVar[str] = "see the methods of `Client`"
    """What to write to make one on the server."""

    def __new__(cls: type[Made], *args: Any, **fields: Any) -> Made:
        # Copies and pickles are made without arguments.
        if args or (fields and "raw" not in fields):
            name = cls.__name__
            raise InvalidInput(
                f"`{name}` is what a server answers, and is not made by hand", cls._making
            )
        return super().__new__(cls)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and getattr(other, "raw", None) == self.raw

    def __hash__(self) -> int:
        return hash((type(self), *(str(self.raw.get(key)) for key in self._shown)))

    def __repr__(self) -> str:
        shown = ((key, getattr(self, key, None)) for key in self._shown)
        fields = ", ".join(f"{key}={value!r}" for key, value in shown if value not in (None, ""))
        return f"{type(self).__name__}({fields})"

    def _repr_html_(self) -> str:
        from html import escape

        lines = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th>"
            f"<td style='text-align:left'>{_html_of(value)}</td></tr>"
            for key, value in self.raw.items()
            if value not in (None, "", [], {})
        )
        return f"<table>{lines}</table>"

    @classmethod
    def _html_of_list(cls, items: Sequence[Resource], columns: Sequence[str]) -> str:
        from html import escape

        keys = {key for item in items for key in item.raw}
        columns = [key for key in columns if key in keys] or sorted(keys)
        head = "".join(f"<th>{escape(key)}</th>" for key in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{_html_of(item.raw.get(key))}</td>" for key in columns) + "</tr>"
            for item in items
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


Item = TypeVar("Item", bound=Resource)


class Listing(list[Item]):
    """A list, shown as a table in a notebook; `raw` is the JSON of its items."""

    columns: Sequence[str] = (
        "name", "version", "type", "status", "description", "created_at", "experiment_name",
    )  # fmt: skip

    @property
    def raw(self) -> list[Json]:
        """The JSON of its items, as the server answered it."""
        return [item.raw for item in self]

    @overload
    def __getitem__(self, at: SupportsIndex) -> Item: ...
    @overload
    def __getitem__(self, at: slice) -> Listing[Item]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Item | Listing[Item]:
        items = super().__getitem__(at)
        return Listing(items) if isinstance(items, list) else items

    def _repr_html_(self) -> str:
        kind = type(self[0]) if self else Resource
        return kind._html_of_list(self, self.columns)


def text(raw: Mapping[str, Any], key: str) -> str:
    """Empty when it is absent or null."""
    value = raw.get(key)
    return "" if value is None else str(value)


def integer_at(raw: Mapping[str, Any], key: str) -> int:
    """0 when it is absent or null."""
    return int(raw.get(key) or 0)


def optional_whole(raw: Mapping[str, Any], key: str) -> int | None:
    value = raw.get(key)
    return None if value is None else int(value)


def optional_number(raw: Mapping[str, Any], key: str) -> float | None:
    value = raw.get(key)
    return None if value is None else float(value)


def moment(raw: Mapping[str, Any], key: str) -> datetime:
    """An aware time; the server always says it."""
    return clock.from_text(str(raw[key]))


def optional_moment(raw: Mapping[str, Any], key: str) -> datetime | None:
    value = raw.get(key)
    return clock.from_text(str(value)) if value else None


def texts(raw: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values: Iterable[Any] = raw.get(key) or ()
    return tuple(str(value) for value in values)


def mapping(raw: Mapping[str, Any], key: str) -> Mapping[str, str]:
    values: Mapping[str, Any] = raw.get(key) or {}
    return {name: str(value) for name, value in values.items()}


def number(value: Any) -> float:
    """JSON has NaN and infinities only as text."""
    return float(value)


def _html_of(value: Any) -> str:
    from html import escape

    if value is None:
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(shown) > _SHOWN_CHARACTERS:
        shown = shown[: _SHOWN_CHARACTERS - 1] + "…"
    return escape(shown)
