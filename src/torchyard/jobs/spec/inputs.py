"""Inputs and outputs of a job file.

Owns: `Input` and `Output`, and which of their keys go together.
Leaves: what a path stands for to requests/pinning.py and files/outputs.py.
Always: an input is a literal or has a path; an output has the defaults of Azure ML.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Choice, Key, Text
from torchyard.base.documents.faults import entries, within
from torchyard.base.documents.models import declared, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import literal
from torchyard.jobs.spec.parts import JobPart, mapping

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


_MODEL = Key("`path` may be `azureml:<model>:<version>`")
_LITERAL = Key("with `value`")
_BESIDE = Key("`type: mltable` whose files lie beside it")
_ONLY_READ = Key("an input is only read: declare it under `outputs`", "refused")
_INPUT_TYPE = Choice(
    uri_folder=Key("the default"),
    uri_file=Key(),
    mltable=Key("a folder with an `MLTable`"),
    custom_model=_MODEL,
    mlflow_model=_MODEL,
    triton_model=_MODEL,
    string=_LITERAL,
    integer=_LITERAL,
    number=_LITERAL,
    boolean=_LITERAL,
)
_INPUT_MODE = Choice(
    ro_mount=Key("the default; refuses writes"),
    download=Key("a copy of the node's own"),
    direct=Key("the command gets the URI"),
    eval_mount=_BESIDE,
    eval_download=_BESIDE,
    rw_mount=_ONLY_READ,
    upload=_ONLY_READ,
)
_OUTPUT_TYPE = Choice(
    uri_folder=Key("the default"),
    uri_file=Key(),
    mltable=Key(),
    custom_model=Key(),
    mlflow_model=Key(),
    triton_model=Key(),
    onnx_model=Key("torchyard's own: one ONNX file, which `name` registers as a `custom_model`"),
)
_OUTPUT_MODE = Choice(
    rw_mount=Key("the default; shows what is at `path` already"),
    upload=Key("the folder is empty when the job starts"),
    direct=Key("the command gets the URI"),
    mount=Key("as `rw_mount`"),
)


def _value(value: Any, at: At) -> Any:
    if not isinstance(value, str | int | float | bool):
        raise InvalidSpec(
            f"the `value` of input `{at[-2]}` must be text, a number, true or false",
            "give files as `path:` with `type: uri_file` or `uri_folder`",
            at=at,
        )
    return literal(value)


class InputFile(JobPart):
    """An input in its long form."""

    path_in_file: ClassVar[str] = "inputs.*"

    value: str | None = declared(None, "the same, in the long form", By(_value))
    path: str = declared("", "here, a datastore, an asset, another job's output, a URL", Text())
    type: str = declared("", check=_INPUT_TYPE)
    mode: str = declared("", check=_INPUT_MODE)
    path_on_compute: None = refused(
        "use `${{inputs.<name>}}` in the command: it stands for the path"
    )
    datastore: Any = declared(
        None, "uploads are kept by content, for every datastore", support="satisfied"
    )

    def of(self, name: str) -> Input:
        """
        Raises:
            InvalidSpec: keys that don't go together, at a place within this input.
        """
        if "value" in self.model_fields_set:
            return self._literal(name)
        if self.type in _LITERAL_TYPES:
            raise InvalidSpec(f"input `{name}` of type `{self.type}` has no `value`", "give it one")
        if not self.path.strip():
            raise InvalidSpec(
                f"input `{name}` has no `path`", "name a file or a folder, or give a `value`"
            )
        kind, mode = self.type or "uri_folder", self.mode or "ro_mount"
        if mode.startswith("eval_") and kind != "mltable":
            raise InvalidSpec(
                f"`mode: {mode}` is for `type: mltable`, and input `{name}` is a `{kind}`",
                f"write `mode: {'download' if mode == 'eval_download' else 'ro_mount'}`",
                at=("mode",),
            )
        return Input(kind, path=self.path.strip(), mode=mode)

    def _literal(self, name: str) -> Input:
        if "path" in self.model_fields_set:
            raise InvalidSpec(f"input `{name}` has both `value` and `path`", "keep one")
        if "mode" in self.model_fields_set or (self.type and self.type not in _LITERAL_TYPES):
            key = "mode" if "mode" in self.model_fields_set else "type"
            raise InvalidSpec(
                f"input `{name}` has a `value`, and `{key}: {getattr(self, key)}` is for data",
                f"remove `{key}`, or give a `path`",
                at=(key,),
            )
        value = self.value or ""
        if self.type and "${{" not in value and not is_a(self.type, value):
            raise InvalidSpec(
                f"the `value` of input `{name}` is not of its `type: {self.type}`: `{value[:80]}`",
                _EXAMPLES[self.type],
                at=("value",),
            )
        return Input(LITERAL, value=value)


def _version(value: Any, at: At) -> str:
    if isinstance(value, Mapping | list | bool):
        raise InvalidSpec("`version` must be text or a number", "for example `version: 1`", at=at)
    if not _VERSION.match(str(value)):
        raise InvalidSpec(
            f"`{str(value)[:80]}` is not a valid version to register an output under",
            "use up to 30 letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
            at=at,
        )
    return str(value)


class OutputFile(JobPart):
    path_in_file: ClassVar[str] = "outputs.*"

    type: str = declared("uri_folder", check=_OUTPUT_TYPE)
    mode: str = declared(RW_MOUNT, check=_OUTPUT_MODE)
    path: str = declared(
        "",
        "`azureml://datastores/…`, with `${{name}}`, `${{output_name}}`, `${{default_datastore}}`",
        Text(),
    )
    name: str = declared("", "registers the output when the job has completed", Text())
    version: str = declared(
        "", "of what `name` registers; the next one when left out", By(_version)
    )

    @rule("name")
    def _name(self) -> None:
        if self.name and not _ASSET_NAME.match(self.name):
            raise InvalidSpec(
                f"`{self.name[:80]}` is not a valid name to register an output under",
                "use letters, digits, `_`, `-` and `.`, beginning with a letter or digit",
                at=("name",),
            )

    def of(self, name: str) -> Output:
        if self.version and not self.name:
            raise InvalidSpec(
                f"output `{name}` has a `version` and no `name`",
                "give the `name` that it is registered under",
                at=("version",),
            )
        return Output(self.type, self.mode, self.path.strip(), self.name, self.version)


def read_inputs(value: Any, at: At) -> dict[str, Input]:
    """Those that are set; null leaves an input unset, for `$[[ … ]]` in the command.

    Raises:
        InvalidSpec: what is wrong with any of them.
    """
    set_ones = {name: each for name, each in _entries(value, at).items() if each is not None}
    return entries(set_ones, at, _input)


def read_outputs(value: Any, at: At) -> dict[str, Output]:
    """
    Raises:
        InvalidSpec: what is wrong with any of them.
    """
    return entries(_entries(value, at), at, _output)


def _input(value: Any, at: At) -> Input:
    name = str(at[-1])
    if isinstance(value, str | int | float | bool):
        return Input(LITERAL, value=literal(value))
    body = mapping(value, at, f"input `{name}`")
    if "default" in body and "value" not in body:
        raise InvalidSpec(
            "unknown key `default`: a job's input has a value, a component's a default",
            "write `value:`",
            at=(*at, "default"),
        )
    return within(at, InputFile.read(body, at).of, name)


def _output(value: Any, at: At) -> Output:
    name = str(at[-1])
    if isinstance(value, str):
        raise InvalidSpec(
            f"output `{name}` must be a mapping of keys to values",
            f"write `path: {value}` below it",
            at=at,
        )
    return within(at, OutputFile.read(value or {}, at).of, name)


def is_a(kind: str, text_value: str) -> bool:
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


def _entries(value: Any, at: At) -> dict[str, Any]:
    key = str(at[-1])
    example = "{NAME: {type: uri_folder}}" if key == "outputs" else "{KEY: value}"
    body = mapping(value, at, f"`{key}`", example)
    for name in body:
        if not isinstance(name, str) or not IO_NAME.match(name):
            raise InvalidSpec(
                f"`{str(name)[:80]}` is not a valid name in `{key}`",
                "use letters, digits and underscores, and no digit first",
                at=(*at, str(name)),
            )
    return dict(body)
