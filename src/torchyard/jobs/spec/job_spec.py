"""The job file: from a mapping to a `JobSpec`.

Owns: `JobSpec`; what stands at the top of a command job; the expressions of its command.
Leaves: which keys are supported to keys.py; inputs and outputs to inputs.py, processes and nodes to
resources.py; what references stand for to requests/pinning.py; places in the file to the CLI.
Always: a `JobSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec, nearest
from torchyard.base.fields import bounded, text, texts
from torchyard.jobs.spec import (
    interception,
    keys,
    limit_properties,
    notification_settings,
    own_properties,
    rehearsal,
    resources,
    retry,
    secrets,
    system_metrics,
    watch_properties,
)
from torchyard.jobs.spec import services as job_services
from torchyard.jobs.spec.elastic import Elastic
from torchyard.jobs.spec.inputs import Input, Output, read_inputs, read_outputs
from torchyard.jobs.spec.notification_settings import Recipient
from torchyard.jobs.spec.services import Service
from torchyard.jobs.spec.values import (
    NAME,
    choice,
    known_keys,
    mapping,
    name,
    served,
)
from torchyard.jobs.spec.values import experiment_name as experiment_name_in
from torchyard.shared import brackets, shell_commands

__all__ = ["NAME", "Input", "JobSpec", "Output", "read"]

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# Linux starts no program with a longer argument, and the command is the shell's.
_LONGEST_COMMAND = 128 << 10
# Other kinds of job, known by a key that only they have.
_SIGNS = {"jobs": "pipeline", "trial": "sweep", "search_space": "sweep", "task": "automl"}
_SERVERLESS = "serverless"
# Names that are known: a `$` in a password is none of them.
_SHELLS = re.compile(
    r"\$\{?(?:HOME|PATH|PWD|USER|TMPDIR|PYTHONPATH|LD_LIBRARY_PATH|RANK|LOCAL_RANK|WORLD_SIZE"
    r"|NODE_RANK|MASTER_ADDR|MASTER_PORT|(?:AZ|AZUREML|SLURM|OMPI|CUDA)_[A-Z0-9_]{1,80})\b\}?"
    r"|\$\{[A-Za-z_][A-Za-z0-9_]{0,80}(?:\}|:?[-=?+](?=[^{}]{0,80}\}))"
    r"|\$\((?!(?:in|out)puts?\.)[a-z][a-z0-9_.-]{0,40}(?=[ )])|`[a-z][a-z0-9_ ./-]{0,80}`"
    r"|(?:^|(?<=[:=]))~(?:/|\Z)"
)
_SHELL_NAME = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]{0,80})\b")
_INPUT_VARIABLE = "AZURE_ML_INPUT_"
_MOST_UNUSED = 10
_RESOLVED = ("command", "environment_variables.*", "outputs.*.path")


@dataclass(frozen=True)
class JobSpec:
    """What was asked. `distribution` is pytorch, mpi, tensorflow or empty; `environment` as it was
    written.

    `notices` say what is kept by other means than the file asks for.
    """

    command: str
    environment: str | dict[str, Any]
    code: str = ""
    environment_variables: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Input] = field(default_factory=dict)
    outputs: dict[str, Output] = field(default_factory=dict)
    distribution: str = ""
    communication_backend: str = ""
    parameter_servers: int = 0
    process_count_per_instance: int = 1
    instance_count: int = 1
    elastic: Elastic | None = None
    compute: str = "local"
    timeout_s: float = 0.0
    name: str = ""
    display_name: str = ""
    experiment_name: str = "Default"
    description: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    parent_job_name: str = ""
    job_tier: str = "standard"
    priority: str = "medium"
    services: dict[str, Service] = field(default_factory=dict)
    recipients: tuple[Recipient, ...] = ()
    notices: tuple[str, ...] = ()

    @property
    def fewest_nodes(self) -> int:
        """How many nodes must be free for it to start."""
        return self.elastic.min_nodes if self.elastic else self.instance_count

    @property
    def most_nodes(self) -> int:
        return self.elastic.max_nodes if self.elastic else self.instance_count


@faults.all_at_once
def read(document: Any) -> JobSpec:
    """Check a job file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    job = own_properties.with_mapping(mapping(document, (), "the job"))
    _is_command(job)
    known_keys(job, "", ())
    expressions.refuse(job, _RESOLVED)
    inputs, outputs = read_inputs(job), read_outputs(job)
    command = _command(job, inputs, outputs)
    shape = resources.read(job)
    services, service_notices = job_services.read(job)
    compute, compute_notices = _compute(job)
    variables = _variables(job)
    expressions.check_variables(variables, inputs, outputs)
    return JobSpec(
        command=command,
        environment=_environment(job),
        code=text(job, "code"),
        environment_variables=variables,
        inputs=inputs,
        outputs=outputs,
        distribution=shape.distribution,
        communication_backend=shape.communication_backend,
        parameter_servers=shape.parameter_servers,
        process_count_per_instance=shape.process_count_per_instance,
        instance_count=shape.instance_count,
        elastic=shape.elastic,
        compute=compute,
        timeout_s=shape.timeout_s,
        name=name(job, "name"),
        display_name=_display_name(job),
        experiment_name=experiment_name_in(job) or "Default",
        description=text(job, "description", ()),
        tags=texts(job, "tags"),
        properties=_properties(job, variables),
        parent_job_name=name(job, "parent_job_name"),
        job_tier=shape.job_tier,
        priority=shape.priority,
        services=services,
        recipients=notification_settings.read(job, variables),
        notices=(
            *compute_notices,
            *shape.notices,
            *service_notices,
            *_unused_inputs(command, variables, inputs),
            *_assets_as_strings(job),
            *_mistaken(command, variables, inputs, outputs),
            *_unexpanded(variables),
            *_hidden_failures(command),
        ),
    )


