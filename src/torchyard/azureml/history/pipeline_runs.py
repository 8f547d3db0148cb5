"""The steps of a pipeline in the run history.

Owns: the property by which people's code tells the steps of a pipeline apart.
Leaves: a run's other JSON to runs.py, a pipeline's ARM resource to arm/pipeline_resources.py.
Always: it is the name of the step's component, or of the step where the component is its own.

Source: azureml-examples, the notebooks of pipelines at batch endpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.pipeline_documents import KIND
from torchyard.azureml.arm.pipeline_resources import ANONYMOUS_COMPONENT
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import RecordServices
from torchyard.pipelines import actions
from torchyard.pipelines.actions import ShownStep

_MODULE = "azureml.moduleName"


def modules(services: RecordServices, job: Job | None) -> dict[str, str]:
    """The property of each step, by the step's job; none for a job that is not a pipeline."""
    if job is None or job.type != KIND:
        return {}
    return {step.row.child_name: _module(step) for step in actions.steps(services, job)}


def with_module(run: Mapping[str, Any], modules: Mapping[str, str]) -> dict[str, Any]:
    """The JSON of a run that may be a step's."""
    name = modules.get(run["runId"])
    return {**run, "properties": {_MODULE: name, **run["properties"]}} if name else dict(run)


def _module(step: ShownStep) -> str:
    component = step.row.component.partition(":")[0]
    return component if component not in ("", ANONYMOUS_COMPONENT) else step.row.name
