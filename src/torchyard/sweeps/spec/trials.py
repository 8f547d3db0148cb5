"""The trial of a sweep: how it is given, and the job file of each.

Owns: the key `trial`; the document of one trial's job.
Leaves: the command to trial_command.py, checking the document to jobs/spec/.
Always: a sweep is accepted only if the document of a trial would be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.documents import secret_variables
from torchyard.base.documents.checks import At
from torchyard.base.documents.models import Document, declared
from torchyard.base.errors import InvalidSpec, moved
from torchyard.base.fields import described
from torchyard.jobs.spec import job_spec
from torchyard.shared.secret_values import looks_secret
from torchyard.sweeps.spec import trial_command
from torchyard.sweeps.spec.search_space import (
    Choice,
    Normal,
    Parameter,
    Randint,
    SearchSpace,
    Uniform,
    Value,
)

AS_A_JOB = "as of a job: see [the job file](job-file.md)"
EXAMPLE = (
    "for example `trial: {command: python train.py --lr ${{search_space.lr}}, environment: python}`"
)
_LONGEST_COMPONENT = 2048


class TrialFile(Document):
    schema_: Any = declared(None, "for editors; not read", support="satisfied", alias="$schema")
    type: Any = declared(None, "`command`", support="satisfied")
    command: Any = declared(None, "`${{search_space.<name>}}` stands for a value")
    code: Any = declared(None, AS_A_JOB)
    environment: Any = declared(None, AS_A_JOB)
    environment_variables: Any = declared(None, "beside `AZUREML_SWEEP_<name>` of each value")
    distribution: Any = declared(None, AS_A_JOB)
    resources: Any = declared(None, AS_A_JOB)
    services: Any = declared(None, AS_A_JOB)
    queue_settings: Any = declared(None, AS_A_JOB)
    limits: Any = declared(None, "as `limits.trial_timeout` of the sweep, which it goes before")

    @classmethod
    def as_json_schema(cls) -> dict[str, Any]:
        schema = super().as_json_schema()
        of_job = job_spec.JobFile.as_json_schema()["properties"]
        return {**schema, "properties": {key: of_job[key] for key in schema["properties"]}}


def read(value: Any, at: At) -> Mapping[str, Any] | str:
    """The inline trial, or the reference to a component.

    Raises:
        InvalidSpec: it is neither.
    """
    if isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_COMPONENT:
        return value.strip()
    if not isinstance(value, Mapping) or not value:
        raise InvalidSpec(
            f"`trial` must be a mapping or the name of a component, not {described(value)}",
            EXAMPLE,
            at=at,
        )
    return read_inline(value, at)


def read_inline(trial: Mapping[str, Any], at: At = ("trial",)) -> dict[str, Any]:
    """
    Raises:
        InvalidSpec: a key that a trial has not.
    """
    TrialFile.read(trial, at)
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
