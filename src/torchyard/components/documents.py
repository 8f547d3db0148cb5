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
from typing import Any, ClassVar

from torchyard.base.documents import expressions
from torchyard.base.documents.checks import At, By, Key, Texts
from torchyard.base.documents.faults import entries
from torchyard.base.documents.models import Document, declared, keys, rule
from torchyard.base.errors import InvalidSpec, did_you_mean, nearest
from torchyard.base.fields import described
from torchyard.data.documents import AssetFile
from torchyard.data.types import ONNX_TYPE

_NOT_YET = (
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
_MOST_PORTS = 1000
_AS_A_JOB = Key("as of a job: see [the job file](job-file.md)")


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


class PortFile(Document):
    """What inputs and outputs have."""

    example: ClassVar[str] = "{type: number}"
    types: ClassVar[tuple[str, ...]] = ()

    type: str = declared("", _AS_A_JOB, By(lambda value, at: str(value).lower()))
    description: Any = declared(None)
    mode: Any = declared(None, _AS_A_JOB)
    path: Any = declared(None, _AS_A_JOB)

    @rule("type")
    def _type(self) -> None:
        if self.type not in self.types:
            raise InvalidSpec(
                f"`{self.type[:80]}` is not a type" if self.type else "`type` is missing",
                did_you_mean(self.type, self.types),
                at=["type"],
            )


class InputFile(PortFile):
    types: ClassVar[tuple[str, ...]] = (*_LITERALS, *_DATA)

    default: Any = declared(None, "of a number, integer, boolean, string or path")
    optional: Any = declared(None, "`true`: a job may leave it out")
    min: Any = declared(None, "of a number")
    max: Any = declared(None, "of a number")
    enum: Any = declared(None, "the values that it may have")

    @rule("type", "default")
    def _default(self) -> None:
        if self.default is not None and self.type in _DATA and self.type != "path":
            raise InvalidSpec(
                "an input that is data can't have a `default`",
                "write `optional: true`, or use a literal type",
                at=["default"],
            )

    @rule("optional")
    def _optional(self) -> None:
        if str(self.optional).lower() not in ("none", "true", "false"):
            raise InvalidSpec(
                f"`optional` is {described(self.optional)}",
                "write `true` or `false`",
                at=["optional"],
            )

    @rule("min", "max")
    def _bounds(self) -> None:
        for key in ("min", "max"):
            value = getattr(self, key)
            if value is not None and not _is_number(value):
                raise InvalidSpec(
                    f"`{key}` must be a number, not {described(value)}",
                    f"for example `{key}: 1`",
                    at=[key],
                )

    @rule("enum")
    def _enum(self) -> None:
        if self.enum is not None and not isinstance(self.enum, list):
            raise InvalidSpec(
                f"`enum` must be a list of values, not {described(self.enum)}",
                "for example `enum: [low, high]`",
                at=["enum"],
            )


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return True


class OutputFile(PortFile):
    types: ClassVar[tuple[str, ...]] = (*_DATA, ONNX_TYPE, *_LITERALS)

    early_available: Any = declared(None, "of steps of a pipeline", support="satisfied")
    is_control: Any = declared(None, "of steps of a pipeline", support="satisfied")


def _ports(model: type[PortFile]) -> By:
    """Inputs or outputs as they are written, with their types in lower case."""

    def read(value: Any, at: At) -> dict[str, dict[str, Any]]:
        ports = value or {}
        if not isinstance(ports, Mapping):
            raise InvalidSpec(f"`{at[-1]}` is not a mapping", "write `name: {type: number}`", at=at)
        if len(ports) > _MOST_PORTS:
            raise InvalidSpec(
                f"the component has {len(ports):,} {at[-1]}; the limit is {_MOST_PORTS:,}",
                "put them into a file, and make that one input or output",
                at=at,
            )
        return {
            name: {
                **{key: each for key, each in ports[name].items() if each is not None},
                "type": file.type,
            }
            for name, file in entries(ports, at, model.read).items()
        }

    return By(read, of=model, is_named=True)


class ComponentFile(AssetFile):
    """What components of every type have."""

    subject: ClassVar[str] = "the component"
    noun: ClassVar[str] = "a component"
    thing: ClassVar[str] = "component"

    type: Any = declared(None, "`command` or `pipeline`")
    display_name: Any = declared(None)
    is_deterministic: Any = declared(
        None, "`false`: steps of it run each time, whatever ran before"
    )
    inputs: dict[str, Any] = declared({}, "`{type, …}` by their names", _ports(InputFile))
    outputs: dict[str, Any] = declared({}, "`{type, …}` by their names", _ports(OutputFile))


class CommandComponentFile(ComponentFile):
    resolved: ClassVar[tuple[str, ...]] = ("command", "environment_variables.*", "outputs.*.path")

    command: Any = declared(None, "what it runs")
    code: Any = declared(None, _AS_A_JOB)
    environment: Any = declared(None, _AS_A_JOB)
    environment_variables: dict[str, str] = declared({}, _AS_A_JOB, Texts())
    distribution: Any = declared(None, _AS_A_JOB)
    resources: Any = declared(None, _AS_A_JOB)
    limits: Any = declared(None, _AS_A_JOB)
    additional_includes: Any = declared(None, "the client puts them into the code")
    identity: Any = declared(None, _AS_A_JOB)

    @rule("command")
    def _command(self) -> None:
        if not isinstance(self.command, str) or not self.command.strip():
            raise InvalidSpec(
                "the component has no `command`", "write what it runs", at=["command"]
            )

    @rule("environment")
    def _environment(self) -> None:
        if not isinstance(self.environment, str | Mapping):
            raise InvalidSpec(
                "the component has no `environment`",
                "name one, as `azureml:sklearn-1.5@latest`",
                at=["environment"],
            )

    @rule("command", "inputs", "outputs")
    def _names_in_command(self) -> None:
        if isinstance(self.command, str):
            expressions.check_command(self.command, self.inputs, self.outputs)

    @rule("environment_variables", "inputs", "outputs")
    def _names_in_variables(self) -> None:
        expressions.check_variables(self.environment_variables, self.inputs, self.outputs)


class PipelineComponentFile(ComponentFile):
    jobs: Any = declared(None, "the steps, as of a pipeline job")

    @rule("jobs")
    def _steps(self) -> None:
        if not isinstance(self.jobs, Mapping) or not self.jobs:
            raise InvalidSpec(
                "the component has no `jobs`", "write its steps, as of a pipeline", at=["jobs"]
            )

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        """Steps have expressions of their own kind, which pipelines/ reads."""
        return super()._further_faults({k: v for k, v in body.items() if k != "jobs"}, at)


_FILES: Mapping[str, type[ComponentFile]] = {
    "command": CommandComponentFile,
    "pipeline": PipelineComponentFile,
}


def read(document: Mapping[str, Any]) -> ComponentRequest:
    """
    Raises:
        InvalidSpec: what is wrong, and where.
    """
    kind = check_type(document.get("type"))
    model = _FILES[kind]
    file = model.read(document)
    own = [key for key in keys(model) if key not in keys(AssetFile)]
    definition = {
        key: value for key, value in document.items() if key in own and value not in (None, {}, [])
    }
    definition |= {"type": kind}
    if isinstance(file, CommandComponentFile):
        definition |= {"environment": _environment(file.environment)}
    definition |= {"inputs": file.inputs} if file.inputs else {}
    definition |= {"outputs": file.outputs} if file.outputs else {}
    return ComponentRequest(
        name=file.name,
        type=kind,
        definition=definition,
        version=file.version,
        description=file.description,
        tags=file.tags,
        properties=file.properties,
    )


def check_type(written: Any) -> str:
    """
    Raises:
        InvalidSpec: not the type of a component that can be registered.
    """
    plain = str(written or "command").lower()
    if plain in _FILES:
        return plain
    guess = nearest(plain, (*_FILES, *_NOT_YET))
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
