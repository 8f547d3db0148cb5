"""The sweep file: from a mapping to a `SweepSpec`.

Owns: `SweepSpec`; `SweepFile`, what stands at the top of a sweep.
Leaves: the parts to their modules, as the search space to space_reading.py; the job files of trials
to trials.py, what a trial's keys mean to jobs/spec/.
Always: a `SweepSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from torchyard.base.documents import expressions
from torchyard.base.documents.checks import TEXT, At, By, Choice, Key, Text, Texts
from torchyard.base.documents.models import File, declared, refused, rule
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.parts import READ_ONLY, experiment_name, name
from torchyard.sweeps.spec import (
    early_termination,
    objectives,
    own_settings,
    sampling,
    space_reading,
    trials,
)
from torchyard.sweeps.spec.early_termination import Policy
from torchyard.sweeps.spec.limits import Limits, LimitsFile
from torchyard.sweeps.spec.objectives import Objective
from torchyard.sweeps.spec.own_settings import OwnSettings
from torchyard.sweeps.spec.sampling import Sampling
from torchyard.sweeps.spec.search_space import Choice as ChoiceParameter
from torchyard.sweeps.spec.search_space import SearchSpace, Value, contains
from torchyard.sweeps.spec.trials import AS_A_JOB

__all__ = ["Limits", "Objective", "Sampling", "SweepFile", "SweepSpec", "read"]

_OF_EVERY_TRIAL = Key(f"of every trial; {AS_A_JOB}")
# What the search space is read from.
_SPACE = ("search_space", "sampling_algorithm", "properties")


@dataclass(frozen=True)
class SweepSpec:
    """`trial` is the trial's part of a command job's file, empty while only `component` names it.

    `warm_start` is the parameters of the first trials, or the name of an earlier sweep.
    `trial_properties` are those of `torchyard.` that are the trials'.
    """

    space: SearchSpace
    sampling: Sampling
    objectives: tuple[Objective, ...]
    limits: Limits
    trial: Mapping[str, Any] = field(default_factory=dict)
    component: str = ""
    early_termination: Policy | None = None
    warm_start: tuple[Mapping[str, Value], ...] | str = ()
    name: str = ""
    display_name: str = ""
    experiment_name: str = "Default"
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    trial_properties: Mapping[str, str] = field(default_factory=dict)
    compute: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    identity: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    queue_settings: Mapping[str, Any] = field(default_factory=dict)
    parent_job_name: str = ""
    notices: tuple[str, ...] = ()

    @property
    def objective(self) -> Objective:
        return self.objectives[0]

    def trial_document(self, number: int, parameters: Mapping[str, Value]) -> dict[str, Any]:
        """The complete file of `type: command` for one trial, named `<sweep>_<number>`.

        `name` and `trial` must have been filled in.
        """
        frame = _trial_frame(self, number)
        return trials.document(self.trial, self.space, self.inputs, frame, parameters)

    def with_trial(self, trial: Mapping[str, Any]) -> SweepSpec:
        """The same sweep with the trial that its `component` stands for.

        Args:
            trial: keys as those of an inline trial.

        Raises:
            InvalidSpec: its command and the search space don't go together.
        """
        spec = dataclasses.replace(self, trial=trials.read_inline(trial))
        notices = trials.check(spec.trial, spec.space, spec.inputs, _trial_frame(spec, 0))
        return dataclasses.replace(spec, notices=(*self.notices, *notices))

    def with_seed(self, seed: int) -> SweepSpec:
        """The same sweep with the seed that was drawn for it."""
        return dataclasses.replace(self, sampling=dataclasses.replace(self.sampling, seed=seed))

    def with_warm_start(self, points: Sequence[Mapping[str, Value]]) -> SweepSpec:
        """The same sweep with the parameters that the sweep named in `warm_start` stands for.

        Points that are outside the search space are left out.
        """
        inside = tuple(point for point in points if contains(self.space, point))
        return dataclasses.replace(self, warm_start=inside)


def _section(value: Any, at: At) -> Mapping[str, Any]:
    if value and not isinstance(value, Mapping):
        raise InvalidSpec(
            f"`{at[-1]}` must be a mapping of keys to values, not {described(value)}",
            f"write `{at[-1]}:` with one key a line below it",
            at=at,
        )
    return value or {}


def _limits(value: Any, at: At) -> Limits:
    return LimitsFile.read(_section(value, at), at).limits


def _name(value: Any, at: At) -> str:
    return name({at[-1]: value}, str(at[-1]))


def _experiment_name(value: Any, at: At) -> str:
    return experiment_name({"experiment_name": value})


def _as_it_is(value: Any, at: At) -> Any:
    return value


def _mapping_of(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": schema}


_TRIAL = By(trials.read, of=trials.TrialFile, else_=TEXT)
_ALGORITHM = By(
    sampling.read, else_={"anyOf": [sampling.TYPES.schema(), sampling.TYPES.mapping_schema()]}
)
_OBJECTIVE = By(objectives.read, of=objectives.ObjectiveFile)
_POLICY = By(early_termination.read, else_=early_termination.TYPES.mapping_schema())
_SEARCH_SPACE = By(_as_it_is, else_=_mapping_of(space_reading.TYPES.mapping_schema()))
_OWN_SETTINGS = By(_as_it_is, else_=own_settings.schema())


class SweepFile(File):
    subject: ClassVar[str] = "the sweep"
    resolved: ClassVar[Sequence[str]] = (
        "trial.command",
        "trial.environment_variables.*",
        "outputs.*.path",
    )

    type: str = declared("sweep", "`sweep`", Choice(sweep=Key()))
    name: str = declared("", "once in a workspace; trials are `<name>_0`, `<name>_1`, …", By(_name))
    display_name: str = declared(
        "", "what lists show; of trials with their number behind it", Text()
    )
    experiment_name: str = declared("", "of the sweep and of its trials", By(_experiment_name))
    description: str = declared("", check=Text())
    tags: dict[str, str] = declared({}, "of the sweep", Texts())
    properties: dict[str, str] = declared(
        {}, "of the sweep; those below `torchyard.` also of its trials", Texts()
    )
    trial: Mapping[str, Any] | str | None = declared(
        None, "the trial, see below, or a component: `azureml:<name>:<version>`", _TRIAL
    )
    search_space: Any = declared(None, "hyperparameters by name, see below", _SEARCH_SPACE)
    sampling_algorithm: Sampling | None = declared(
        None, "`random`, `grid`, `bayesian`, or a mapping, see below", _ALGORITHM
    )
    objective: Objective | None = declared(
        None, "`{goal: minimize, primary_metric: …}`; `maximize` in any case", _OBJECTIVE
    )
    early_termination: Policy | None = declared(
        None, "a policy, see below; none when left out", _POLICY
    )
    limits: Limits = declared(Limits(), "see below", By(_limits, of=LimitsFile))
    inputs: Mapping[str, Any] = declared({}, _OF_EVERY_TRIAL, By(_section))
    outputs: Mapping[str, Any] = declared({}, _OF_EVERY_TRIAL, By(_section))
    compute: str = declared("", _OF_EVERY_TRIAL, Text())
    identity: Mapping[str, Any] = declared({}, AS_A_JOB, By(_section))
    resources: Mapping[str, Any] = declared(
        {}, "of every trial, where `trial.resources` says nothing else", By(_section)
    )
    queue_settings: Mapping[str, Any] = declared({}, AS_A_JOB, By(_section))
    parent_job_name: str = declared("", "a job of the same workspace", By(_name))
    torchyard: Any = declared(
        None, "torchyard's own, see below; others are the trials'", _OWN_SETTINGS
    )
    id: None = refused(READ_ONLY)
    status: None = refused(READ_ONLY)
    creation_context: None = refused(READ_ONLY)

    @rule("name", "limits")
    def _short_name(self) -> None:
        """Short enough for its trials' names."""
        limit = 255 - len(f"_{self.limits.max_total_trials}")
        if len(self.name) > limit:
            raise InvalidSpec(
                f"`name` has {len(self.name)} characters, and trials are named `<name>_<number>`",
                f"use {limit} characters at most",
                at=("name",),
            )

    @rule("properties")
    def own(self) -> OwnSettings:
        return own_settings.read(self.properties)

    @property
    def trial_properties(self) -> dict[str, str]:
        return {
            key: value
            for key, value in self.properties.items()
            if key.startswith(own_settings.PREFIX) and not own_settings.is_setting(key)
        }

    @rule("sampling_algorithm", "properties")
    def searched(self) -> Sampling:
        own = self.own()
        return sampling.joined(self.sampling_algorithm, own.sampler, own.seed, own.constraints)

    @rule("objective", "properties")
    def all_objectives(self) -> tuple[Objective, ...]:
        return objectives.joined(self.objective, self.own().objectives)

    @rule("early_termination", "properties")
    def policy(self) -> Policy | None:
        policies = {self.early_termination, self.own().early_termination} - {None}
        if len(policies) > 1:
            raise InvalidSpec(
                "the sweep has two policies of early termination",
                "keep one",
                at=("properties", "torchyard.early_termination"),
            )
        return next(iter(policies), None)

    @rule("search_space")
    def parsed_space(self) -> SearchSpace:
        if self.search_space is None:
            raise InvalidSpec(
                "the sweep has no `search_space`",
                "for example `search_space: {lr: {type: uniform, min_value: 0.01, "
                "max_value: 0.1}}`",
            )
        return space_reading.parse(self.search_space, ("search_space",))

    @cached_property
    def space(self) -> SearchSpace:
        algorithm = self.sampling_algorithm or Sampling("random")
        return space_reading.with_base(self.parsed_space(), algorithm.base, ("search_space",))

    @rule(*_SPACE)
    def warm_start(self) -> tuple[Mapping[str, Value], ...] | str:
        return own_settings.warm_start(self.own().warm_start, self.space)

    @rule("objective", *_SPACE)
    def _can_be_searched(self) -> None:
        sampling.check(self.searched(), self.space, len(self.all_objectives()))

    @rule("trial")
    def _has_trial(self) -> None:
        if self.trial is None:
            raise InvalidSpec("the sweep has no `trial`", trials.EXAMPLE)

    @rule("trial", "inputs", "outputs", "compute", *_SPACE)
    def _trials(self) -> object:
        return self.trial_notices

    @cached_property
    def trial_notices(self) -> tuple[str, ...]:
        """As of `trials.check`; of a faulty search space only names in the command count."""
        written = self.search_space
        if not isinstance(self.trial, Mapping) or not isinstance(written, Mapping) or not written:
            return ()
        try:
            expressions.refuse({"search_space": written})
            space = self.space
        except InvalidSpec:
            command, names = str(self.trial.get("command")), map(str, written)
            space = SearchSpace({name: ChoiceParameter((1,)) for name in names if name in command})
        return trials.check(self.trial, space, self.inputs, _trial_frame(self, 0))

    @property
    def spec(self) -> SweepSpec:
        own, searched = self.own(), self.searched()
        limits = dataclasses.replace(self.limits, max_failed_trials=own.max_failed_trials)
        notices = (*space_reading.notices(self.space), *_search_notices(searched, limits))
        return SweepSpec(
            space=self.space,
            sampling=searched,
            objectives=self.all_objectives(),
            limits=limits,
            trial=self.trial if isinstance(self.trial, Mapping) else {},
            component=self.trial if isinstance(self.trial, str) else "",
            early_termination=self.policy(),
            warm_start=self.warm_start(),
            name=self.name,
            display_name=self.display_name,
            experiment_name=self.experiment_name or "Default",
            description=self.description,
            tags=self.tags,
            properties=self.properties,
            trial_properties=self.trial_properties,
            compute=self.compute,
            inputs=self.inputs,
            outputs=self.outputs,
            identity=self.identity,
            resources=self.resources,
            queue_settings=self.queue_settings,
            parent_job_name=self.parent_job_name,
            notices=(*notices, *self.trial_notices),
        )