def type_of(document: Mapping[str, Any]) -> str:
    """`command`, `sweep` or another type of the table of keys; what it is, not whether it is valid.

    Raises:
        InvalidSpec: the type is unknown.
    """
    if document.get("type") is not None:
        return choice(document, "type", (), "type", "command").value
    signs = (kind for sign, kind in _SIGNS.items() if sign in document)
    return "command" if document.get("command") else next(signs, "command")


def _is_command(job: Mapping[str, Any]) -> None:
    kind = type_of(job)
    if kind == "command":
        return
    key = next(key for key in keys.values("type") if key.value == kind)
    if key.support == "refused" and job.get("type") is not None:
        served(job, "type", (), "type", "command")
    sign = next((sign for sign, of in _SIGNS.items() if of == kind and sign in job), "type")
    hint = "submit it as a job of its own, or write `type: command`"
    if key.support == "refused":
        hint = key.note
    raise InvalidSpec(
        f"this is a {kind} job, which is not served" + (" here" if kind == "sweep" else ""),
        hint,
        code="not_served",
        at=("type",) if job.get("type") is not None else (sign,),
    )


def _command(
    job: Mapping[str, Any], inputs: Mapping[str, Input], outputs: Mapping[str, Output]
) -> str:
    command = text(job, "command", ())
    if not command.strip():
        raise InvalidSpec(
            "the job has no `command`",
            "say what to run, for example `command: python train.py`",
            at=("command",) if "command" in job else (),
        )
    if "\0" in command:
        raise InvalidSpec("the command contains a NUL character", "remove it", at=("command",))
    bounded(command, _LONGEST_COMMAND, "`command`", at=("command",))
    expressions.check_command(command, inputs, outputs)
    return command


def _unused_inputs(
    command: str, variables: Mapping[str, str], inputs: Mapping[str, Input]
) -> list[str]:
    """Notices about inputs that the command does not use, often a misspelling of one it does."""
    written = "\n".join((command, *variables.values()))
    contents = brackets.contents(written, *expressions.EXPRESSION)
    forms = (expressions.form_of(content, "a job", ("command",)) for content in contents)
    used = {name for kind, name in forms if kind == "inputs"}
    used |= {name for name in inputs if f"{_INPUT_VARIABLE}{name}" in command}
    unused = [name for name in inputs if name not in used]
    notices = []
    for unused_name in unused[:_MOST_UNUSED]:
        guess = nearest(unused_name, sorted(used))
        text = f"the command does not use input `{unused_name}`"
        if guess:
            notices.append(f"{text}; did you mean `inputs.{guess}`?")
        else:
            notices.append(f"{text}; a script finds it in ${_INPUT_VARIABLE}{unused_name}")
    if len(unused) > _MOST_UNUSED:
        notices.append(f"the command does not use {len(unused) - _MOST_UNUSED} more inputs")
    return notices


