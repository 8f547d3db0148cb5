"""Documents that people and programs hand in, each declared once as a model.

    class Probe(Document):
        period: int = declared(10, "seconds between two", Whole(1, 86_400))

Owns: reading a mapping into a model, with each of its faults, its place and the next step.
Leaves: what keys mean to the packages that declare them; single values to checks.py; pages of the
documentation to pages.py.
Always: shape first, then every rule whose own keys are whole; null is absent; a key that no model
declares is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from inspect import isfunction
from typing import Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from typing_extensions import Self

from torchyard.base import fields
from torchyard.base.documents import expressions
from torchyard.base.documents.checks import At, By, Check, Holds, Key, Refused, Support
from torchyard.base.documents.faults import (
    MOST,
    Positions,
    Renamed,
    joined,
    reaches,
    shown_key,
    without,
)
from torchyard.base.errors import InvalidSpec

Rule = TypeVar("Rule", bound=Callable[..., Any])
Value = TypeVar("Value")

_RULE = "_torchyard_rule_of"
_DECLARED = "torchyard"
_UNKNOWN = "extra_forbidden"
# Stands for the place of a value while its mapping is read: only `Document.read` knows it.
_SOMEWHERE: At = ("", "", "")
_is_lenient: ContextVar[bool] = ContextVar("_is_lenient", default=False)


@contextmanager
def lenient() -> Iterator[None]:
    """Ignore unknown keys meanwhile: stored documents may have some from earlier versions."""
    token = _is_lenient.set(True)
    try:
        yield
    finally:
        _is_lenient.reset(token)


def declared(
    default: Any,
    note: str | Key = "",
    check: Check | None = None,
    *,
    support: Support = "honoured",
    alias: str | None = None,
) -> Any:
    """Declare a key of a model.

    Args:
        note: what it does, one line of Markdown.
        check: how its value is read; without one, by the model that the field has as its type, or
            as it is.
        alias: its name, where that is none in Python.
    """
    pair = (note if isinstance(note, Key) else Key(note, support), check)
    return Field(default, alias=alias, json_schema_extra={_DECLARED: pair})  # type: ignore[dict-item]


def refused(what_instead: str | Refused) -> Any:
    """Declare a key of Azure's that nothing here can do."""
    check = Refused(what_instead) if isinstance(what_instead, str) else what_instead
    return declared(None, check.note, check, support="refused")


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
    """A value of it in YAML, for the hint where something else than a mapping was written."""

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            raise PydanticCustomError("mapping", "wrong", {})
        known = keys(cls)
        named = {shown_key(key): value for key, value in body.items()}
        unknown = [name for name in named if name not in known]
        # More are not reported, be there a hundred thousand.
        for name in unknown if _is_lenient.get() else unknown[MOST:]:
            del named[name]
        return {
            name: value for name, value in named.items() if value is not None or name not in known
        }

    @field_validator("*", mode="wrap")
    @classmethod
    def _read_value(cls, value: Any, handler: Any, info: ValidationInfo) -> Any:
        field = cls.model_fields[str(info.field_name)]
        check, name = check_of(field), field.alias or str(info.field_name)
        if check is None:
            return handler(value)
        try:
            return check.read({name: value}, name, _SOMEWHERE, field.default)
        except InvalidSpec as error:
            # `_fault` asks the check again with the place, which the message may name.
            raise PydanticCustomError("check", "wrong", {"check": check}) from error

    @classmethod
    def read(cls, body: Any, at: At = ()) -> Self:
        """
        Args:
            at: where the mapping stands in the whole document.

        Raises:
            InvalidSpec: the first fault in the order of the document; it carries the others.
        """
        model: Self | None = None
        faults: list[InvalidSpec] = []
        broken: set[At] = set()
        named = Renamed(body)
        while model is None:
            rest = without(named.body, broken)
            try:
                model = cls.model_validate(rest)
            except ValidationError as error:
                errors = [each for each in error.errors() if each["loc"] not in broken]
                if not errors:
                    break  # a key that is missing stays so
                if not errors[0]["loc"]:
                    raise cls._fault(rest, errors[0], at) from None
                found, left_out = cls._faults(rest, errors, at, named)
                faults += found
                broken |= left_out
                if len(faults) >= MOST:
                    break  # more are not reported
        # An unknown key may be a misspelling of the one that is missing.
        unknown = {fault.at[:-1] for fault in faults if fault.is_of_key}
        faults += [
            fault
            for place, fault in (_broken_rules(model, (), at, broken) if model else ())
            if place not in unknown or reaches(named.body, fault.at[len(at) :])
        ]
        further = cls._further_faults(named.body, at) if model else []
        for fault in (*faults, *further):
            named.restore(fault, at)
        faults = _one_at_each_place(faults, further)
        if faults or model is None:
            raise joined(faults, body, at)
        return model

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        """What is wrong with the mapping beside its shape and its rules."""
        return []

    @classmethod
    def as_json_schema(cls) -> dict[str, Any]:
        """For editors, and for the description of the API."""
        properties = {}
        for name, field in cls.model_fields.items():
            (inner, _), check, key = inner_of(field), check_of(field), key_of(field)
            of_value = check.schema() if check else inner.as_json_schema() if inner else {}
            described = {"description": key.note} if key.note else {}
            refused = {"deprecated": True} if key.support == "refused" else {}
            properties[field.alias or name] = {**of_value, **described, **refused}
        return {"type": "object", "properties": properties, "additionalProperties": False}

    @classmethod
    def unknown_key(cls, key: str, at: At, body: Mapping[str, Any]) -> InvalidSpec:
        """What to raise for a key that is not declared; `body` is the mapping at `at`."""
        known = [name for name, each in keys(cls).items() if each.support != "refused"]
        return fields.unknown_key(key, known, at, inside=_called(at))

    @classmethod
    def missing_key(cls, key: str, at: At) -> InvalidSpec:
        """What to raise where a key that has no default is left out."""
        subject = f"`{at[-1]}`" if at else cls.subject
        return InvalidSpec(f"{subject} has no `{key}`", f"add `{key}: …`", at=at)

    @classmethod
    def not_a_mapping(cls, value: Any, at: At) -> InvalidSpec:
        known = [name for name, key in keys(cls).items() if key.support != "refused"]
        subject = f"`{_called(at)}`" if at else cls.subject
        hint = f"known keys: {', '.join(known)}"
        if cls.example:
            hint = f"for example `{f'{at[-1]}: ' if at else ''}{cls.example}`"
        return InvalidSpec(
            f"{subject} must be a mapping of keys to values, not {fields.described(value)}",
            hint,
            at=at,
        )

    @classmethod
    def _faults(
        cls, body: Any, errors: list[Any], at: At, named: Renamed
    ) -> tuple[list[InvalidSpec], set[At]]:
        """What is wrong with the shape, and which places to read on without; a misspelt key gets
        its right name in `named` instead.
        """
        positions = Positions(body)
        errors.sort(key=lambda each: positions(each["loc"]))
        renamed: set[At] = set()
        faults: dict[At, InvalidSpec] = {}
        for each in errors[:MOST]:
            place = each["loc"]
            fault = faults[place] = cls._fault(body, each, at)
            is_misspelt = each["type"] == _UNKNOWN and fault.meant_key
            if is_misspelt and named.rename(place, fault.meant_key):
                renamed |= {place, (*place[:-1], fault.meant_key)}
        written = [
            fault for place, fault in faults.items() if fault.is_of_key or place not in renamed
        ]
        return written, {each["loc"] for each in errors} - renamed

    @classmethod
    def _fault(cls, body: Any, error: Any, at: At) -> InvalidSpec:
        place, kind = error["loc"], error["type"]
        around, model = _around(cls, body, place)
        if kind == "mapping":
            inner = cls if not place else inner_of(model.model_fields[str(place[-1])])[0]
            assert inner is not None
            return inner.not_a_mapping(error["input"], (*at, *place))
        key, outer = str(place[-1]), (*at, *place[:-1])
        if kind == _UNKNOWN:
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

    schema_: Any = declared(None, "for editors; not read", support="satisfied", alias="$schema")

    resolved: ClassVar[Sequence[str]] = ()
    """Where expressions are resolved, as `expressions.refuse` has it."""

    literal: ClassVar[Sequence[str]] = ()
    """Keys whose values are taken literally, such as passwords."""

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        others = {key: value for key, value in body.items() if key not in cls.literal}
        return list(expressions.unresolved(others, cls.resolved, at))


