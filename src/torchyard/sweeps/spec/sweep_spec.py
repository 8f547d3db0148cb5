"""The sweep file: from a mapping to a `SweepSpec`.

Owns: `SweepSpec`; what stands at the top of a sweep, its objectives and limits.
Leaves: the search space to space_reading.py, the job files of trials to trials.py, what a trial's
keys mean to jobs/spec/.
Always: a `SweepSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import count, described, in_seconds, mapping, text, texts, unknown_key
from torchyard.jobs.spec import own_properties
from torchyard.jobs.spec.parts import experiment_name, name
from torchyard.sweeps.spec import early_termination, own_settings, sampling, space_reading, trials
from torchyard.sweeps.spec.early_termination import Policy
from torchyard.sweeps.spec.keys import TOP
from torchyard.sweeps.spec.own_settings import OwnSettings
from torchyard.sweeps.spec.sampling import Sampling
from torchyard.sweeps.spec.search_space import SearchSpace, Value, contains
from torchyard.sweeps.spec.words import one_of

__all__ = ["Limits", "Objective", "Sampling", "SweepSpec", "read"]

_GOALS = ("minimize", "maximize")
_DEFAULT_TRIALS = 1000
_MOST_TRIALS = 100_000
_DEFAULT_TIMEOUT_S = 5_184_000.0
_LONGEST_S = 10 * 365 * 86_400.0
_MOST_OBJECTIVES = 10
_RESOLVED = ("trial.command", "trial.environment_variables.*", "outputs.*.path")


@dataclass(frozen=True)
class Objective:
    primary_metric: str
    goal: str
    """`minimize` or `maximize`."""


@dataclass(frozen=True)
class Limits:
    """`trial_timeout_s` is 0 for none; `max_failed_trials` is None when all may fail."""

    max_total_trials: int = _DEFAULT_TRIALS
    max_concurrent_trials: int = _DEFAULT_TRIALS
    timeout_s: float = _DEFAULT_TIMEOUT_S
    trial_timeout_s: float = 0.0
    max_failed_trials: int | None = None


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
        frame = self._trial_frame(number)
        return trials.document(self.trial, self.space, self.inputs, frame, parameters)

    def with_trial(self, trial: Mapping[str, Any]) -> SweepSpec:
        """The same sweep with the trial that its `component` stands for.

        Args:
            trial: keys as those of an inline trial.

        Raises:
            InvalidSpec: its command and the search space don't go together.
        """
        return dataclasses.replace(self, trial=trials.read_inline(trial))._checked()

    def with_seed(self, seed: int) -> SweepSpec:
        """The same sweep with the seed that was drawn for it."""
        return dataclasses.replace(self, sampling=dataclasses.replace(self.sampling, seed=seed))

    def with_warm_start(self, points: Sequence[Mapping[str, Value]]) -> SweepSpec:
        """The same sweep with the parameters that the sweep named in `warm_start` stands for.

        Points that are outside the search space are left out.
        """
        inside = tuple(point for point in points if contains(self.space, point))
        return dataclasses.replace(self, warm_start=inside)

    def _checked(self) -> SweepSpec:
        """The same sweep, with the notices that its trials will have."""
        notices = trials.check(self.trial, self.space, self.inputs, self._trial_frame(0))
        return dataclasses.replace(self, notices=(*self.notices, *notices))

    def _trial_frame(self, number: int) -> dict[str, Any]:
        """What the sweep itself gives its trials, without what is empty."""
        shown = self.display_name or self.name
        frame = {
            "type": "command",
            "name": f"{self.name}_{number}" if self.name else "",
            "display_name": f"{shown}_{number}"[-255:] if shown else "",
            "experiment_name": self.experiment_name,
            "parent_job_name": self.name,
            "compute": self.compute,
            "inputs": self.inputs,
            "outputs": self.outputs,
            "identity": self.identity,
            "resources": self.resources,
            "queue_settings": self.queue_settings,
            "properties": self.trial_properties,
            "limits": {"timeout": self.limits.trial_timeout_s}
            if self.limits.trial_timeout_s
            else {},
        }
        return {key: value for key, value in frame.items() if value not in ("", {}, None)}


@faults.all_at_once
def read(document: Any) -> SweepSpec:
    """Check a sweep file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    written = mapping(document, "the sweep")
    _check_keys(written)
    expressions.refuse(written, _RESOLVED)
    sweep = own_properties.with_mapping(written)
    properties = texts(sweep, "properties")
    own_values = own_settings.read(properties)
    searched = sampling.read(
        sweep.get("sampling_algorithm"),
        own_values.sampler,
        own_values.seed,
        own_values.constraints,
        "torchyard.seed",
    )
    if sweep.get("search_space") is None:
        raise InvalidSpec(
            "the sweep has no `search_space`",
            "for example `search_space: {lr: {type: uniform, min_value: 0.01, max_value: 0.1}}`",
        )
    space = space_reading.read(sweep["search_space"], ("search_space",), searched.base)
    objectives = _objectives(sweep, own_values)
    sampling.check(searched, space, len(objectives))
    limits = _limits(sweep, own_values)
    trial, component = trials.read(sweep)
    spec = SweepSpec(
        space=space,
        sampling=searched,
        objectives=objectives,
        limits=limits,
        trial=trial,
        component=component,
        early_termination=_policy(sweep, own_values),
        warm_start=own_settings.warm_start(own_values.warm_start, space),
        name=_name(sweep, limits),
        display_name=text(sweep, "display_name"),
        experiment_name=experiment_name(sweep) or "Default",
        description=text(sweep, "description"),
        tags=texts(sweep, "tags"),
        properties=properties,
        trial_properties=_trial_properties(properties),
        compute=text(sweep, "compute"),
        inputs=_section(sweep, "inputs"),
        outputs=_section(sweep, "outputs"),
        identity=_section(sweep, "identity"),
        resources=_section(sweep, "resources"),
        queue_settings=_section(sweep, "queue_settings"),
        parent_job_name=name(sweep, "parent_job_name"),
        notices=(*space_reading.notices(space), *_search_notices(searched, limits)),
    )
    return spec._checked() if trial else spec


