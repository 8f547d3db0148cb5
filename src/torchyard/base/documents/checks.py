"""How the values of keys are read: numbers, texts, words, choices, and by a function.

Owns: the forms of single values, their faults, what JSON Schema says of them.
Leaves: mappings of keys to models.py; texts and numbers without a model to base/fields.py.
Always: an error says where by `at`, and gives the nearest right word or an example.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torchyard.base import fields
from torchyard.base.errors import InvalidSpec, nearest

At = tuple[str | int, ...]
Support = Literal["honoured", "satisfied", "refused"]

TEXT: Mapping[str, Any] = {"type": "string"}
"""A value that is one text, as JSON Schema has it."""


@dataclass(frozen=True)
class Key:
    """What a key does: one line of Markdown, and how it is supported.

    *honoured*: it does what it says. *satisfied*: what it asks for holds anyway.
    """

    note: str = ""
    support: Support = "honoured"


class Check:
    """How the value of one key is read."""

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        """The value of `key`, which is there and not null.

        Args:
            default: the model's, for an example.

        Raises:
            InvalidSpec: what is wrong with it.
        """
        raise NotImplementedError

    def schema(self) -> dict[str, Any]:
        """As JSON Schema has it, for editors."""
        return {}


@dataclass(frozen=True)
class Refused(Check):
    """A key of Azure's that nothing here can do; empty values of it are taken."""

    note: str

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        if body[key]:
            raise InvalidSpec(
                f"`{'.'.join(map(str, (*at, key)))}` is not served",
                self.note,
                code="not_served",
                at=(*at, key),
            )

    def schema(self) -> dict[str, Any]:
        return {"description": self.note, "deprecated": True}


@dataclass(frozen=True)
class Holds(Check):
    """A key of Azure's whose one value holds here anyway; another is refused."""

    value: Any
    reason: str

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        if body[key] != self.value:
            raise InvalidSpec(
                f"`{key}: {fields.literal(body[key])}` is not served: {self.reason}",
                "leave it out",
                code="not_served",
                at=(*at, key),
            )
        return self.value

    def schema(self) -> dict[str, Any]:
        return {"const": self.value}


@dataclass(frozen=True)
class Whole(Check):
    """A whole number within bounds, also written as `3.0`; in a time's keys as Azure's `PT10S`."""

    least: int
    maximum: int
    is_period: bool = False

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> int:
        value = body[key]
        if self.is_period and isinstance(value, str) and value[:2] == "PT" and value[-1:] == "S":
            digits = value[2:-1]
            value = int(digits[:9]) if digits.isdigit() else value
        if isinstance(value, float) and math.isfinite(value) and value == int(value):
            value = int(value)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if not is_number or not self.least <= value <= self.maximum:
            example = max(default if isinstance(default, int) else 0, self.least)
            raise InvalidSpec(
                f"`{key}` must be a whole number from {self.least} to {self.maximum}, not "
                f"{fields.described(value)}",
                f"for example `{key}: {example}`",
                at=(*at, key),
            )
        return int(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.least, "maximum": self.maximum}


@dataclass(frozen=True)
class Text(Check):
    longest: int | None = None

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> str:
        text = fields.text(body, key, at)
        if self.longest is not None and len(text) > self.longest:
            raise InvalidSpec(
                f"`{key}` is {len(text)} characters long; the limit is {self.longest}",
                "shorten it",
                at=(*at, key),
            )
        return text

    def schema(self) -> dict[str, Any]:
        longest = {} if self.longest is None else {"maxLength": self.longest}
        return {"type": "string", **longest}


@dataclass(frozen=True)
class Texts(Check):
    """A mapping of texts; numbers become texts."""

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> dict[str, str]:
        return fields.texts(body, key, at)

    def schema(self) -> dict[str, Any]:
        values = {"type": ["string", "number", "boolean"]}
        return {"type": "object", "additionalProperties": values}


