"""The pipeline file: from a mapping to a `PipelineSpec`.

Owns: `PipelineFile`, what stands at the top of a pipeline; `NodeFile`, what stands at a step.
Leaves: what bindings lead to and the jobs that steps are to expansion.py, the keys of those jobs to
jobs/spec/.
Always: a `PipelineSpec` is of the right shape; every error says where by `at`.

Source: https://learn.microsoft.com/azure/machine-learning/reference-yaml-job-pipeline
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torchyard.base.documents.checks import At, By, Choice, Key, Text, Texts, Truth
from torchyard.base.documents.faults import entries
from torchyard.base.documents.models import Document, File, declared, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.inputs import read_inputs, read_outputs
from torchyard.jobs.spec.job_spec import JobFile
from torchyard.jobs.spec.parts import READ_ONLY, experiment_name, name

AS_A_JOB = "as of a job: see [the job file](job-file.md)"
MOST_STEPS = 2000
_NODE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]{0,99}\Z", re.ASCII)
_RESERVED = ("inputs", "outputs", "jobs", "parent", "settings")
_OWN_TRAINING = Key("run your own training as a step of `type: command`", "refused")
_AS_INPUT = Key("name the data as an input of a step of `type: command`", "refused")
_NO_FLOW = Key("decide in a script what to do, or submit another pipeline from it", "refused")
NODE_TYPE = Choice(
    command=Key("may be left out"),
    pipeline=Key("the steps of another pipeline, which `component` names"),
    sweep=Key("submit the sweep as a job of its own", "refused"),
    parallel=Key("loop over the data in a step of `type: command`", "refused"),
    spark=Key("run the framework from the command of a step of `type: command`", "refused"),
    automl=_OWN_TRAINING,
    finetuning=_OWN_TRAINING,
    distillation=_OWN_TRAINING,
    **{"import": _AS_INPUT},
    data_transfer=_AS_INPUT,
    do_while=_NO_FLOW,
    if_else=_NO_FLOW,
    condition=_NO_FLOW,
    parallel_for=_NO_FLOW,
)


@dataclass(frozen=True)
class Settings:
    """`compute` of steps that name none; where a step failed, whether others go on."""

    compute: str = ""
    datastore: str = ""
    continues: bool = True
    force_rerun: bool = False


@dataclass(frozen=True)
class PipelineSpec:
    """`nodes` as they are written, null keys left out; `component` names a pipeline component in
    their place. `inputs` and `outputs` as they are written, too.
    """

    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    component: Mapping[str, Any] | str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    settings: Settings = Settings()
    name: str = ""
    display_name: str = ""
    experiment_name: str = "Default"
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    parent_job_name: str = ""


class SettingsFile(Document):
    example: ClassVar[str] = "{default_compute: azureml:cpu}"

    default_compute: str = declared("", "of steps that name none", Text())
    default_datastore: str = declared("", "of outputs without a `path`", Text())
    continue_on_step_failure: bool = declared(
        True, "`false`: when a step has failed, those that run are canceled", Truth()
    )
    force_rerun: bool = declared(False, "run every step", Truth())
    continue_run_on_failed_optional_input: Any = declared(
        None, "a step whose producer failed never runs", support="satisfied"
    )


class NodeFile(Document):
    """A step: a component with what is bound to its inputs and outputs, or a job's own keys."""

    example: ClassVar[str] = "{component: azureml:train@latest}"
    schema_: Any = declared(None, "for editors; not read", support="satisfied", alias="$schema")

    type: str = declared("command", check=NODE_TYPE)
    component: Mapping[str, Any] | str | None = declared(
        None,
        "a component's file, `azureml:<name>:<version>`, or its document",
        By(lambda value, at: _component(value, at), else_={"type": ["string", "object"]}),
    )
    inputs: Mapping[str, Any] = declared(
        {},
        "values, data, `${{parent.inputs.<name>}}`, `${{parent.jobs.<step>.outputs.<name>}}`",
        By(lambda value, at: _mapping(value, at)),
    )
    outputs: Mapping[str, Any] = declared(
        {},
        "`${{parent.outputs.<name>}}`, or as of a job",
        By(lambda value, at: _mapping(value, at)),
    )
    command: Any = declared(None, AS_A_JOB)
    code: Any = declared(None, AS_A_JOB)
    environment: Any = declared(None, AS_A_JOB)
    environment_variables: Any = declared(None, AS_A_JOB)
    compute: str = declared("", "`settings.default_compute` when left out", Text())
    distribution: Any = declared(None, AS_A_JOB)
    resources: Any = declared(None, AS_A_JOB)
    limits: Any = declared(None, AS_A_JOB)
    services: Any = declared(None, AS_A_JOB)
    identity: Any = declared(None, AS_A_JOB)
    queue_settings: Any = declared(None, AS_A_JOB)
    display_name: Any = declared(None, "what lists show; the step's name when left out")
    description: Any = declared(None, AS_A_JOB)
    tags: Any = declared(None, AS_A_JOB)
    properties: Any = declared(None, AS_A_JOB)
    torchyard: Any = declared(None, AS_A_JOB)
    name: Any = declared(None, "a step is named by its key", support="satisfied")
    experiment_name: Any = declared(None, "that of the pipeline", support="satisfied")
    is_deterministic: bool = declared(True, "`false`: run it each time", Truth())

    @rule("type", "component", "command")
    def _is_one(self) -> None:
        if self.component is None and self.command is None:
            raise InvalidSpec(
                "the step has neither a `component` nor a `command`",
                "name a component's file, or write what it runs",
            )
        if self.component is not None and self.command is not None:
            raise InvalidSpec(
                "the step has a `component` and a `command`", "keep one", at=("command",)
            )

    @rule("type", "component")
    def _has_steps(self) -> None:
        if self.type == "pipeline" and self.component is None:
            raise InvalidSpec(
                "a step of `type: pipeline` has no `component`",
                "name the file of a pipeline component",
                at=("type",),
            )

    @classmethod
    def as_json_schema(cls) -> dict[str, Any]:
        schema = super().as_json_schema()
        of_job = JobFile.as_json_schema()["properties"]
        as_jobs = {
            key: of_job[key]
            for key, field in cls.model_fields.items()
            if key in of_job and field.annotation is Any
        }
        return {**schema, "properties": {**schema["properties"], **as_jobs}}