def _check_keys(sweep: Mapping[str, Any]) -> None:
    known_keys = {key.name: key for key in TOP}
    for key, value in sweep.items():
        known_key = known_keys.get(key)
        if known_key is None:
            raise unknown_key(str(key), list(known_keys))
        if known_key.support == "refused" and value not in (None, "", {}, []):
            raise InvalidSpec(
                f"`{key}` is not served", known_key.note, code="not_served", at=(key,)
            )
    if sweep.get("type") is not None:
        one_of(sweep, "type", ("sweep",), ())


def _section(sweep: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = sweep.get(key) or {}
    if not isinstance(value, Mapping):
        raise InvalidSpec(
            f"`{key}` must be a mapping of keys to values, not {described(value)}",
            f"write `{key}:` with one key a line below it",
            at=(key,),
        )
    return value


def _name(sweep: Mapping[str, Any], limits: Limits) -> str:
    """Short enough for its trials' names."""
    value = name(sweep, "name")
    limit = 255 - len(f"_{limits.max_total_trials}")
    if len(value) > limit:
        raise InvalidSpec(
            f"`name` has {len(value)} characters, and trials are named `<name>_<number>`",
            f"use {limit} characters at most",
            at=("name",),
        )
    return value


def _objectives(sweep: Mapping[str, Any], own_values: OwnSettings) -> tuple[Objective, ...]:
    several_at = ("properties", "torchyard.objectives")
    objectives = [
        _objective(body, (*several_at, index)) for index, body in enumerate(own_values.objectives)
    ]
    if sweep.get("objective") is not None:
        first = _objective(sweep["objective"], ("objective",))
        objectives = [first, *(other for other in objectives if other != first)]
    if not objectives:
        raise InvalidSpec(
            "the sweep has no `objective`",
            "for example `objective: {goal: minimize, primary_metric: val_loss}`",
        )
    metrics = [objective.primary_metric for objective in objectives]
    if len(set(metrics)) < len(metrics) or len(metrics) > _MOST_OBJECTIVES:
        raise InvalidSpec(
            f"a metric is an objective twice, or there are more than {_MOST_OBJECTIVES} objectives",
            "name each metric once",
            at=several_at,
        )
    return tuple(objectives)


def _objective(body: Any, at: tuple[str | int, ...]) -> Objective:
    if not isinstance(body, Mapping):
        raise InvalidSpec(
            f"an objective must be a mapping, not {described(body)}",
            "for example `{goal: minimize, primary_metric: val_loss}`",
            at=at,
        )
    for key in body:
        if key not in ("goal", "primary_metric"):
            raise unknown_key(str(key), ("goal", "primary_metric"), at, inside="objective")
    return Objective(
        own_settings.metric_name(body.get("primary_metric"), at), one_of(body, "goal", _GOALS, at)
    )


def _limits(sweep: Mapping[str, Any], own_values: OwnSettings) -> Limits:
    body = _section(sweep, "limits")
    keys = ("max_total_trials", "max_concurrent_trials", "timeout", "trial_timeout")
    for key in body:
        if key not in keys:
            raise unknown_key(str(key), keys, ("limits",), inside="limits")
    total = count(body, keys[0], ("limits",), default=_DEFAULT_TRIALS, least=1)
    if total > _MOST_TRIALS:
        raise InvalidSpec(
            f"`max_total_trials` is above {_MOST_TRIALS}", "lower it", at=("limits", keys[0])
        )
    concurrent = count(body, keys[1], ("limits",), default=total, least=1)
    if concurrent > total:
        raise InvalidSpec(
            f"`max_concurrent_trials` is {described(concurrent)[1:-1]}, and `max_total_trials` is "
            f"{total}",
            f"write {total} or less",
            at=("limits", keys[1]),
        )
    return Limits(
        total,
        concurrent,
        _seconds(body, "timeout") or _DEFAULT_TIMEOUT_S,
        _seconds(body, "trial_timeout"),
        own_values.max_failed_trials,
    )


def _seconds(body: Mapping[str, Any], key: str) -> float:
    value = body.get(key)
    if value is None:
        return 0.0
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or math.isnan(value) or not 0 <= value <= _LONGEST_S:
        raise InvalidSpec(
            f"`{key}` must be a number of seconds, up to ten years",
            f"for example `{key}: {in_seconds(value) or 3600}`",
            at=("limits", key),
        )
    return float(value)


def _policy(sweep: Mapping[str, Any], own_values: OwnSettings) -> Policy | None:
    key_path = ("properties", "torchyard.early_termination")
    policy = early_termination.read(sweep.get("early_termination"), ("early_termination",))
    own_policy = early_termination.read(own_values.early_termination, key_path)
    if policy is not None and own_policy is not None and policy != own_policy:
        raise InvalidSpec(
            "the sweep has two policies of early termination", "keep one", at=key_path
        )
    return policy or own_policy


def _trial_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {
        key: value
        for key, value in properties.items()
        if key.startswith(own_settings.PREFIX) and not own_settings.is_setting(key)
    }


def _search_notices(searched: Sampling, limits: Limits) -> list[str]:
    if searched.is_adaptive and searched.algorithm != "qmc":
        if limits.max_concurrent_trials >= limits.max_total_trials > 1:
            return [
                "all trials may run at once, so that none can learn from another: set "
                "`max_concurrent_trials`"
            ]
    return []
