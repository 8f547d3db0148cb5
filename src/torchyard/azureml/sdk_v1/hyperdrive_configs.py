"""SDK v1's HyperDriveConfig as a sweep's file, and back.

Owns: the names that HyperDrive has for samplings and policies; the parts of its configuration.
Leaves: the functions of a space, which SDK v2 writes in the same way, to arm/sweep_documents.py;
the run configuration to run_configs.py; the requests to hyperdrive.py.
Always: a setting is translated, or refused by its name.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm import sweep_documents, sweep_resources
from torchyard.azureml.arm.sweep_documents import POLICY_KEYS
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1.run_configs import object_at, whole_number
from torchyard.base.errors import InvalidInput, InvalidSpec
from torchyard.sweeps.spec.early_termination import Policy, TruncationSelection

PLATFORM = "AML"
"""Where the client wants runs to be: jobs. The other value is pipelines."""

_SAMPLINGS = {"random": "RANDOM", "grid": "GRID", "bayesian": "BayesianOptimization"}
_POLICIES = {
    "bandit": "Bandit",
    "median_stopping": "MedianStopping",
    "truncation_selection": "TruncationSelection",
}
_NO_POLICY = ("", "default", "notermination")
_SAMPLING_SETTINGS = ("seed", "rule", "logbase")
_EXCLUDE_FINISHED = "exclude_finished_jobs"
_POLICY_SETTINGS = (*POLICY_KEYS.values(), _EXCLUDE_FINISHED)
_MINUTE_S = 60


def sweep_keys(request: Mapping[str, Any]) -> dict[str, Any]:
    """Space, sampling, objective, termination and limits of a sweep's file.

    Raises:
        InvalidInput: a part is missing or of the wrong form.
        NotServed: it is for a platform that torchyard does not have.
    """
    if str(request.get("platform") or PLATFORM).upper() != PLATFORM:
        raise NotServed(
            "a HyperDriveConfig with a `pipeline` is not served",
            "give it a `run_config`: torchyard has no pipelines yet",
        )
    generator = object_at(request, "generator_config")
    space = object_at(generator, "parameter_space")
    metric = object_at(request, "primary_metric_config")
    keys: dict[str, Any] = {
        "search_space": {
            name: sweep_documents.parameter(name, _expression(item)) for name, item in space.items()
        },
        "sampling_algorithm": _sampling(generator),
        "objective": {
            "primary_metric": str(metric.get("name") or ""),
            "goal": str(metric.get("goal") or ""),
        },
        "limits": _limits(request),
    }
    policy = _policy(object_at(request, "policy_config"))
    return {**keys, **({"early_termination": policy} if policy else {})}


def with_parameters(command: str, names: Mapping[str, Any]) -> str:
    """The command with each parameter as `--name value` behind its arguments."""
    arguments = [
        f"{shlex.quote(name if name.startswith('-') else f'--{name}')} ${{{{search_space.{name}}}}}"
        for name in names
    ]
    return " ".join([command, *arguments])


def generator_json(algorithm: str, space: Mapping[str, Any]) -> dict[str, Any]:
    """`generator_config` of a sweep; SDK v1 has one sampling that learns from trials."""
    kind = sweep_resources.AZURE_ALGORITHMS.get(algorithm, "Bayesian").lower()
    return {"name": _SAMPLINGS[kind], "parameter_space": space}


def policy_json(policy: Policy | None) -> dict[str, Any]:
    """`policy_config` of a sweep; a policy that SDK v1 does not have is shown as none."""
    shown = sweep_resources.termination(policy)
    if shown is None:
        return {"name": "Default"}
    settings = {name: shown[key] for key, name in POLICY_KEYS.items() if key in shown}
    if isinstance(policy, TruncationSelection):
        settings[_EXCLUDE_FINISHED] = policy.exclude_finished_jobs
    return {"name": shown["policyType"], "properties": settings}


def _expression(item: Any) -> Any:
    """A plain value is the only choice."""
    is_function = isinstance(item, list) and len(item) == 2 and isinstance(item[1], list)
    return item if is_function else ["choice", [item if isinstance(item, list) else [item]]]


def _sampling(generator: Mapping[str, Any]) -> dict[str, Any]:
    written = str(generator.get("name") or "")
    kind = next((kind for kind, name in _SAMPLINGS.items() if name.lower() == written.lower()), "")
    if not kind:
        raise InvalidSpec(
            f"`{written[:40]}` is not a sampling",
            "use RandomParameterSampling, GridParameterSampling or BayesianParameterSampling",
            at=["generator_config", "name"],
        )
    settings = _settings(generator, _SAMPLING_SETTINGS, "the sampling", "generator_config")
    return {"type": kind, **settings}


def _policy(config: Mapping[str, Any]) -> dict[str, Any]:
    written = str(config.get("name") or "")
    if written.lower() in _NO_POLICY:
        return {}
    kind = next((kind for kind, name in _POLICIES.items() if name.lower() == written.lower()), "")
    if not kind:
        raise InvalidSpec(
            f"`{written[:40]}` is not an early termination policy",
            "use BanditPolicy, MedianStoppingPolicy, TruncationSelectionPolicy or none",
            at=["policy_config", "name"],
        )
    return {"type": kind, **_settings(config, _POLICY_SETTINGS, "the policy", "policy_config")}


def _settings(
    config: Mapping[str, Any], allowed: tuple[str, ...], owner: str, at: str
) -> dict[str, Any]:
    settings = {
        name: value for name, value in object_at(config, "properties").items() if value is not None
    }
    for name in settings:
        if name not in allowed:
            raise InvalidSpec(
                f"`{name[:80]}` of {owner} is not served",
                f"use {', '.join(allowed)}",
                at=[at, "properties", name],
            )
    return settings


def _limits(request: Mapping[str, Any]) -> dict[str, Any]:
    total = whole_number(request, "max_total_jobs", "max_total_runs", 0)
    if not total:
        raise InvalidInput("the HyperDriveConfig has no `max_total_runs`", at=["max_total_jobs"])
    concurrent = whole_number(request, "max_concurrent_jobs", "max_concurrent_runs", total)
    minutes = whole_number(request, "max_duration_minutes", "max_duration_minutes", 10_080)
    return {
        "max_total_trials": total,
        # The client does not compare the two, and Azure runs no more at once than there are.
        "max_concurrent_trials": min(concurrent, total),
        "timeout": minutes * _MINUTE_S,
    }