def _mapping(value: Any, at: At) -> Mapping[str, Any]:
    if value and not isinstance(value, Mapping):
        raise InvalidSpec(
            f"`{at[-1]}` must be a mapping of names to values, not {described(value)}",
            f"write `{at[-1]}:` with one name a line below it",
            at=at,
        )
    return {str(key): each for key, each in (value or {}).items()}


def _component(value: Any, at: At) -> Mapping[str, Any] | str:
    if isinstance(value, Mapping) and value:
        return value
    if isinstance(value, str) and value.strip():
        return value.strip()
    raise InvalidSpec(
        f"`component` must be a component's file, name or document, not {described(value)}",
        "for example `component: ./train.yml` or `component: azureml:train@latest`",
        at=at,
    )


def read_nodes(value: Any, at: At) -> dict[str, dict[str, Any]]:
    """The steps, each with the keys that it sets.

    Raises:
        InvalidSpec: what is wrong with any of them.
    """
    if not isinstance(value, Mapping) or not value:
        raise InvalidSpec(
            f"`jobs` must be a mapping of steps by their names, not {described(value)}",
            "for example `jobs: {train: {component: ./train.yml}}`",
            at=at,
        )
    if len(value) > MOST_STEPS:
        raise _too_many(len(value), at)
    lower: dict[str, str] = {}

    def node(body: Any, place: At) -> dict[str, Any]:
        step = str(place[-1])
        _check_name(step, lower, place)
        file = NodeFile.read(body, place)
        written = {str(key): each for key, each in body.items() if each is not None}
        written.pop("$schema", None)
        return {**written, "type": file.type, "inputs": file.inputs, "outputs": file.outputs}

    return entries(value, at, node)


def _check_name(step: str, lower: dict[str, str], at: At) -> None:
    if not _NODE_NAME.match(step) or step in _RESERVED:
        raise InvalidSpec(
            f"`{step[:80]}` can't be the name of a step",
            "use up to 100 letters, digits and underscores, no digit first"
            + (f"; reserved are {', '.join(_RESERVED)}" if step in _RESERVED else ""),
            at=at,
        )
    other = lower.setdefault(step.lower(), step)
    if other != step:
        raise InvalidSpec(
            f"the names of steps `{other}` and `{step}` differ by case alone",
            "rename one of them",
            at=at,
        )


