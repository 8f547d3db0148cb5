"""Our sweep as the properties of an Azure resource.

Owns: the translation from a sweep's file to Azure's JSON, key by key.
Leaves: the opposite direction to sweep_documents.py; what a sweep shares with a command job to
job_resources.py.
Always: what a client reads and puts again means the same sweep.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm import job_resources
from torchyard.azureml.arm.sweep_documents import CHOICE, POLICY_KEYS
from torchyard.azureml.common.calls import Call
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job
from torchyard.jobs.spec import job_spec
from torchyard.sweeps.spec import sweep_spec
from torchyard.sweeps.spec.early_termination import (
    Bandit,
    MedianStopping,
    Policy,
    TruncationSelection,
)
from torchyard.sweeps.spec.search_space import (
    Choice,
    Normal,
    Parameter,
    Randint,
    SearchSpace,
    Uniform,
)
from torchyard.sweeps.spec.sweep_spec import Limits, Sampling, SweepSpec

AZURE_ALGORITHMS = {"random": "Random", "sobol": "Random", "grid": "Grid"}
"""Azure has one more: every sampler that learns from trials is shown as bayesian."""

_POLICIES = {
    Bandit: "Bandit",
    MedianStopping: "MedianStopping",
    TruncationSelection: "TruncationSelection",
}


def sweep(call: Call, job: Job, environment_hash: str) -> dict[str, Any]:
    """The properties of a sweep's resource.

    Args:
        environment_hash: of its trials' environment; needed if that has no name.
    """
    spec = sweep_spec.read(job.document)
    document = trial_document(job.document, spec)
    read = job_spec.read(document)
    trial = job_resources.trial_parts(call, read, document, environment_hash)
    return {
        "jobType": "Sweep",
        **job_resources.common_parts(call, job, read),
        "searchSpace": job_masking.masked(job, space(spec.space)),
        "samplingAlgorithm": sampling(spec.sampling),
        "objective": {
            "goal": spec.objective.goal.capitalize(),
            "primaryMetric": spec.objective.primary_metric,
        },
        "earlyTermination": termination(spec.early_termination),
        "limits": limits(spec.limits),
        # Not a second time as the sweep's: azure-ai-ml 1.20 can't send those back.
        "trial": {"command": job_masking.masked(job, command_of(spec)), **trial},
    }


def trial_document(document: Mapping[str, Any], spec: SweepSpec) -> dict[str, Any]:
    """A command job's file with all of a trial but its command, which has parameters in it."""
    shared = ("inputs", "outputs", "compute", "identity", "queue_settings", "services")
    common = {key: document[key] for key in shared if document.get(key)}
    resources = {**spec.resources, **(spec.trial.get("resources") or {})}
    trial = {**spec.trial, **({"resources": resources} if resources else {})}
    return {**common, **trial, "type": "command", "command": "true"}


def command_of(spec: SweepSpec) -> str:
    return str(spec.trial.get("command") or "")


def space(search_space: SearchSpace) -> dict[str, Any]:
    """A space as clients write it: `{"rate": ["uniform", [0.1, 0.2]]}`."""
    return {name: expression(item) for name, item in search_space.parameters.items()}


def expression(parameter: Parameter) -> list[Any]:
    """A parameter as clients write it: `["uniform", [0.1, 0.2]]`."""
    if isinstance(parameter, Choice):
        return [CHOICE, [[_value(value) for value in parameter.values]]]
    if isinstance(parameter, Randint):
        return ["randint", [parameter.upper]]
    quantum = [] if parameter.q is None else [_plain(parameter.q)]
    function = f"{'q' if quantum else ''}{'log' if parameter.log else ''}"
    if isinstance(parameter, Uniform):
        bounds = [_plain(parameter.min_value), _plain(parameter.max_value)]
        return [f"{function}uniform", [*bounds, *quantum]]
    assert isinstance(parameter, Normal)
    return [f"{function}normal", [_plain(parameter.mu), _plain(parameter.sigma), *quantum]]


def _value(value: Any) -> Any:
    """A value of a choice; a space of its own is an object of values and functions."""
    if not isinstance(value, SearchSpace):
        return value
    return {name: _nested(item) for name, item in value.parameters.items()}


def _nested(parameter: Parameter) -> Any:
    """In a nested space, a plain value is read as the only choice."""
    if isinstance(parameter, Choice) and len(parameter.values) == 1:
        return _value(parameter.values[0])
    return expression(parameter)


def _plain(number: float) -> float:
    """A whole number without a fraction: SDK v1 accepts no other as `q`."""
    return int(number) if number == int(number) else number


def sampling(chosen: Sampling) -> dict[str, Any]:
    kind = AZURE_ALGORITHMS.get(chosen.algorithm, "Bayesian")
    shown: dict[str, Any] = {"samplingAlgorithmType": kind}
    if kind == "Random":
        if chosen.algorithm == "sobol":
            shown["rule"] = "Sobol"
        if chosen.is_seeded:
            shown["seed"] = chosen.seed
        if chosen.logbase is not None:
            shown["logbase"] = chosen.logbase
    return shown


def termination(policy: Policy | None) -> dict[str, Any] | None:
    """None also for a policy that Azure does not have."""
    kind = None if policy is None else _POLICIES.get(type(policy))
    if kind is None:
        return None
    settings = {key: getattr(policy, name, None) for key, name in POLICY_KEYS.items()}
    written = {key: value for key, value in settings.items() if value is not None}
    return {"policyType": kind, **written}


def limits(sweep_limits: Limits) -> dict[str, Any]:
    trial_timeout_s = sweep_limits.trial_timeout_s
    return {
        "jobLimitsType": "Sweep",
        "maxTotalTrials": sweep_limits.max_total_trials,
        "maxConcurrentTrials": sweep_limits.max_concurrent_trials,
        "timeout": job_resources.duration(sweep_limits.timeout_s),
        "trialTimeout": job_resources.duration(trial_timeout_s) if trial_timeout_s else None,
    }
