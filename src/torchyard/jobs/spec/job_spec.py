"""The job file: from a mapping to a `JobSpec`.

Owns: `JobSpec`; `JobFile`, what stands at the top of a command job; the expressions of its command.
Leaves: inputs and outputs to inputs.py, processes and nodes to distribution.py and resources.py;
what references stand for to requests/pinning.py; places in the file to the CLI.
Always: a `JobSpec` is whole and valid; a key is honoured, satisfied by what is there anyway, or
refused by name, never ignored; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, ClassVar

from torchyard.base.documents import expressions
from torchyard.base.documents.checks import TEXT, At, By, Choice, Key, Text, Texts
from torchyard.base.documents.faults import together
from torchyard.base.documents.models import File, declared, keys, refused, rule
from torchyard.base.errors import InvalidSpec, nearest
from torchyard.base.fields import bounded, text, texts
from torchyard.environments.documents import EnvironmentKeys
from torchyard.jobs.spec import (
    distribution,
    elastic,
    interactive_services,
    interception,
    limit_properties,
    notification_settings,
    own_properties,
    rehearsal,
    retry,
    secrets,
    system_metrics,
    watch_properties,
)
from torchyard.jobs.spec.distribution import Distribution, DistributionFile
from torchyard.jobs.spec.elastic import Elastic
from torchyard.jobs.spec.inputs import (
    Input,
    InputFile,
    Output,
    OutputFile,
    read_inputs,
    read_outputs,
)
from torchyard.jobs.spec.interactive_services import Service, ServiceFile
from torchyard.jobs.spec.notification_settings import NotificationFile, Recipient
from torchyard.jobs.spec.parts import NAME, READ_ONLY, JobPart, part
from torchyard.jobs.spec.parts import experiment_name as experiment_name_in
from torchyard.jobs.spec.parts import name as name_in
from torchyard.jobs.spec.resources import IdentityFile, LimitsFile, QueueFile, ResourcesFile
from torchyard.shared import brackets, shell_commands

__all__ = ["NAME", "Input", "JobSpec", "Output", "read"]

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*\Z")
# Linux starts no program with a longer argument, and the command is the shell's.
_LONGEST_COMMAND = 128 << 10
# Other kinds of job, known by a key that only they have.
_SIGNS = {"jobs": "pipeline", "trial": "sweep", "search_space": "sweep", "task": "automl"}
_SERVERLESS = "serverless"
# What a job must have, where its own is wrong.
_NEUTRAL = {"command": "true", "environment": "python"}
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
_LITERALS = {"type": ["string", "number", "boolean", "null"]}
_AS_TRAINING = Key("run your own training as a `type: command` job", "refused")
_AS_INPUT = Key("name the data as an input of a `type: command` job", "refused")
TYPE = Choice(
    command=Key("may be left out"),
    sweep=Key("many trials of one command: see the guide on sweeps"),
    pipeline=Key("steps that hand data on: see the guide on pipelines"),
    spark=Key("run the framework from the command of a `type: command` job", "refused"),
    automl=_AS_TRAINING,
    parallel=Key("loop over the data in the script of a `type: command` job", "refused"),
    finetuning=_AS_TRAINING,
    distillation=_AS_TRAINING,
    **{"import": _AS_INPUT},
    data_transfer=_AS_INPUT,
)


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


def _command(value: Any, at: At) -> str:
    command = text({"command": value}, "command")
    if "\0" in command:
        raise InvalidSpec("the command contains a NUL character", "remove it", at=at)
    return bounded(command, _LONGEST_COMMAND, "`command`", at=at)


def _environment(value: Any, at: At) -> str | dict[str, Any] | None:
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, Mapping):
        return {str(key): content for key, content in value.items()}
    raise InvalidSpec(
        "`environment` must be a name or a mapping",
        "for example `environment: python` or `environment: {conda_file: environment.yml}`",
        at=at,
    )


def _variables(value: Any, at: At) -> dict[str, str]:
    values = texts({at[-1]: value}, str(at[-1]))
    for variable, content in values.items():
        if not _VARIABLE.match(variable):
            raise InvalidSpec(
                f"`{variable[:80]}` is not a valid name for an environment variable",
                "use letters, digits and underscores, and no digit first",
                at=(*at, variable),
            )
        if "\0" in content:
            raise InvalidSpec(
                f"the value of `{variable}` contains a NUL character",
                "remove it",
                at=(*at, variable),
            )
    return values


def _display_name(value: Any, at: At) -> str:
    shown = text({at[-1]: value}, str(at[-1]))
    if len(shown) > 255:
        raise InvalidSpec("`display_name` is longer than 255 characters", "shorten it", at=at)
    return shown


def _name(value: Any, at: At) -> str:
    return name_in({at[-1]: value}, str(at[-1]))


def _experiment_name(value: Any, at: At) -> str:
    return experiment_name_in({"experiment_name": value})


def _distribution(value: Any, at: At) -> DistributionFile | None:
    return DistributionFile.read(value, at) if value else None


_CHECKS: tuple[Callable[[Mapping[str, str]], object], ...] = (
    own_properties.check,
    retry.check_lengths,
    retry.read,
    watch_properties.read,
    system_metrics.interval_s,
    own_properties.log_quota_mb,
    own_properties.preflight,
    rehearsal.read,
    interception.is_intercepted,
    own_properties.keeps_peer_copies,
    limit_properties.read,
    interactive_services.hold_s,
)


class JobFile(JobPart, File):
    subject: ClassVar[str] = "the job"
    example: ClassVar[str] = "command: python train.py"
    resolved: ClassVar[Sequence[str]] = ("command", "environment_variables.*", "outputs.*.path")

    type: str = declared("command", check=TYPE)
    name: str = declared(
        "", "the job's own name, once in a workspace; made up when left out", By(_name)
    )
    display_name: str = declared("", "what lists show; the name when left out", By(_display_name))
    experiment_name: str = declared(
        "", "default: the name of the working folder", By(_experiment_name)
    )
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "texts and numbers", Texts())
    properties: Any = declared({}, "texts and numbers; git's are added by the client")
    command: str = declared(
        "", "runs in a shell; several lines and `$[[ … ]]` are fine", By(_command)
    )
    code: str = declared("", "a folder or file here, or a git URL; a snapshot is taken", Text())
    environment: str | dict[str, Any] | None = declared(
        None,
        "a reference, `file:<path>`, or inline as below",
        By(_environment, of=EnvironmentKeys, else_=TEXT),
    )
    environment_variables: dict[str, str] = declared(
        {}, "override those that the platform sets", By(_variables)
    )
    distribution: DistributionFile | None = declared(
        None, check=By(_distribution, of=DistributionFile)
    )
    compute: str = declared(
        "",
        "`azureml:<name>` or `<name>`; `local` when left out, or `serverless`; `auto` chooses",
        Text(),
    )
    resources: ResourcesFile = declared(ResourcesFile(), check=part(ResourcesFile))
    limits: LimitsFile = declared(LimitsFile(), check=part(LimitsFile))
    inputs: dict[str, Input] = declared(
        {},
        "a number, a text, true or false; null leaves the input unset",
        By(read_inputs, of=InputFile, is_named=True, else_=_LITERALS),
    )
    outputs: dict[str, Output] = declared(
        {}, "null takes the defaults", By(read_outputs, of=OutputFile, is_named=True)
    )
    services: dict[str, Service] = declared(
        {},
        "programs beside the ranks; `yard job show-services` says where they are",
        By(interactive_services.read, of=ServiceFile, is_named=True),
    )
    identity: IdentityFile = declared(IdentityFile(), check=part(IdentityFile))
    queue_settings: QueueFile = declared(QueueFile(), check=part(QueueFile))
    notification_settings: NotificationFile = declared(
        NotificationFile(), check=part(NotificationFile)
    )
    parent_job_name: str = declared("", "a job of the same workspace", By(_name))
    torchyard: Any = declared(
        None,
        "torchyard's own: as the property `torchyard.<name>`, see below",
        By(lambda value, at: value, else_=own_properties.schema()),
    )
    id: None = refused(READ_ONLY)
    status: None = refused(READ_ONLY)
    creation_context: None = refused(READ_ONLY)
    log_files: None = refused(READ_ONLY)
    parameters: None = refused(READ_ONLY)

    @rule("command")
    def _runs(self) -> None:
        if not self.command.strip():
            raise InvalidSpec(
                "the job has no `command`",
                "say what to run, for example `command: python train.py`",
                at=("command",),
            )

    @rule("environment")
    def _runs_in(self) -> None:
        if self.environment is None:
            raise InvalidSpec(
                "the job has no `environment`",
                "write `environment: python` for plain Python, or list packages under "
                "`environment: {pip_requirements: requirements.txt}`",
                at=("environment",),
            )

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        """Beside the others, inputs and outputs that are named and not there."""
        faults = super()._further_faults(body, at)
        inputs, outputs = body.get("inputs") or {}, body.get("outputs") or {}
        if not isinstance(inputs, Mapping) or not isinstance(outputs, Mapping):
            return faults
        names = [str(name) for name, value in inputs.items() if value is not None]
        variables = body.get("environment_variables")
        texts = variables if isinstance(variables, Mapping) else {}
        written = {name: text for name, text in texts.items() if isinstance(text, str)}
        try:
            command = body.get("command")
            together(
                partial(
                    expressions.check_command,
                    command if isinstance(command, str) else "",
                    names,
                    list(map(str, outputs)),
                ),
                partial(expressions.check_variables, written, names, list(map(str, outputs))),
            )
        except InvalidSpec as error:
            faults.append(error)
        return faults

    @rule("properties", "environment_variables")
    def texts(self) -> dict[str, str]:
        """All properties."""
        job = {"properties": self.properties}
        written = secrets.read(job, self.environment_variables)
        properties = texts({"properties": written}, "properties")
        together(*(partial(check, properties) for check in _CHECKS))
        return properties

    @rule("properties", "environment_variables")
    def webhooks(self) -> list[Recipient]:
        job = {"properties": self.properties}
        return notification_settings.webhooks(job, self.environment_variables)

    @rule("properties")
    def elastic(self) -> Elastic | None:
        return elastic.read(elastic.written({"properties": self.properties}))

    @rule("distribution", "resources", "command", "properties")
    def launched(self) -> tuple[Distribution, int]:
        """How its processes are launched, and on how many nodes."""
        sizes = self.elastic()
        nodes = self.resources.instance_count or (sizes.max_nodes if sizes else 1)
        if sizes:
            elastic.refuse_size(sizes, nodes)
        launched = distribution.read(self.distribution, self.command, nodes)
        if sizes:
            elastic.refuse_fixed_tasks(launched.kind)
        return launched, nodes


JobPart.whole_file = JobFile


def read(document: Any) -> JobSpec:
    """Check a job file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    file = _read_file(document)
    launched, nodes = file.launched()
    compute, compute_notices = _compute(file.compute)
    command, variables = file.command, file.environment_variables
    assert file.environment is not None
    return JobSpec(
        command=command,
        environment=file.environment,
        code=file.code,
        environment_variables=variables,
        inputs=file.inputs,
        outputs=file.outputs,
        distribution=launched.kind,
        communication_backend=launched.communication_backend,
        parameter_servers=launched.parameter_servers,
        process_count_per_instance=launched.processes,
        instance_count=nodes,
        elastic=file.elastic(),
        compute=compute,
        timeout_s=float(file.limits.timeout),
        name=file.name,
        display_name=file.display_name,
        experiment_name=file.experiment_name or "Default",
        description=file.description,
        tags=file.tags,
        properties=file.texts(),
        parent_job_name=file.parent_job_name,
        job_tier=file.queue_settings.job_tier,
        priority=file.queue_settings.priority,
        services=interactive_services.started(file.services),
        recipients=(*file.notification_settings.recipients, *file.webhooks()),
        notices=(
            *compute_notices,
            *file.resources.notices,
            *launched.notices,
            *interactive_services.notices(file.services),
            *_unused_inputs(command, variables, file.inputs),
            *_assets_as_strings(file.inputs),
            *_mistaken(command, variables, file.inputs, file.outputs),
            *_unexpanded(variables),
            *_hidden_failures(command),
        ),
    )