def _assets_as_strings(job: Mapping[str, Any]) -> list[str]:
    """Notices about names of data that the script gets as they are written."""
    inputs = job.get("inputs")
    values = inputs.items() if isinstance(inputs, Mapping) else ()
    return [
        f"input `{name}` is the string `{value[:100]}`, not the data of that name; write `{name}: "
        f"{{type: uri_folder, path: {value[:100]}}}` for a folder, `uri_file` for a file"
        for name, value in islice(values, _MOST_UNUSED)
        if isinstance(value, str) and value.startswith("azureml:")
    ]


def _mistaken(
    command: str,
    variables: Mapping[str, str],
    inputs: Mapping[str, Input],
    outputs: Mapping[str, Output],
) -> list[str]:
    """Notices about expressions in another program's brackets."""
    subjects = {"the command": command}
    subjects |= {f"variable `{variable}`": value for variable, value in variables.items()}
    notices = (
        notice
        for subject, written in subjects.items()
        for notice in expressions.mistaken(written, subject, inputs, outputs)
    )
    return list(dict.fromkeys(islice(notices, _MOST_UNUSED)))


def _unexpanded(variables: Mapping[str, str]) -> list[str]:
    """Notices about values that only a shell would expand; a process gets them as written.

    They name the part that a shell would expand and nothing else: the value may be a secret.
    """
    return [
        f"variable `{variable}` holds `{part}` as written, since no shell "
        f"expands it; write `export {variable}=…` in the command instead"
        for variable, value in variables.items()
        if (part := _shell_part(value, variables))
    ]


def _hidden_failures(command: str) -> list[str]:
    """A notice about a shell that goes on after a failure."""
    if not shell_commands.hide_failures(command):
        return []
    return [
        "the job goes on when `cd` or a program in a pipe of its command fails; begin the command "
        "with `set -eo pipefail`, and the job fails there"
    ]


def _shell_part(value: str, variables: Collection[str]) -> str:
    """What a shell would expand in the value; empty for none."""
    if match := _SHELLS.search(value):
        return match[0]
    names = (match for match in _SHELL_NAME.finditer(value) if match[1] in variables)
    return next((match[0] for match in names), "")


def _compute(job: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    written = text(job, "compute").strip()
    name = written.removeprefix("azureml:")
    long = re.match(r"^/?/?subscriptions/.+/computes/([^/]+)\Z", name)
    name = long[1] if long else name
    if name.lower() == _SERVERLESS:
        return "local", [f"`compute: {written}` is this machine's compute `local`"]
    return name or "local", ()


def _environment(job: Mapping[str, Any]) -> str | dict[str, Any]:
    value = job.get("environment")
    if isinstance(value, str) and value.strip():
        return value.strip()
    if isinstance(value, Mapping):
        return {str(key): content for key, content in value.items()}
    if value is None or value == "":
        raise InvalidSpec(
            "the job has no `environment`",
            "write `environment: python` for plain Python, or list packages under "
            "`environment: {pip_requirements: requirements.txt}`",
            at=("environment",) if "environment" in job else (),
        )
    raise InvalidSpec(
        "`environment` must be a name or a mapping",
        "for example `environment: python` or `environment: {conda_file: environment.yml}`",
        at=("environment",),
    )


def _variables(job: Mapping[str, Any]) -> dict[str, str]:
    values = texts(job, "environment_variables")
    for variable, value in values.items():
        if not _VARIABLE.match(variable):
            raise InvalidSpec(
                f"`{variable[:80]}` is not a valid name for an environment variable",
                "use letters, digits and underscores, and no digit first",
                at=("environment_variables", variable),
            )
        if "\0" in value:
            raise InvalidSpec(
                f"the value of `{variable}` contains a NUL character",
                "remove it",
                at=("environment_variables", variable),
            )
    return values


def _properties(job: Mapping[str, Any], variables: Mapping[str, str]) -> dict[str, str]:
    properties = texts({"properties": secrets.read(job, variables)}, "properties")
    own_properties.check(properties)
    retry.check_lengths(properties)
    retry.read(properties)
    watch_properties.read(properties)
    system_metrics.interval_s(properties)
    own_properties.log_quota_mb(properties)
    own_properties.preflight(properties)
    rehearsal.read(properties)
    interception.is_intercepted(properties)
    own_properties.keeps_peer_copies(properties)
    limit_properties.read(properties)
    job_services.hold_s(properties)
    return properties


def _display_name(job: Mapping[str, Any]) -> str:
    shown = text(job, "display_name", ())
    if len(shown) > 255:
        raise InvalidSpec(
            "`display_name` is longer than 255 characters", "shorten it", at=("display_name",)
        )
    return shown
