"""Write a pipeline as a Python function.

Owns: `@pipeline`: a pipeline's inputs, outputs and settings, pipelines in each other.
Leaves: steps to pipeline_steps.py, what is valid to the server.
Always: what is built is the document that the same pipeline's file would hold.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, overload

from torchyard.base.errors import InvalidInput, did_you_mean
from torchyard.client.job_documents import Input, JobDocument, as_json
from torchyard.client.pipeline_steps import (
    PipelineInput,
    Scope,
    StepOutput,
    of_component,
    running,
)

_KINDS = {bool: "boolean", int: "integer", float: "number", str: "string"}
_SETTINGS = (
    "default_compute",
    "default_datastore",
    "continue_on_step_failure",
    "force_rerun",
)


@dataclass
class PipelineJob(JobDocument):
    """A pipeline that is not submitted yet; `document` is its file.

    Example::

        job = digits(lr=0.1)
        job.settings["default_compute"] = "gpu"
    """

    @property
    def settings(self) -> dict[str, Any]:
        """`default_compute`, `continue_on_step_failure`, …; see the pipeline's file."""
        settings: dict[str, Any] = self.document.setdefault("settings", {})
        return settings


class PipelineFunction:
    """A function below `@pipeline`: a job where it is called, a step inside of another one."""

    def __init__(self, function: Callable[..., Any], keys: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._keys = function, keys
        self._name = str(keys.get("name") or function.__name__)

    def __call__(self, *args: Any, **values: Any) -> Any:
        parameters = inspect.signature(self._function).parameters
        for name in values:
            if name not in parameters:
                raise InvalidInput(
                    f"pipeline `{self._name}` has no input `{name}`",
                    did_you_mean(name, list(parameters), "its function has no parameters"),
                )
        try:
            bound = inspect.signature(self._function).bind(*args, **values)
        except TypeError as error:
            raise InvalidInput(
                f"pipeline `{self._name}`: {error}", "pass a value for each of its inputs"
            ) from error
        bound.apply_defaults()
        given = {name: value for name, value in bound.arguments.items() if value is not None}
        outer = running.get()
        document = self._built({name: _kind(value) for name, value in given.items()})
        if outer is None:
            scope = Scope(self._name)
            inputs = {name: scope.plain(value, f"input `{name}`") for name, value in given.items()}
            return PipelineJob({**document, **({"inputs": inputs} if inputs else {}), **self._keys})
        step = outer.add(of_component(document, document, self._name), (), given)
        settings = self._keys.get("settings") or {}
        if compute := settings.get("default_compute") or self._keys.get("compute"):
            step.compute = compute
        return step

    def _built(self, kinds: Mapping[str, str]) -> dict[str, Any]:
        """The document of a pipeline component.

        Args:
            kinds: the type of each input that has a value; the function gets None for others.
        """
        scope = Scope(self._name)
        arguments = {
            name: PipelineInput(name, kinds[name], scope) if name in kinds else None
            for name in inspect.signature(self._function).parameters
        }
        token = running.set(scope)
        try:
            returned, variables = _called(self._function, arguments)
        finally:
            running.reset(token)
        scope.name_steps(variables)
        outputs = self._outputs(scope, {} if returned is None else returned)
        bound = {(each._step.name, each.name): name for name, each in outputs.items()}
        parts = {
            "inputs": {name: {"type": kind} for name, kind in kinds.items()},
            "outputs": {name: {"type": each.type} for name, each in outputs.items()},
        }
        if not scope.steps:
            raise InvalidInput(
                f"pipeline `{self._name}` has no steps", "call a component in its function"
            )
        filled = {key: each for key, each in parts.items() if each}
        return {"type": "pipeline", **filled, "jobs": scope.jobs(bound)}

    def _outputs(self, scope: Scope, returned: Any) -> dict[str, StepOutput]:
        hint = 'for example `return {"model": step.outputs.model}`'
        if not isinstance(returned, Mapping):
            raise InvalidInput(
                f"the function of pipeline `{self._name}` returns {type(returned).__name__}", hint
            )
        names: dict[tuple[str, str], str] = {}
        for name, output in returned.items():
            if not isinstance(output, StepOutput):
                raise InvalidInput(
                    f"output `{name}` of pipeline `{self._name}` is not an output of a step", hint
                )
            scope.plain(output, f"output `{name}`")
            other = names.setdefault((output._step.name, output.name), name)
            if other != name:
                raise InvalidInput(
                    f"outputs `{other}` and `{name}` of pipeline `{self._name}` are both "
                    f"`{output.name}` of step `{output._step.name}`",
                    "return it once",
                )
        return dict(returned)


def _called(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """What a function returns, and what its variables hold then."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    variables: dict[str, Any] = {}

    def see(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "return" and frame.f_code is code:
            variables.update(frame.f_locals)

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        return function(**arguments), variables
    finally:
        sys.setprofile(before)


def _kind(value: Any) -> str:
    """The type of a pipeline's input that has this value."""
    if isinstance(value, (PipelineInput, StepOutput, Input)):
        return value.type
    if isinstance(value, Mapping):
        return str(value.get("type") or "uri_folder")
    return next((kind for each, kind in _KINDS.items() if isinstance(value, each)), "string")


@overload
def pipeline(function: Callable[..., Any], /) -> PipelineFunction: ...
@overload
def pipeline(
    *,
    name: str | None = None,
    display_name: str | None = None,
    description: str | None = None,
    experiment_name: str | None = None,
    compute: str | None = None,
    tags: Mapping[str, str] | None = None,
    **more: Any,
) -> Callable[[Callable[..., Any]], PipelineFunction]: ...
def pipeline(function: Callable[..., Any] | None = None, /, **keys: Any) -> Any:
    """Make a function write a pipeline: its parameters are inputs, the components that it calls
    steps, the mapping that it returns outputs.

    Called, it is a job for `client.jobs.create`; called within another such function, a step with
    its steps inside. A parameter stands for a value that is not known yet; one that is None is
    None in the function, too. `compute`, `display_name`, `settings` and other keys of a pipeline's
    file go to the decorator.

    Raises:
        InvalidInput: an input that a step lacks, does not have, or that belongs elsewhere.

    Example::

        prep, train = load_component("prep.yml"), load_component("train.yml")


        @pipeline(compute="local")
        def digits(lr=0.1):
            prepared = prep(rows=100)
            trained = train(data=prepared.outputs.data, lr=lr)
            return {"model": trained.outputs.model}


        job = client.jobs.create(digits(lr=0.2))
    """
    filled = {key: as_json(each) for key, each in keys.items() if each is not None}
    settings = {key: filled.pop(key) for key in _SETTINGS if key in filled}
    if settings:
        filled["settings"] = {**(filled.get("settings") or {}), **settings}
    if filled.get("type", "pipeline") != "pipeline":
        raise InvalidInput("`@pipeline` makes a job of type `pipeline`", "leave out `type`")

    def decorate(function: Callable[..., Any]) -> PipelineFunction:
        return PipelineFunction(function, filled)

    return decorate if function is None else decorate(function)