class Word(Check):
    """One of some words, written in any case, with `_`, `-` or in camelCase; empty is absent.

    Args:
        refused: words that nothing here can do, each with the message and the hint for it.
    """

    def __init__(self, *words: str, refused: Mapping[str, tuple[str, str]] | None = None) -> None:
        self._words = words
        self._refused = refused or {}

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> str | None:
        value = body[key]
        if value == "":
            return str(default) if default is not None else None
        written = plain(value) if isinstance(value, str) else None
        for word in (*self._words, *self._refused):
            if written == plain(word):
                if word in self._refused:
                    message, hint = self._refused[word]
                    raise InvalidSpec(message, hint, code="not_served", at=(*at, key))
                return word
        raise InvalidSpec(
            f"`{key}` is {fields.described(value)}",
            f"use one of: {', '.join((*self._words, *self._refused))}",
            at=(*at, key),
        )

    def schema(self) -> dict[str, Any]:
        return {"enum": list(self._words)}


class Choice(Check):
    """One of some values, each with what it does; written as those of `Word`.

    A value that is refused has as its note what to do instead.
    """

    noun = ""
    """What each is, for messages; empty to call it by the key."""

    def __init__(self, **values: Key) -> None:
        self.values: Mapping[str, Key] = values

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> str:
        written = fields.text(body, key, at)
        if not written:
            return str(default or "")
        value = self.find(written, key, at)
        if self.values[value].support == "refused":
            raise InvalidSpec(
                f"`{key}: {value}` is not served",
                self.values[value].note,
                code="not_served",
                at=(*at, key),
            )
        return value

    def find(self, written: str, key: str, at: At) -> str:
        """The value that is meant, be it refused.

        Raises:
            InvalidSpec: there is none.
        """
        for value in self.values:
            if plain(value) == plain(written):
                return value
        guess = nearest(written, self.values)
        served = [value for value, each in self.values.items() if each.support != "refused"]
        raise InvalidSpec(
            f"`{written[:80]}` is not {self.noun or f'a valid `{key}`'}",
            f"did you mean `{guess}`?" if guess else f"use one of: {', '.join(served)}",
            at=(*at, key),
        )

    def schema(self) -> dict[str, Any]:
        served = [value for value, each in self.values.items() if each.support != "refused"]
        return {"enum": served}


@dataclass(frozen=True)
class Truth(Check):
    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> bool:
        value = body[key]
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        raise InvalidSpec(
            f"`{key}` is {fields.described(value)}", "write `true` or `false`", at=(*at, key)
        )

    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Share(Check):
    """A number from 0 to 1."""

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> float:
        value = body[key]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= 1:
            raise InvalidSpec(
                f"`{key}` must be a number from 0 to 1, not {fields.described(value)}",
                f"for example `{key}: 0.1`",
                at=(*at, key),
            )
        return float(value)

    def schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": 0, "maximum": 1}


class Described(Protocol):
    """A model, as far as a check knows it."""

    @classmethod
    def as_json_schema(cls) -> dict[str, Any]: ...


@dataclass(frozen=True)
class By(Check):
    """A value that a function reads: `read(value, at)` returns it, or raises `InvalidSpec`.

    Args:
        of: the model of the value where that is a mapping; with `is_named`, of each entry of a
            mapping from names that people give.
        else_: what else the value may be, as JSON Schema has it.
    """

    function: Callable[[Any, At], Any]
    of: type[Described] | None = None
    is_named: bool = False
    else_: Mapping[str, Any] | None = None

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        return self.function(body[key], (*at, key))

    def schema(self) -> dict[str, Any]:
        forms = [dict(self.else_)] if self.else_ else []
        if self.of is not None:
            inner = self.of.as_json_schema()
            entry = {"anyOf": [*forms, inner]} if forms else inner
            if self.is_named:
                return {"type": "object", "additionalProperties": entry}
            return entry
        return forms[0] if forms else {}


def plain(word: str) -> str:
    """The word as it is compared: without case, `_`, `-` and spaces."""
    return word.replace("_", "").replace("-", "").replace(" ", "").lower()