def read_rest(document: Any, fault: InvalidSpec) -> tuple[JobSpec, frozenset[str]]:
    """The job without the keys that are wrong, for what else there is to say of it, and those keys.

    Args:
        fault: what `read` raised.

    Raises:
        InvalidSpec: the fault, where nothing can be said of the rest.
    """
    if not isinstance(document, Mapping):
        raise fault
    wrong: set[str] = set()
    known = {key: document[key] for key in keys(JobFile) if key in document}
    error = fault
    while True:
        found = {str(each.at[0]) for each in (error, *error.others) if each.at}
        if found & {"properties", "torchyard"}:
            found |= {"properties", "torchyard"}
        if found <= wrong or found & {"type", *_SIGNS}:
            raise fault
        wrong |= found
        rest = {key: value for key, value in known.items() if key not in wrong}
        try:
            return read({**_NEUTRAL, **rest}), frozenset(wrong)
        except InvalidSpec as further:
            error = further


def _read_file(document: Any) -> JobFile:
    if isinstance(document, Mapping):
        _refuse_other_types(document)
    return own_properties.read(JobFile, document)


def type_of(document: Mapping[str, Any]) -> str:
    """`command`, `sweep` or another type of the table of keys; what it is, not whether it is valid.

    Raises:
        InvalidSpec: the type is unknown.
    """
    if document.get("type") is not None:
        return TYPE.find(text(document, "type") or "command", "type", ())
    signs = (kind for sign, kind in _SIGNS.items() if sign in document)
    return "command" if document.get("command") else next(signs, "command")


