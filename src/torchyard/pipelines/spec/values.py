"""What an input of a pipeline or of a step is, and whether it fits what takes it.

Owns: literals, data, what a step makes; the types that fit each other.
Leaves: where data lies to jobs/requests/pinning.py.
Always: an error names both ends.

Which types fit, as Azure has it: only what would certainly fail is refused.

* A literal fits a literal type that its text is of (`1` is a number, `true` a boolean, everything
  a string), within `enum`, `min` and `max`; data never fits a literal, nor a literal data.
* Of what steps make, a file (`uri_file`, `onnx_model`) does not fit a folder (`uri_folder`,
  `mltable`, `mlflow_model`, `triton_model`), nor a folder a file. All else fits: `custom_model` and
  `path` may be either, and whether a folder is a table or a model shows when it is read.
* Data is of the type that is written with it, whatever the component declares; an input is of the
  type that its component declares where nothing is written.
* An output is of the type that its component declares, unless the step or the pipeline calls it by
  a type that fits and says more, so that it is registered as that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import literal
from torchyard.data.types import ONNX_TYPE
from torchyard.jobs.spec.inputs import is_a
from torchyard.pipelines.spec.plan import Made

LITERALS = ("number", "integer", "boolean", "string")
_FILES = ("uri_file", ONNX_TYPE)
_FOLDERS = ("uri_folder", "mltable", "mlflow_model", "triton_model")
_PLAIN = ("", "path", "uri_folder", "uri_file")


@dataclass(frozen=True)
class Literal:
    """A text, number or truth value."""

    value: Any


@dataclass(frozen=True)
class Data:
    """Data as an input of a job has it: `type`, `path` and `mode`, empty where it is not said;
    `at` is where it is written.
    """

    path: str
    type: str = ""
    mode: str = ""
    at: At = ()


@dataclass(frozen=True)
class Output(Made):
    """What a step makes, of this type; `mode` is how the input wants it."""

    type: str = "uri_folder"
    mode: str = ""


@dataclass(frozen=True)
class Unknown:
    """What something is whose own fault is told elsewhere."""


UNKNOWN = Unknown()
Value = Literal | Data | Output | Unknown
Port = Mapping[str, Any]
"""An input or output as a component declares it: `type`, `default`, `optional` and so on."""


def is_optional(port: Port) -> bool:
    return str(port.get("optional")).lower() == "true"


def input_type(port: Port, value: Data | Output) -> str:
    """What an input of a step is, that may be declared and has this value."""
    declared = str(port.get("type") or "")
    is_said = isinstance(value, Data) and value.type
    kind = value.type if is_said or declared in ("", "path") else declared
    return "uri_file" if kind == ONNX_TYPE else kind or "uri_folder"


def output_type(port: Port, said: Mapping[str, Any]) -> str:
    """What an output of a step is.

    Args:
        said: at the step, and of the output of the pipeline that it is.
    """
    declared, wanted = str(port.get("type") or ""), str(said.get("type") or "").lower()
    says_more = declared in _PLAIN and wanted not in _PLAIN and _fits(wanted, declared)
    kind = wanted if says_more or declared in ("", "path") else declared
    return kind if kind not in ("", "path") else "uri_folder"


def _fits(one: str, other: str) -> bool:
    return not ((one in _FILES and other in _FOLDERS) or (one in _FOLDERS and other in _FILES))


def check_fits(value: Value, port: Port, subject: str, source: str, at: At) -> None:
    """
    Args:
        subject: the input, as "input `lr` of step `train`".
        source: what it is bound to, empty where the value stands there.

    Raises:
        InvalidSpec: an input of that type can't have this value.
    """
    wanted = str(port.get("type") or "")
    if not wanted or wanted == "path" or isinstance(value, Unknown):
        return
    bound = f"{subject} is bound to {source}, which" if source else f"{subject}"
    if isinstance(value, Literal):
        if wanted not in LITERALS:
            raise _unfit(bound, _valued(value), f"is `{wanted}`", at)
        _check_literal(value, port, subject, bound, at)
        return
    if wanted in LITERALS:
        raise _unfit(bound, "is data", f"is of type `{wanted}`", at)
    if isinstance(value, Output) and not _fits(value.type, wanted):
        raise _unfit(bound, f"is of type `{value.type}`", f"is of type `{wanted}`", at)


def _unfit(bound: str, has: str, wants: str, at: At) -> InvalidSpec:
    return InvalidSpec(
        f"{bound} {has}, and the input {wants}",
        "bind it to something of its type, or change the type in the component",
        code="type_mismatch",
        at=at,
    )


def _check_literal(value: Literal, port: Port, subject: str, bound: str, at: At) -> None:
    kind, text = str(port["type"]), literal(value.value)
    if not is_a(kind, text):
        raise _unfit(bound, _valued(value), f"is of type `{kind}`", at)
    choices = port.get("enum")
    if isinstance(choices, list) and not any(_is_same(kind, text, each) for each in choices):
        raise InvalidSpec(
            f"{subject} is `{_shown(value)}`, which is none of its values",
            f"use one of: {', '.join(literal(each) for each in choices)}",
            at=at,
        )
    for key, is_beyond in (("min", float.__lt__), ("max", float.__gt__)):
        bound_value = port.get(key)
        if kind not in ("number", "integer") or not is_a("number", literal(bound_value)):
            continue
        if is_beyond(float(text), float(literal(bound_value))):
            word = "below" if key == "min" else "above"
            raise InvalidSpec(
                f"{subject} is `{_shown(value)}`, {word} its `{key}`, {literal(bound_value)}",
                "change the value, or the component",
                at=at,
            )


def _is_same(kind: str, text: str, choice: Any) -> bool:
    other = literal(choice)
    if kind in ("number", "integer") and is_a(kind, other):
        return float(text) == float(other)
    return text == other or (kind == "boolean" and text.lower() == other.lower())


def _valued(value: Literal) -> str:
    return f"is the value `{_shown(value)}`" if _shown(value) else "is an empty text"


def _shown(value: Literal) -> str:
    return literal(value.value)[:80]
