"""Steps of a pipeline that is being built.

Owns: what a step takes and makes, what its inputs are bound to; `load_component()`.
Leaves: functions that build pipelines to pipeline_functions.py, files of components and inputs to
snapshots/, what is valid to the server.
Always: a step belongs to the pipeline whose function was running when it was made; bindings are
written once that function is done, so that steps can be renamed and changed in it.
"""

from __future__ import annotations

import contextvars
import os
import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.client.job_documents import JobDocument, Output, as_json
from torchyard.shared.plurals import plural

# What a step says of itself, beside its inputs and outputs; those of a job's file.
_KEYS = (
    "code", "command", "compute", "description", "display_name", "distribution", "environment",
    "environment_variables", "identity", "is_deterministic", "limits", "properties",
    "queue_settings", "resources", "services", "tags", "torchyard",
)  # fmt: skip
# What bindings begin with.
_RESERVED = ("inputs", "outputs", "jobs", "parent", "settings")
_MAPPINGS = ("resources", "limits", "distribution", "environment_variables", "tags", "properties")


@dataclass(frozen=True, eq=False)
class PipelineInput:
    """A parameter of a pipeline's function, inside of it: its value is not known there."""

    name: str
    type: str
    _scope: Scope = field(repr=False)

    def __str__(self) -> str:
        return f"${{{{parent.inputs.{self.name}}}}}"

    def __bool__(self) -> bool:
        raise InvalidInput(
            f"the value of `{self.name}` is not known while the pipeline is built",
            "pass it to a step, and decide there; or build another pipeline",
        )


@dataclass(eq=False)
class StepOutput:
    """What a step makes: an input of other steps, or returned, an output of the pipeline."""

    name: str
    type: str
    _step: NewStep = field(repr=False)

    def __str__(self) -> str:
        return f"${{{{parent.jobs.{self._step.name}.outputs.{self.name}}}}}"


@dataclass(frozen=True)
class Source:
    """What a step is made of, with what it takes and makes."""

    name: str
    document: Mapping[str, Any]
    inputs: Mapping[str, Mapping[str, Any]]
    outputs: Mapping[str, Mapping[str, Any]]


