"""The trial of a sweep: how it is given, and the job file of each.

Owns: the key `trial`; the document of one trial's job.
Leaves: the command to trial_command.py, checking the document to jobs/spec/.
Always: a sweep is accepted only if the document of a trial would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.documents import secret_variables
from torchyard.base.errors import InvalidSpec, moved
from torchyard.base.fields import described, unknown_key
from torchyard.jobs.spec import job_spec
from torchyard.shared.secret_values import looks_secret
from torchyard.sweeps.spec import trial_command
from torchyard.sweeps.spec.keys import TRIAL
from torchyard.sweeps.spec.search_space import (
    Choice,
    Normal,
    Parameter,
    Randint,
    SearchSpace,
    Uniform,
    Value,
)

_LONGEST_COMPONENT = 2048


def read(sweep: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """(the inline trial, the reference to a component); one of them is empty.

    Raises:
        InvalidSpec: it is neither.
    """
    value = sweep.get("trial")
    if isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_COMPONENT:
        return {}, value.strip()
    if not isinstance(value, Mapping) or not value:
        raise InvalidSpec(
            "the sweep has no `trial`"
            if value is None
            else f"`trial` must be a mapping or the name of a component, not {described(value)}",
            "for example `trial: {command: python train.py --lr ${{search_space.lr}}, "
            "environment: python}`",
            at=("trial",) if "trial" in sweep else (),
        )
    return read_inline(value), ""


def read_inline(trial: Mapping[str, Any]) -> dict[str, Any]:
    """
    Raises:
        InvalidSpec: a key that a trial has not.
    """
    names = [key.name for key in TRIAL]
    for key in trial:
        if key not in names:
            raise unknown_key(str(key), names, ("trial",), inside="trial")
    return {key: value for key, value in trial.items() if value is not None}


def check(
    trial: Mapping[str, Any],
    space: SearchSpace,
    inputs: Mapping[str, Any],
    frame: Mapping[str, Any],
) -> tuple[str, ...]:
    """Notices about the jobs that the trials will be.

    Args:
        frame: as of `document`.

    Raises:
        InvalidSpec: the command and the search space don't go together, or a trial's document is
            not one of a job.
    """
    command = trial.get("command")
    if isinstance(command, str):
        trial_command.check(command, space, inputs)
    try:
        job = job_spec.read(document(trial, space, inputs, frame, example(space)))
    except InvalidSpec as error:
        # What is missing belongs into the trial, too.
        inside = {*trial, "command", "environment"}
        raise moved(error, lambda at: ("trial", *at) if at and at[0] in inside else at) from error
    return job.notices


def document(
    trial: Mapping[str, Any],
    space: SearchSpace,
    inputs: Mapping[str, Any],
    frame: Mapping[str, Any],
    parameters: Mapping[str, Value],
) -> dict[str, Any]:
    """
    Args:
        frame: what the sweep itself gives the job.
    """
    job = dict(frame)
    for key, value in trial.items():
        if key in ("$schema", "type"):
            continue
        job[key] = {**job[key], **value} if key in job and isinstance(value, Mapping) else value
    if isinstance(job.get("command"), str):
        job["command"] = trial_command.filled(job["command"], space, inputs, parameters)
    variables = {
        f"{trial_command.VARIABLE_PREFIX}{name}": trial_command.text(value)
        for name, value in parameters.items()
        if name.replace("_", "a").isalnum() and name.isascii()
    }
    written = job.get("environment_variables")
    if written is None or isinstance(written, Mapping):
        job["environment_variables"] = {**variables, **(written or {})}
    return _unmasked(job, variables)


def example(space: SearchSpace) -> dict[str, Value]:
    """Parameters that a trial may have."""
    return {name: _example(parameter) for name, parameter in space.parameters.items()}


def _example(parameter: Parameter) -> Value:
    if isinstance(parameter, Choice):
        value = parameter.values[0]
        return example(value) if isinstance(value, SearchSpace) else value
    if isinstance(parameter, Randint):
        return 0
    assert isinstance(parameter, Uniform | Normal)
    return parameter.at(0.5)


def _unmasked(job: dict[str, Any], variables: Mapping[str, str]) -> dict[str, Any]:
    """Hyperparameters are not secrets, as `api_key` might seem to be."""
    names = [name for name in variables if looks_secret(name)]
    if not names:
        return job
    properties = dict(job.get("properties") or {})
    properties[secret_variables.PLAIN] = ",".join(
        [*secret_variables.marked(properties, secret_variables.PLAIN), *names]
    )
    return {**job, "properties": properties}
