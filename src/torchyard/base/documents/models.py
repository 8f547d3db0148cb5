"""Documents that people and programs hand in, each declared once as a model.

    class Probe(Document):
        period: Annotated[int, Whole(1, 86_400), Key("seconds between two")] = 10

Owns: reading a mapping into a model, with each of its faults, its place and the next step; what a
key's declaration may say; the table of a model's keys in the documentation.
Leaves: what keys mean to the packages that declare them; values by themselves to base/fields.py.
Always: shape first, then every rule whose own keys are whole; null is absent; a key that no model
declares is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import isfunction
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import Self

from torchyard.base import fields
from torchyard.base.documents import expressions
from torchyard.base.errors import InvalidSpec, TorchyardError, nearest

At = tuple[str | int, ...]
Support = Literal["honoured", "satisfied", "refused"]
Rule = TypeVar("Rule", bound=Callable[..., Any])
Value = TypeVar("Value")

TEXT: Mapping[str, Any] = {"type": "string"}
"""A value that is one text, as JSON Schema has it."""
_EMPTY: tuple[Any, ...] = (None, "", {}, [])
_RULE = "_torchyard_rule_of"
# Faults of one document that are told.
_MOST = 20


@dataclass(frozen=True)
class Key:
    """What a key does: one line of Markdown, and how it is supported.

    *honoured*: it does what it says. *satisfied*: what it asks for holds anyway.
    """

    note: str = ""
    support: Support = "honoured"


class Declared(NamedTuple):
    """A key of a model or of one within it, or one value of a key that has a fixed set of them.

    `path` has dots between keys, and `*` for a name that people give.
    """

    path: str
    support: Support
    note: str
    value: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def parent(self) -> str:
        return self.path.rpartition(".")[0]


class Check:
    """How the value of one key is read, in `Annotated[TYPE, CHECK, Key(…)]`."""

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

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validated)

    def _validated(self, value: Any) -> Any:
        try:
            return self.read({"": value}, "", (), None)
        except InvalidSpec as error:
            # Its words name the key, which only who reads the whole document knows.
            raise PydanticCustomError("check", "wrong", {"check": self}) from error


@dataclass(frozen=True)
class Refused(Check):
    """A key of Azure's that nothing here can do; empty values of it are taken."""

    note: str

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        if body[key] not in _EMPTY:
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
                f"`{key}: {body[key]}` is not served: {self.reason}",
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
    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> str:
        return fields.text(body, key, at)

    def schema(self) -> dict[str, Any]:
        return {"type": "string"}


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
        plain = _plain(value) if isinstance(value, str) else None
        for word in (*self._words, *self._refused):
            if plain == _plain(word):
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
            if _plain(value) == _plain(written):
                return value
        guess = nearest(written, self.values)
        served = [value for value, each in self.values.items() if each.support != "refused"]
        raise InvalidSpec(
            f"`{written}` is not a valid `{key}`",
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


@dataclass(frozen=True)
class By(Check):
    """A value that a function reads: `read(value, at)` returns it, or raises `InvalidSpec`.

    Args:
        of: the model of the value where that is a mapping; with `is_named`, of each entry of a
            mapping from names that people give.
        else_: what else the value may be, as JSON Schema has it.
    """

    function: Callable[[Any, At], Any]
    of: type[Document] | None = None
    is_named: bool = False
    else_: Mapping[str, Any] | None = None

    def read(self, body: Mapping[str, Any], key: str, at: At, default: Any) -> Any:
        return self.function(body[key], (*at, key))

    def schema(self) -> dict[str, Any]:
        forms = [dict(self.else_)] if self.else_ else []
        if self.of is not None:
            inner = json_schema(self.of)
            entry = {"anyOf": [*forms, inner]} if forms else inner
            if self.is_named:
                return {"type": "object", "additionalProperties": entry}
            return entry
        return forms[0] if forms else {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Mark a method that checks what keys say together; it raises `InvalidSpec` with a place
    within its model. It is asked once those keys are whole by themselves.
    """

    def marked(method: Rule) -> Rule:
        setattr(method, _RULE, names)
        return method

    return marked


class Document(BaseModel):
    """A mapping with known keys."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True
    )

    subject: ClassVar[str] = "the document"
    """What it is called where it stands by itself."""
    example: ClassVar[str] = ""
    """A value of it in YAML, for who writes no mapping."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            raise PydanticCustomError("mapping", "wrong", {})
        # Keys of files may be numbers.
        return {str(key): value for key, value in body.items() if value is not None}

    @classmethod
    def read(cls, body: Any, at: At = ()) -> Self:
        """
        Args:
            at: where the mapping stands in the whole document.

        Raises:
            InvalidSpec: the first fault in the order of the document; it carries the others.
        """
        found = _Found(body, at)
        rest = body
        while True:
            try:
                model = cls.model_validate(rest)
                break
            except ValidationError as error:
                reduced = found.left_out(cls, rest, error.errors())
            if reduced is rest:
                raise found.error(body)
            rest = reduced
        further = cls._further_faults(found.body, at)
        found.broken += [fault.at[len(at) :] for fault in further]
        found.faults = [*further, *found.faults, *_broken_rules(model, (), at, found)]
        if found.faults:
            raise found.error(body)
        return model

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        """What is wrong with the mapping beside its shape and its rules."""
        return []

    @classmethod
    def unknown_key(cls, key: str, at: At, body: Mapping[str, Any]) -> InvalidSpec:
        """What to raise for a key that is not declared; `body` is the mapping at `at`."""
        known = [name for name, each in keys(cls).items() if each.support != "refused"]
        return fields.unknown_key(key, known, at, inside=str(at[-1]) if at else "")

    @classmethod
    def missing_key(cls, key: str, at: At) -> InvalidSpec:
        """What to raise where a key that has no default is left out."""
        return InvalidSpec(f"{cls._name_at(at)} has no `{key}`", f"add `{key}: …`", at=at)

    @classmethod
    def not_a_mapping(cls, value: Any, at: At) -> InvalidSpec:
        known = [name for name, key in keys(cls).items() if key.support != "refused"]
        hint = f"known keys: {', '.join(known)}"
        if cls.example:
            hint = f"for example `{f'{at[-1]}: ' if at else ''}{cls.example}`"
        return InvalidSpec(
            f"{cls._name_at(at)} must be a mapping of keys to values, not "
            f"{fields.described(value)}",
            hint,
            at=at,
        )

    @classmethod
    def _name_at(cls, at: At) -> str:
        return f"`{at[-1]}`" if at and isinstance(at[-1], str) else cls.subject

    @classmethod
    def _fault(cls, body: Any, error: Any, at: At) -> InvalidSpec:
        place, kind = error["loc"], error["type"]
        around, model = _around(cls, body, place)
        if kind == "mapping":
            inner = cls if not place else _inner(model.model_fields[str(place[-1])])[0]
            assert inner is not None
            return inner.not_a_mapping(error["input"], (*at, *place))
        key, outer = str(place[-1]), (*at, *place[:-1])
        if kind == "extra_forbidden":
            return model.unknown_key(key, outer, around)
        if kind == "missing":
            return model.missing_key(key, outer)
        check = error.get("ctx", {}).get("check")
        assert isinstance(check, Check), error
        name = next(
            name for name, field in model.model_fields.items() if (field.alias or name) == key
        )
        try:
            check.read(around, key, outer, model.model_fields[name].default)
        except InvalidSpec as fault:
            return fault
        raise AssertionError(error)


class File(Document):
    """A document that stands by itself; nothing in it is resolved but what `resolved` names."""

    schema_: Annotated[Any, Key("for editors; not read", "satisfied")] = Field(
        None, alias="$schema"
    )

    resolved: ClassVar[Sequence[str]] = ()
    """Where expressions are resolved, as `expressions.refuse` has it."""

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        return list(expressions.unresolved(body, cls.resolved, at))


def together(*checks: Callable[[], object]) -> None:
    """Run all of them.

    Raises:
        InvalidSpec: the first fault that one raised; it carries those of the others.
    """
    faults = []
    for check in checks:
        try:
            check()
        except InvalidSpec as error:
            faults.append(error)
    if faults:
        raise joined(faults, {}, ())


def within(at: At, function: Callable[[str], Value], name: str) -> Value:
    """What the function returns of `name`; its errors are at places below `at`."""
    try:
        return function(name)
    except InvalidSpec as error:
        for each in (error, *error.others):
            each.at = (*at, *each.at)
        raise


def entries(
    bodies: Mapping[str, Any], at: At, read: Callable[[Any, At], Value]
) -> dict[str, Value]:
    """Each entry of a mapping of names, read.

    Raises:
        InvalidSpec: the faults of all of them.
    """
    values: dict[str, Value] = {}
    faults: list[InvalidSpec] = []
    for name, body in bodies.items():
        try:
            values[name] = read(body, (*at, name))
        except InvalidSpec as error:
            faults.append(error)
    if faults:
        raise joined(faults, bodies, at)
    return values


def keys(model: type[Document]) -> dict[str, Key]:
    """The keys of a model, in the order of the declaration."""
    return {field.alias or name: _key(field) for name, field in model.model_fields.items()}


def walk(model: type[Document], start: str = "") -> Iterator[Declared]:
    """Each key of a model and of those in it; one of a `Choice` by its values."""
    for name, field in model.model_fields.items():
        path = f"{start}{field.alias or name}"
        inner, is_named = _inner(field)
        choice = next((each for each in field.metadata if isinstance(each, Choice)), None)
        if is_named:
            path = f"{path}.*"
        key = _key(field)
        if choice is not None:
            for value, each in choice.values.items():
                yield Declared(path, each.support, each.note, value)
        elif inner is None or key.note:
            yield Declared(path, key.support, key.note)
        if inner is not None:
            yield from walk(inner, f"{path}.")


def json_schema(model: type[Document]) -> dict[str, Any]:
    """The model as JSON Schema, for editors and for the description of the API."""
    properties = {}
    for name, field in model.model_fields.items():
        inner, _ = _inner(field)
        check = next((each for each in field.metadata if isinstance(each, Check)), None)
        key = _key(field)
        of_value = check.schema() if check else json_schema(inner) if inner else {}
        described = {"description": key.note} if key.note else {}
        refused = {"deprecated": True} if key.support == "refused" else {}
        properties[field.alias or name] = {**of_value, **described, **refused}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def table(title: str, model: type[Document]) -> Iterator[str]:
    """The section of a reference page: a line for each key, in Markdown."""
    yield from ("", f"## {title}", "", "| key | support | |", "|---|---|---|")
    for name, field in model.model_fields.items():
        key = _key(field)
        default = field.default
        is_shown = isinstance(default, int | float) and not isinstance(default, bool)
        note = "; ".join(filter(None, (key.note, f"default {default}" if is_shown else "")))
        yield f"| `{field.alias or name}` | {key.support} | {note} |"


def _key(field: FieldInfo) -> Key:
    for each in field.metadata:
        if isinstance(each, Refused):
            return Key(each.note, "refused")
        if isinstance(each, Key):
            return each
    return Key()


def _inner(field: FieldInfo) -> tuple[type[Document] | None, bool]:
    """The model of a key's value, or of each entry of it by a name that people give."""
    for each in field.metadata:
        if isinstance(each, By):
            return each.of, each.is_named
    annotation = field.annotation
    for each in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(each, type) and issubclass(each, Document):
            return each, False
    return None, False


def _around(
    model: type[Document], body: Any, place: Sequence[str | int]
) -> tuple[Mapping[str, Any], type[Document]]:
    """The mapping that holds what stands at `place`, and its model."""
    for step in place[:-1]:
        body = body[step]
        inner, _ = _inner(model.model_fields[str(step)])
        assert inner is not None
        model = inner
    return body, model


class _Found:
    """The faults of a document while it is read, and what is changed to read on.

    What stands below a misspelt key is read as below the right one; other faults are left out.
    `body` has the right names, and no key that is unknown.
    """

    def __init__(self, body: Any, at: At) -> None:
        self.body = body
        self._at = at
        self._renamed: list[tuple[At, str]] = []
        self._unknown: list[At] = []
        self.faults: list[InvalidSpec] = []
        self.broken: list[At] = []

    def left_out(self, model: type[Document], body: Any, errors: list[Any]) -> Any:
        """The document without these faults; itself where nothing would be left of it."""
        missing = [each for each in errors if each["type"] == "missing"]
        wrong = [each for each in errors if each["type"] != "missing"]
        positions = _Positions(body)
        wrong.sort(key=lambda each: positions(each["loc"]))
        removed = [each["loc"] for each in wrong]
        rest = body
        for each in wrong[:_MOST]:
            place, fault = each["loc"], model._fault(body, each, self._at)
            self.faults.append(fault)
            if each["type"] == "extra_forbidden":
                others = {**_around(model, body, place)[0], **_around(model, rest, place)[0]}
                if fault.meant_key and fault.meant_key not in others:
                    rest = _with_key(rest, place, fault.meant_key)
                    self.body = _with_key(self.body, place, fault.meant_key)
                    self._renamed.append(((*self._at, *place), fault.meant_key))
                    removed.remove(place)
                else:
                    self._unknown.append(place)
        if not wrong:
            for each in missing:
                place = each["loc"]
                if place not in self.broken and not self.has_unknown(place[:-1]):
                    self.faults.append(model._fault(body, each, self._at))
        if not wrong or () in removed:
            return body
        self.broken += removed
        self.body = _without(self.body, self._unknown)
        return _without(rest, removed)

    def has_unknown(self, place: At) -> bool:
        """Whether a key of that mapping is not known: what it lacks may be meant by that."""
        return any(each[:-1] == place for each in self._unknown)

    def error(self, body: Any) -> TorchyardError:
        every = [each for fault in self.faults for each in (fault, *fault.others)]
        for written, key in reversed(self._renamed):
            meant = (*written[:-1], key)
            # That the value is of another type comes of a wrong guess.
            every = [each for each in every if each.at != meant]
            for each in every:
                if each.at[: len(meant)] == meant:
                    each.at = (*written, *each.at[len(meant) :])
        for each in every:
            each.others = ()
        return joined(every, body, self._at)


def _with_key(body: Any, place: At, meant: str) -> Any:
    """A copy in which the key that stands there is called `meant`."""
    step, rest = place[0], place[1:]
    return {
        (key if rest or str(key) != step else meant): _with_key(value, rest, meant)
        if rest and str(key) == step
        else value
        for key, value in body.items()
    }


def _without(body: Any, places: Iterable[Sequence[str | int]]) -> Any:
    """A copy without what stands at these places."""
    if not isinstance(body, Mapping):
        return body
    below: dict[str | int, list[Sequence[str | int]]] = {}
    for place in places:
        if not place:
            return {}
        below.setdefault(place[0], []).append(place[1:])
    return {
        key: _without(value, below[str(key)]) if str(key) in below else value
        for key, value in body.items()
        if not any(not rest for rest in below.get(str(key), ()))
    }


def _broken_rules(model: Document, place: At, at: At, found: _Found) -> Iterator[Any]:
    def is_whole(name: str) -> bool:
        here = (*place, name)
        return not any(tuple(each[: len(here)]) == here for each in found.broken)

    for name in type(model).model_fields:
        inner = getattr(model, name)
        if isinstance(inner, Document):
            yield from _broken_rules(inner, (*place, name), (*at, name), found)
    for method in _rules(type(model)):
        if all(map(is_whole, getattr(method, _RULE))):
            try:
                method(model)
            except InvalidSpec as error:
                for each in (error, *error.others):
                    each.at = (*at, *each.at)
                is_absent = error.at[len(at) :] not in {(key,) for key in model.model_fields_set}
                if found.has_unknown(place) and is_absent and len(error.at) <= len(at) + 1:
                    yield from error.others
                else:
                    yield error


def _rules(model: type[Document]) -> Iterator[Callable[[Document], None]]:
    for each in reversed(model.__mro__):
        methods = filter(isfunction, tuple(vars(each).values()))
        yield from (method for method in methods if hasattr(method, _RULE))


def joined(faults: Iterable[TorchyardError], body: Any, at: At) -> TorchyardError:
    """One error that carries all of them, in the order of the document, up to a limit."""
    every = [each for fault in faults for each in (fault, *fault.others)]
    positions = _Positions(body)
    first, *rest = sorted(every, key=lambda fault: positions(fault.at[len(at) :]))[:_MOST]
    first.add_others(rest)
    return first


class _Positions:
    """Sorts places of a document as its reader meets them."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self._orders: dict[int, dict[str, int]] = {}

    def __call__(self, place: Sequence[str | int]) -> tuple[int, ...]:
        position: list[int] = []
        body = self._body
        for step in place:
            order = self._order(body)
            if str(step) not in order:
                break
            position.append(order[str(step)])
            body = body.get(step)
        return tuple(position)

    def _order(self, body: Any) -> dict[str, int]:
        if not isinstance(body, Mapping):
            return {}
        if id(body) not in self._orders:
            self._orders[id(body)] = {str(key): number for number, key in enumerate(body)}
        return self._orders[id(body)]


def _plain(word: str) -> str:
    return word.replace("_", "").replace("-", "").replace(" ", "").lower()