def _too_many(count: int, at: At) -> InvalidSpec:
    return InvalidSpec(
        f"the pipeline has {count:,} steps; the limit is {MOST_STEPS:,}",
        "let one step do the work of several",
        at=at,
    )


def _inputs(value: Any, at: At) -> Mapping[str, Any]:
    read_inputs(value, at)
    return {str(key): each for key, each in (value or {}).items()}


def _outputs(value: Any, at: At) -> Mapping[str, Any]:
    read_outputs(value, at)
    return {str(key): each for key, each in (value or {}).items()}


def _settings(value: Any, at: At) -> SettingsFile:
    return SettingsFile.read(value or {}, at)


def _name(value: Any, at: At) -> str:
    return name({at[-1]: value}, str(at[-1]))


class PipelineFile(File):
    subject: ClassVar[str] = "the pipeline"
    resolved: ClassVar[Sequence[str]] = ("outputs.*.path",)

    type: str = declared("pipeline", "`pipeline`", Choice(pipeline=Key()))
    name: str = declared("", "once in a workspace; steps are `<name>_<step>`", By(_name))
    display_name: str = declared("", "what lists show", Text(255))
    experiment_name: str = declared(
        "",
        "of the pipeline and of its steps",
        By(lambda value, at: experiment_name({"experiment_name": value})),
    )
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "of the pipeline", Texts())
    properties: dict[str, str] = declared({}, "of the pipeline", Texts())
    jobs: Mapping[str, Mapping[str, Any]] = declared(
        {}, "the steps by their names, see below", By(read_nodes, of=NodeFile, is_named=True)
    )
    component: Mapping[str, Any] | str | None = declared(
        None,
        "a pipeline component in place of `jobs`",
        By(_component, else_={"type": ["string", "object"]}),
    )
    inputs: Mapping[str, Any] = declared({}, AS_A_JOB, By(_inputs, else_={"type": "object"}))
    outputs: Mapping[str, Any] = declared(
        {}, "as of a job; each is bound to one of a step", By(_outputs, else_={"type": "object"})
    )
    settings: SettingsFile = declared(SettingsFile(), "see below", By(_settings, of=SettingsFile))
    compute: str = declared("", "as `settings.default_compute`, which goes before", Text())
    identity: Any = declared(None, AS_A_JOB, support="satisfied")
    parent_job_name: str = declared("", "a job of the same workspace", By(_name))
    torchyard: Any = declared(None, "torchyard's own of every step: see the job file")
    id: None = refused(READ_ONLY)
    status: None = refused(READ_ONLY)
    creation_context: None = refused(READ_ONLY)

    @rule("jobs", "component")
    def _has_steps(self) -> None:
        if not self.jobs and self.component is None:
            raise InvalidSpec(
                "the pipeline has no `jobs`",
                "for example `jobs: {train: {component: ./train.yml}}`",
            )
        if self.jobs and self.component is not None:
            raise InvalidSpec(
                "the pipeline has `jobs` and a `component`", "keep one", at=("component",)
            )

    @classmethod
    def _further_faults(cls, body: Any, at: At) -> list[InvalidSpec]:
        """Steps have expressions of their own kind, which expansion.py reads."""
        top = {key: value for key, value in body.items() if key not in ("jobs", "component")}
        return super()._further_faults(top, at)

    @property
    def spec(self) -> PipelineSpec:
        settings = self.settings
        return PipelineSpec(
            nodes=self.jobs,
            component=self.component or "",
            inputs=self.inputs,
            outputs=self.outputs,
            settings=Settings(
                settings.default_compute or self.compute,
                settings.default_datastore.removeprefix("azureml:"),
                settings.continue_on_step_failure,
                settings.force_rerun,
            ),
            name=self.name,
            display_name=self.display_name,
            experiment_name=self.experiment_name or "Default",
            description=self.description,
            tags=self.tags,
            properties=self.properties,
            parent_job_name=self.parent_job_name,
        )


def read(document: Any) -> PipelineSpec:
    """Check a pipeline file's shape and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    return own_properties.read(PipelineFile, document).spec