def keys(model: type[Document]) -> dict[str, Key]:
    """The keys of a model, in the order of the declaration."""
    return {field.alias or name: key_of(field) for name, field in model.model_fields.items()}


def key_of(field: FieldInfo) -> Key:
    """What a field's declaration says of its key."""
    key, check = _declared(field)
    if isinstance(check, Holds) and not key.note:
        return Key(f"`{fields.literal(check.value)}`: {check.reason}", "satisfied")
    return key


def check_of(field: FieldInfo) -> Check | None:
    return _declared(field)[1]


def _declared(field: FieldInfo) -> tuple[Key, Check | None]:
    extra = field.json_schema_extra
    pair: Any = extra.get(_DECLARED) if isinstance(extra, dict) else None
    return pair or (Key(), None)


def inner_of(field: FieldInfo) -> tuple[type[Document] | None, bool]:
    """The model of a key's value, or of each entry of it by a name that people give."""
    check = check_of(field)
    if isinstance(check, By):
        of: Any = check.of
        return of, check.is_named
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
        inner, _ = inner_of(model.model_fields[str(step)])
        assert inner is not None
        model = inner
    return body, model


def _called(at: At) -> str:
    """What is at `at`, by its key; an entry of a list by its position, too."""
    if len(at) > 1 and isinstance(at[-1], int):
        return f"{at[-2]}.{at[-1]}"
    return str(at[-1]) if at else ""


