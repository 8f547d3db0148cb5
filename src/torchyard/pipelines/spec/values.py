"""What an input of a pipeline or of a step is, and whether it fits what takes it.

Owns: literals, data, what a step makes; the types that fit each other.
Leaves: where data lies to jobs/requests/pinning.py.
Always: an error names both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import literal
from torchyard.jobs.spec.inputs import is_a
from torchyard.pipelines.spec.plan import Made

LITERALS = ("number", "integer", "boolean", "string")
_FILES = ("uri_file", "onnx_model")
_FOLDERS = ("uri_folder", "mltable", "mlflow_model", "triton_model")


@dataclass(frozen=True)
class Literal:
    """A text, number or truth value."""

    value: Any


@dataclass(frozen=True)
class Data:
    """Data as an input of a job has it: `type`, `path` and `mode`, empty where it is not said."""

    path: str
    type: str = ""
    mode: str = ""


@dataclass(frozen=True)
class Output(Made):
    """What a step makes, of this type; `mode` is how the input wants it."""

    type: str = "uri_folder"
    mode: str = ""


Value = Literal | Data | Output
Port = Mapping[str, Any]
"""An input or output as a component declares it: `type`, `default`, `optional` and so on."""


def check_fits(value: Value, port: Port, subject: str, source: str, at: At) -> None:
    """
    Args:
        subject: the input, as "input `lr` of step `train`".
        source: what it is bound to, empty where the value stands there.

    Raises:
        InvalidSpec: an input of that type can't have this value.
    """
    wanted = str(port.get("type") or "")
    if not wanted or wanted == "path":
        return
    bound = f"{subject} is bound to {source}, which" if source else f"{subject}"
    if isinstance(value, Literal):
        if wanted not in LITERALS:
            raise _unfit(bound, f"is the value `{_shown(value)}`", f"is `{wanted}`", at)
        _check_literal(value, port, subject, bound, at)
        return
    if wanted in LITERALS:
        raise _unfit(bound, "is data", f"is of type `{wanted}`", at)
    if (value.type in _FILES and wanted in _FOLDERS) or (
        value.type in _FOLDERS and wanted in _FILES
    ):
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
        raise _unfit(bound, f"is the value `{_shown(value)}`", f"is of type `{kind}`", at)
    choices = port.get("enum")
    if isinstance(choices, list) and text not in [literal(each) for each in choices]:
        raise InvalidSpec(
            f"{subject} is `{_shown(value)}`, which is none of its values",
            f"use one of: {', '.join(literal(each) for each in choices)}",
            at=at,
        )
    for key, is_beyond in (("min", float.__lt__), ("max", float.__gt__)):
        bound_value = port.get(key)
        if bound_value is None or kind not in ("number", "integer"):
            continue
        if is_beyond(float(text), float(bound_value)):
            word = "below" if key == "min" else "above"
            raise InvalidSpec(
                f"{subject} is `{_shown(value)}`, {word} its `{key}`, {literal(bound_value)}",
                "change the value, or the component",
                at=at,
            )


def _shown(value: Literal) -> str:
    return literal(value.value)[:80]
