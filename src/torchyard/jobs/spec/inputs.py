"""Inputs and outputs of a job file.

Owns: `Input` and `Output`, and which of their keys go together.
Leaves: what a path stands for to requests/pinning.py and files/outputs.py.
Always: an input is a literal or has a path; an output has the defaults of Azure ML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import literal, text
from torchyard.jobs.spec.values import At, known_keys, mapping, served

LITERAL = "literal"
RW_MOUNT = "rw_mount"
_LITERAL_TYPES = ("string", "integer", "number", "boolean")
_EXAMPLES = {
    "integer": "write a whole number such as `3`, or `type: number`",
    "number": "write a number such as `0.1`, or `type: string`",
    "boolean": "write `true` or `false`",
}
IO_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
_VERSION = re.compile(r"^[a-zA-Z0-9][\w.-]{0,29}\Z", re.ASCII)
_ASSET_NAME = re.compile(r"^[a-zA-Z0-9][\w.-]{0,254}\Z", re.ASCII)


@dataclass(frozen=True)
class Input:
    """A literal (`type` literal, `value` its text) or data at `path`."""

    type: str
    value: str = ""
    path: str = ""
    mode: str = "ro_mount"


@dataclass(frozen=True)
class Output:
    """`path` is empty for the default place; `name` is the asset that it becomes, if any."""

    type: str = "uri_folder"
    mode: str = RW_MOUNT
    path: str = ""
    name: str = ""
    version: str = ""


def read_inputs(job: Mapping[str, Any]) -> dict[str, Input]:
    """Those that are set; null leaves an input unset, for `$[[ … ]]` in the command."""
    return {
        name: _input(value, ("inputs", name))
        for name, value in _read_entries(job, "inputs").items()
        if value is not None
    }


def read_outputs(job: Mapping[str, Any]) -> dict[str, Output]:
    return {
        name: _output(value, ("outputs", name))
        for name, value in _read_entries(job, "outputs").items()
    }


def _input(value: Any, at: At) -> Input:
    if isinstance(value, str | int | float | bool):
        return Input(LITERAL, value=literal(value))
    body = mapping(value, at, f"input `{at[-1]}`")
    if "default" in body and "value" not in body:
        raise InvalidSpec(
            "unknown key `default`: a job's input has a value, a component's a default",
            "write `value:`",
            at=(*at, "default"),
        )
    known_keys(body, "inputs.*", at)
    kind = served(body, "type", at, "inputs.*.type", "")
    if "value" in body:
        return _long_literal(body, kind, at)
    if kind in _LITERAL_TYPES:
        raise InvalidSpec(f"input `{at[-1]}` of type `{kind}` has no `value`", "give it one", at=at)
    path = text(body, "path", at).strip()
    if not path:
        raise InvalidSpec(
            f"input `{at[-1]}` has no `path`", "name a file or a folder, or give a `value`", at=at
        )
    kind = kind or "uri_folder"
    mode = served(body, "mode", at, "inputs.*.mode", "ro_mount")
    if mode.startswith("eval_") and kind != "mltable":
        raise InvalidSpec(
            f"`mode: {mode}` is for `type: mltable`, and input `{at[-1]}` is a `{kind}`",
            f"write `mode: {'download' if mode == 'eval_download' else 'ro_mount'}`",
            at=(*at, "mode"),
        )
    return Input(kind, path=path, mode=mode)


def _long_literal(body: Mapping[Any, Any], kind: str, at: At) -> Input:
    if "path" in body:
        raise InvalidSpec(f"input `{at[-1]}` has both `value` and `path`", "keep one", at=at)
    if "mode" in body or (kind and kind not in _LITERAL_TYPES):
        key = "mode" if "mode" in body else "type"
        raise InvalidSpec(
            f"input `{at[-1]}` has a `value`, and `{key}: {body[key]}` is for data",
            f"remove `{key}`, or give a `path`",
            at=(*at, key),
        )
    value = body["value"]
    if not isinstance(value, str | int | float | bool):
        raise InvalidSpec(
            f"the `value` of input `{at[-1]}` must be text, a number, true or false",
            "give files as `path:` with `type: uri_file` or `uri_folder`",
            at=(*at, "value"),
        )
    text_value = literal(value)
    if kind and "${{" not in text_value and not _is_a(kind, text_value):
        raise InvalidSpec(
            f"the `value` of input `{at[-1]}` is not of its `type: {kind}`: `{text_value[:80]}`",
            _EXAMPLES[kind],
            at=(*at, "value"),
        )
    return Input(LITERAL, value=text_value)


def _is_a(kind: str, text_value: str) -> bool:
    """Whether a script gets from the text what its type promises, as azure-ai-ml reads it."""
    if kind == "boolean":
        return text_value.lower() in ("true", "false")
    if kind == "string":
        return True
    try:
        (int if kind == "integer" else float)(text_value)
    except ValueError:
        return False
    return True


def _output(value: Any, at: At) -> Output:
    if isinstance(value, str):
        raise InvalidSpec(
            f"output `{at[-1]}` must be a mapping of keys to values",
            f"write `path: {value}` below it",
            at=at,
        )
    body = mapping(value or {}, at, f"output `{at[-1]}`")
    known_keys(body, "outputs.*", at)
    name, version = text(body, "name", at), body.get("version")
    if name and not _ASSET_NAME.match(name):
        raise InvalidSpec(
            f"`{name[:80]}` is not a valid name to register an output under",
            "use letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=(*at, "name"),
        )
    if version is not None and not name:
        raise InvalidSpec(
            f"output `{at[-1]}` has a `version` and no `name`",
            "give the `name` that it is registered under",
            at=(*at, "version"),
        )
    if isinstance(version, Mapping | list | bool):
        raise InvalidSpec(
            "`version` must be text or a number", "for example `version: 1`", at=(*at, "version")
        )
    if version is not None and not _VERSION.match(str(version)):
        raise InvalidSpec(
            f"`{str(version)[:80]}` is not a valid version to register an output under",
            "use up to 30 letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=(*at, "version"),
        )
    return Output(
        served(body, "type", at, "outputs.*.type", "uri_folder"),
        served(body, "mode", at, "outputs.*.mode", RW_MOUNT),
        text(body, "path", at).strip(),
        name,
        "" if version is None else str(version),
    )


def _read_entries(job: Mapping[str, Any], key: str) -> dict[str, Any]:
    body = mapping(job.get(key) or {}, (key,), f"`{key}`")
    for name in body:
        if not isinstance(name, str) or not IO_NAME.match(name):
            raise InvalidSpec(
                f"`{str(name)[:80]}` is not a valid name in `{key}`",
                "use letters, digits and underscores, and no digit first",
                at=(key, str(name)),
            )
    return dict(body)
