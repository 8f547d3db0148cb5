"""A sweep in the run history, in the words of SDK v1's HyperDrive.

Owns: the tags and properties from which `HyperDriveRun` and its widget read a sweep.
Leaves: a run's other JSON to runs.py, a sweep's ARM resource to arm/sweep_resources.py.
Always: every sweep has them, by whichever client it was created.

Source: azureml-train-core 1.62, `HyperDriveRun` and `HyperDriveConfig`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm import sweep_resources
from torchyard.azureml.common.calls import Call
from torchyard.azureml.sdk_v1 import hyperdrive_configs
from torchyard.jobs.records.types import Job
from torchyard.sweeps.actions import TYPE
from torchyard.sweeps.spec import sweep_spec

RUN_TYPE = "hyperdrive"
_PREFIX = "_aml_system_"
_MINUTE_S = 60


def is_sweep(job: Job) -> bool:
    return job.type == TYPE


def tags(call: Call, job: Job) -> dict[str, str]:
    """The configuration, from which the client makes its `HyperDriveConfig` again."""
    spec = sweep_spec.read(job.document)
    space = sweep_resources.space(spec.space)
    configuration: dict[str, Any] = {
        "generator_config": hyperdrive_configs.generator_json(spec.sampling.algorithm, space),
        "primary_metric_config": {
            "name": spec.objective.primary_metric,
            "goal": spec.objective.goal,
        },
        "policy_config": hyperdrive_configs.policy_json(spec.early_termination),
        "max_total_jobs": spec.limits.max_total_trials,
        "max_concurrent_jobs": spec.limits.max_concurrent_trials,
        "max_duration_minutes": math.ceil(spec.limits.timeout_s / _MINUTE_S),
        "platform_config": _platform(call, job),
    }
    return {
        f"{_PREFIX}{key}": str(value) if isinstance(value, int) else json.dumps(value)
        for key, value in configuration.items()
    }


def trial_tags(parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The parameters of each trial, as `get_hyperparameters` reads them."""
    return {f"{_PREFIX}{trial}": json.dumps(values) for trial, values in parameters.items()}


def properties(job: Job) -> dict[str, str]:
    return {
        "platform": hyperdrive_configs.PLATFORM,
        "resume_from": "null",
        "resume_child_runs": "null",
        **job.properties,
    }


def _platform(call: Call, job: Job) -> dict[str, Any]:
    workspace = call.workspace
    return {
        "ServiceAddress": call.base,
        "ServiceArmScope": f"{call.workspace_id[1:]}/experiments/{job.experiment_name}",
        "SubscriptionId": workspace.subscription_id,
        "ResourceGroupName": workspace.resource_group,
        "WorkspaceName": workspace.name,
        "ExperimentName": job.experiment_name,
        "ParentRunId": job.name,
    }