class _Ports(MutableMapping[str, Any]):
    """The inputs or outputs of a step, by attribute or by key."""

    _values: dict[str, Any]

    def __init__(self, step: NewStep, kind: str, names: Mapping[str, Any]) -> None:
        vars(self).update(_step=step, _kind=kind, _names=names, _values={})

    def __getitem__(self, name: str) -> Any:
        self._check(name)
        if self._kind == "inputs":
            return self._values.get(name)
        kind = str(self._names[name].get("type") or "uri_folder")
        return StepOutput(name, kind, self._step)

    def __setitem__(self, name: str, value: Any) -> None:
        self._check(name)
        if self._kind == "outputs" and not isinstance(value, (Output, Mapping)):
            raise InvalidInput(
                f"output `{name}` of step `{self._step.name}` can't be {type(value).__name__}",
                "say where it goes: `Output(path=…)`, or return it from the pipeline's function",
            )
        self._values[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what notebooks and copy ask for
            raise AttributeError(name)
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _check(self, name: str) -> None:
        if name not in self._names:
            noun = self._kind.removesuffix("s")
            names = list(self._names)
            raise InvalidInput(
                f"step `{self._step.name}` has no {noun} `{name}`",
                did_you_mean(name, names) if names else f"its component declares no {noun}s",
            )


class NewStep:
    """A step of a pipeline that is being built: what calling a component returns.

    It is named after the variable that holds it at the end of the function, else after its
    component, with a number from the second on; `name` sets another. Its `compute`, `resources`,
    `limits`, `environment_variables`, `distribution` and other keys of a job can be set.

    Example::

        step = train(data=prepared.outputs.data)
        step.name, step.compute = "train_large", "gpu"
        step.resources = {"instance_count": 2}
    """

    inputs: _Ports
    outputs: _Ports
    name: str

    def __init__(self, source: Source, scope: Scope, name: str) -> None:
        vars(self).update(
            name=name,
            _is_named=False,
            _source=source,
            _scope=scope,
            _own={},
            inputs=_Ports(self, "inputs", source.inputs),
            outputs=_Ports(self, "outputs", source.outputs),
        )

    def __setattr__(self, key: str, value: Any) -> None:
        if key == "name":
            vars(self).update(name=value, _is_named=True)
        elif key in ("inputs", "outputs"):
            for name, each in dict(value).items():
                getattr(self, key)[name] = each
        else:
            self._check(key)
            self._own[key] = as_json(value)

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        self._check(key)
        return self._own.setdefault(key, {}) if key in _MAPPINGS else self._own.get(key)

    def __repr__(self) -> str:
        return f"NewStep(name={self.name!r})"

    def _check(self, key: str) -> None:
        if key not in _KEYS:
            keys = ("inputs", "outputs", "name", *_KEYS)
            raise InvalidInput(f"a step has no `{key}`", did_you_mean(key, keys))


@dataclass(eq=False)
class Scope:
    """The pipeline whose function is running."""

    name: str
    steps: list[NewStep] = field(default_factory=list)

    def add(self, source: Source, args: tuple[Any, ...], values: Mapping[str, Any]) -> NewStep:
        step = NewStep(source, self, _free_name(source.name, self.steps))
        if len(args) > len(source.inputs):
            raise InvalidInput(
                f"`{source.name}` takes {len(source.inputs)} "
                f"{plural('input', len(source.inputs))}, not {len(args)}",
                "pass them by their names",
            )
        for key, value in [*zip(source.inputs, args, strict=False), *values.items()]:
            step.inputs[key] = value
        self.steps.append(step)
        return step

    def name_steps(self, variables: Mapping[str, Any]) -> None:
        """Name steps whose `name` was not set after the variables that hold them, as Azure does."""
        unnamed = {id(step): step for step in self.steps if not step._is_named}
        for variable, value in variables.items():
            if id(value) in unnamed and variable not in _RESERVED and variable.strip("_"):
                unnamed.pop(id(value)).name = variable
        named = [step for step in self.steps if step._is_named]
        for step in unnamed.values():
            step.name = _free_name(step._source.name, named)
            named.append(step)

    def jobs(self, bound: Mapping[tuple[str, str], str]) -> dict[str, Any]:
        """The steps' documents.

        Args:
            bound: the outputs of the pipeline that those of steps are.
        """
        names: set[str] = set()
        for step in self.steps:
            if step.name.lower() in names:
                raise InvalidInput(
                    f"two steps of `{self.name}` are named `{step.name}`", "name one otherwise"
                )
            names.add(step.name.lower())
        return {step.name: self._job(step, bound) for step in self.steps}

    def _job(self, step: NewStep, bound: Mapping[tuple[str, str], str]) -> dict[str, Any]:
        inputs = {}
        for name, port in step._source.inputs.items():
            value = step.inputs[name]
            if value is None and "command" in step._source.document:
                value = port.get("default")
            if value is not None:
                inputs[name] = self.plain(value, f"input `{name}` of step `{step.name}`")
            elif not _may_be_left_out(port):
                raise InvalidInput(
                    f"step `{step.name}` of `{self.name}` has no value for its input `{name}`",
                    f"pass it: `{step._source.name}({name}=…)`",
                )
        outputs: dict[str, Any] = {}
        for name, port in step._source.outputs.items():
            written = as_json(step.outputs._values.get(name)) or {}
            if "command" in step._source.document:
                written = {**port, **written}
            if bound_to := bound.get((step.name, name)):
                written = {**written, "path": f"${{{{parent.outputs.{bound_to}}}}}"}
            if written or "command" in step._source.document:
                outputs[name] = written
        own = {key: value for key, value in step._own.items() if value not in (None, {})}
        parts = {"inputs": inputs, "outputs": outputs}
        return {
            **step._source.document,
            **own,
            **{key: each for key, each in parts.items() if each},
        }

    def plain(self, value: Any, subject: str) -> Any:
        """A value as the document has it."""
        if isinstance(value, NewStep):
            raise InvalidInput(
                f"{subject} is bound to step `{value.name}`",
                "name one of its outputs: "
                + ", ".join(f"`{value.name}.outputs.{name}`" for name in value.outputs),
            )
        if isinstance(value, (StepOutput, PipelineInput)):
            owner = value._step._scope if isinstance(value, StepOutput) else value._scope
            if owner is not self:
                raise InvalidInput(
                    f"{subject} is bound to `{value.name}` of pipeline `{owner.name}`, "
                    f"and the step belongs to `{self.name}`",
                    f"pass it to `{self.name}` as an argument",
                )
            return str(value)
        return as_json(value)


running: contextvars.ContextVar[Scope | None] = contextvars.ContextVar("pipeline", default=None)


def _free_name(component: str, steps: Iterable[NewStep]) -> str:
    plain = re.sub(r"\W", "_", component, flags=re.ASCII) or "step"
    base = f"step_{plain}" if plain[0].isdigit() else plain
    taken, number, name = {step.name.lower() for step in steps}, 1, base
    while name.lower() in taken:
        number += 1
        name = f"{base}_{number}"
    return name


def add_step(source: Source, args: tuple[Any, ...], values: Mapping[str, Any]) -> NewStep:
    """Add a step to the pipeline whose function is running."""
    scope = running.get()
    if scope is None:
        raise InvalidInput(
            f"`{source.name}` is called outside of a pipeline",
            "call it in a function below `@pipeline`",
        )
    return scope.add(source, args, values)


def of_component(definition: Mapping[str, Any], reference: Any, name: str) -> Source:
    """
    Args:
        reference: what a step's `component` is.
    """
    kind = {"type": "pipeline"} if definition.get("type") == "pipeline" else {}
    ports = (_mappings(definition.get(key)) for key in ("inputs", "outputs"))
    return Source(name, {**kind, "component": reference}, *ports)


def of_command(job: JobDocument) -> Source:
    """A step that runs a job of its own."""
    document = job.to_dict()
    keys = {key: each for key, each in document.items() if key in _KEYS}
    inputs = {
        name: each if isinstance(each, dict) and not each.get("path") else {"default": each}
        for name, each in (document.get("inputs") or {}).items()
    }
    name = str(document.get("name") or document.get("display_name") or "step")
    return Source(name, {"type": "command", **keys}, inputs, _mappings(document.get("outputs")))


def _mappings(ports: Any) -> dict[str, dict[str, Any]]:
    return {name: dict(port or {}) for name, port in (ports or {}).items()}


def _may_be_left_out(port: Mapping[str, Any]) -> bool:
    return port.get("default") is not None or str(port.get("optional")).lower() == "true"


class LoadedComponent:
    """A component's file, which makes a step where it is called; see `load_component`."""

    def __init__(self, path: Path, definition: Mapping[str, Any]) -> None:
        self.path, self.definition = path, definition
        self.name = str(definition.get("name") or path.stem)

    def __call__(self, *args: Any, **inputs: Any) -> NewStep:
        return add_step(of_component(self.definition, str(self.path), self.name), args, inputs)

    def __repr__(self) -> str:
        return f"LoadedComponent({str(self.path)!r})"


def load_component(source: str | os.PathLike[str]) -> LoadedComponent:
    """Read a component's file, to be called in a pipeline's function.

    Raises:
        InvalidInput: the file does not exist, or is not a YAML mapping.

    Example::

        train = load_component("train.yml")
    """
    from torchyard.client.snapshots import local_paths

    path = local_paths.existing(os.fspath(source), Path.cwd(), ())
    return LoadedComponent(Path(os.path.abspath(path)), local_paths.read_yaml(path, (), {}))
