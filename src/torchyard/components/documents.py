"""A component's document.

Owns: its keys and their forms, what an input may be.
Leaves: resolving its environment to jobs/.
Always: the keys are those of Azure ML's command component; a type of component that is not
supported is refused by name.

Source: https://learn.microsoft.com/azure/machine-learning/reference-yaml-component-command
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base import fields
from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec, did_you_mean, nearest
from torchyard.data import documents
from torchyard.data.types import ONNX_TYPE

_DESCRIPTIVE = ("name", "version", "description", "tags", "properties", "$schema")
KEYS = (
    "type", "display_name", "is_deterministic", "command", "code", "environment",
    "environment_variables", "distribution", "resources", "inputs", "outputs", "limits",
    "additional_includes", "identity",
)  # fmt: skip
_NOT_YET = (
    "pipeline",
    "sweep",
    "parallel",
    "spark",
    "automl",
    "import",
    "data_transfer",
    "flow_parallel",
)
_INSTEAD = {"spark": "run the framework from the command of a `type: command` component"}
_LITERALS = ("number", "integer", "boolean", "string")
_DATA = (
    "uri_file", "uri_folder", "mltable", "custom_model", "mlflow_model", "triton_model", "path",
)  # fmt: skip
_INPUT_KEYS = ("type", "default", "optional", "min", "max", "enum", "description", "mode", "path")
_OUTPUT_KEYS = ("type", "description", "mode", "path", "early_available", "is_control")
_NAME_MAX_LENGTH = 255
_RESOLVED = ("command", "environment_variables.*", "outputs.*.path")


@dataclass(frozen=True)
class ComponentRequest:
    """A component's document, read."""

    name: str
    type: str
    definition: dict[str, Any]
    version: str = ""
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        text = json.dumps(self.definition, sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


@faults.all_at_once
def read(document: Mapping[str, Any]) -> ComponentRequest:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    kind = check_type(document.get("type"))
    fields.refuse_unknown(document, (*KEYS, *_DESCRIPTIVE))
    expressions.refuse(document, _RESOLVED)
    name = documents.name_of(document, "a component", "component")
    if not isinstance(document.get("command"), str) or not document["command"].strip():
        raise InvalidSpec("the component has no `command`", "write what it runs", at=["command"])
    if not isinstance(document.get("environment"), str | Mapping):
        raise InvalidSpec(
            "the component has no `environment`",
            "name one, as `azureml:sklearn-1.5@latest`",
            at=["environment"],
        )
    definition = {
        key: value for key, value in document.items() if key in KEYS and value not in (None, {}, [])
    }
    definition["environment"] = _environment(document["environment"])
    for key, read_one in (("inputs", _input), ("outputs", _output)):
        ports = document.get(key) or {}
        if not isinstance(ports, Mapping):
            raise InvalidSpec(f"`{key}` is not a mapping", "write `name: {type: number}`", at=[key])
        if ports:
            definition[key] = {port: read_one(port, ports[port], (key, port)) for port in ports}
    ports_by_kind = [definition.get(key, {}) for key in ("inputs", "outputs")]
    expressions.check_command(document["command"], *ports_by_kind)
    expressions.check_variables(fields.texts(document, "environment_variables"), *ports_by_kind)
    return ComponentRequest(
        name=name,
        type=kind,
        definition={**definition, "type": kind},
        version=documents.version_of(document),
        description=str(document.get("description") or ""),
        tags=fields.texts(document, "tags"),
        properties=fields.texts(document, "properties"),
    )


def check_type(written: Any) -> str:
    """
    Raises:
        InvalidSpec: not the type of a component that can be registered.
    """
    plain = str(written or "command").lower()
    if plain == "command":
        return plain
    guess = nearest(plain, ("command", *_NOT_YET))
    if guess in _NOT_YET:
        raise InvalidSpec(
            f"components of type `{written}` are not supported yet",
            _INSTEAD.get(guess, "use `type: command`"),
            code="not_served",
            at=["type"],
        )
    raise InvalidSpec(f"`{written}` is not a component type", "use `type: command`", at=["type"])


def _environment(reference: Any) -> Any:
    """A reference in its shortest form, so that equal contents are written equally."""
    if isinstance(reference, str) and not reference.startswith("azureml:/"):
        return reference.strip().removeprefix("azureml:")
    return reference


def _input(name: str, port: Any, at: tuple[str, ...]) -> dict[str, Any]:
    checked = _port(name, port, at, (*_LITERALS, *_DATA), _INPUT_KEYS)
    if "default" in checked and checked["type"] in _DATA and checked["type"] != "path":
        raise InvalidSpec(
            f"input `{name}` is data and can't have a `default`",
            "write `optional: true`, or use a literal type",
            at=[*at, "default"],
        )
    return checked


def _output(name: str, port: Any, at: tuple[str, ...]) -> dict[str, Any]:
    return _port(name, port, at, (*_DATA, ONNX_TYPE, *_LITERALS), _OUTPUT_KEYS)


def _port(
    name: str, port: Any, at: tuple[str, ...], types: tuple[str, ...], keys: tuple[str, ...]
) -> dict[str, Any]:
    if not isinstance(port, Mapping):
        raise InvalidSpec(f"`{name}` is not a mapping", "write its `type`", at=at)
    for key in port:
        if key not in keys:
            raise fields.unknown_key(str(key), keys, at, inside=name)
    kind = str(port.get("type") or "").lower()
    if kind not in types:
        raise InvalidSpec(
            f"`{port.get('type')}` is not a type for `{name}`",
            did_you_mean(kind, types),
            at=[*at, "type"],
        )
    return {**{key: value for key, value in port.items() if value is not None}, "type": kind}