def _refuse_other_types(job: Mapping[str, Any]) -> None:
    kind = type_of(job)
    if kind == "command":
        return
    if job.get("type") is not None:
        TYPE.read(job, "type", (), "command")
    sign = next((sign for sign, of in _SIGNS.items() if of == kind and sign in job), "type")
    hint = "submit it as a job of its own, or write `type: command`"
    if TYPE.values[kind].support == "refused":
        hint = TYPE.values[kind].note
    here = " here" if TYPE.values[kind].support == "honoured" else ""
    raise InvalidSpec(
        f"this is a {kind} job, which is not served{here}",
        hint,
        code="not_served",
        at=("type",) if job.get("type") is not None else (sign,),
    )


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


def _assets_as_strings(inputs: Mapping[str, Input]) -> list[str]:
    """Notices about names of data that the script gets as they are written."""
    return [
        f"input `{name}` is the string `{each.value[:100]}`, not the data of that name; write "
        f"`{name}: {{type: uri_folder, path: {each.value[:100]}}}` for a folder, `uri_file` for a "
        "file"
        for name, each in islice(inputs.items(), _MOST_UNUSED)
        if each.value.startswith("azureml:")
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
    """A notice about a shell that goes on after a failure, or ends before its last program."""
    if shell_commands.ends_in_background(command):
        return [
            "the command ends with `&`: its last program runs in the background, and is ended with "
            "the job, which does not wait for it; leave the `&` out, or add `wait`"
        ]
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


def _compute(value: str) -> tuple[str, Sequence[str]]:
    written = value.strip()
    name = written.removeprefix("azureml:")
    long = re.match(r"^/?/?subscriptions/.+/computes/([^/]+)\Z", name)
    name = long[1] if long else name
    if name.lower() == _SERVERLESS:
        return "local", [f"`compute: {written}` is this machine's compute `local`"]
    return name or "local", ()