def read(document: Any) -> SweepSpec:
    """Check a sweep file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place and the others.
    """
    return own_properties.read(SweepFile, document).spec


def _trial_frame(sweep: SweepSpec | SweepFile, number: int) -> dict[str, Any]:
    """What the sweep itself gives its trials, without what is empty."""
    shown = sweep.display_name or sweep.name
    frame = {
        "type": "command",
        "name": f"{sweep.name}_{number}" if sweep.name else "",
        "display_name": f"{shown}_{number}"[-255:] if shown else "",
        "experiment_name": sweep.experiment_name,
        "parent_job_name": sweep.name,
        "compute": sweep.compute,
        "inputs": sweep.inputs,
        "outputs": sweep.outputs,
        "identity": sweep.identity,
        "resources": sweep.resources,
        "queue_settings": sweep.queue_settings,
        "properties": sweep.trial_properties,
        "limits": {"timeout": sweep.limits.trial_timeout_s} if sweep.limits.trial_timeout_s else {},
    }
    return {key: value for key, value in frame.items() if value not in ("", {}, None)}


def _search_notices(searched: Sampling, limits: Limits) -> list[str]:
    if searched.is_adaptive and searched.algorithm != "qmc":
        if limits.max_concurrent_trials >= limits.max_total_trials > 1:
            return [
                "all trials may run at once, so that none can learn from another: set "
                "`max_concurrent_trials`"
            ]
    return []