def _one_at_each_place(
    faults: Sequence[InvalidSpec], further: Iterable[InvalidSpec]
) -> list[InvalidSpec]:
    """Of a value that is wrong and holds an expression, the expression is the fault; but a key that
    is not there, or not served, is refused whatever it holds.
    """
    unknown = {fault.at for fault in faults if fault.is_of_key}
    refused = {fault.at for fault in faults if fault.code == "not_served"} | unknown
    others = [fault for fault in further if not any(fault.at[: len(at)] == at for at in refused)]
    places = {fault.at for fault in others}
    return [
        *(each for each in faults if each.is_of_key or each.at not in {*places, *unknown}),
        *others,
    ]


def _broken_rules(
    model: Document, place: At, at: At, broken: Collection[At]
) -> Iterator[tuple[At, InvalidSpec]]:
    """Where the model stands whose rule it is, and what is wrong."""

    def is_whole(name: str) -> bool:
        here = (*place, name)
        return not any(tuple(each[: len(here)]) == here for each in broken)

    for name in type(model).model_fields:
        inner = getattr(model, name)
        if isinstance(inner, Document):
            yield from _broken_rules(inner, (*place, name), (*at, name), broken)
    for method in _rules(type(model)):
        if all(map(is_whole, getattr(method, _RULE))):
            try:
                method(model)
            except InvalidSpec as error:
                for each in (error, *error.others):
                    each.at = (*at, *each.at)
                yield at, error


@cache
def _rules(model: type[Document]) -> list[Callable[[Document], None]]:
    values = [value for each in reversed(model.__mro__) for value in tuple(vars(each).values())]
    return [value for value in values if isfunction(value) and hasattr(value, _RULE)]
