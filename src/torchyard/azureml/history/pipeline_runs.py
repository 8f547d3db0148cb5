"""The steps of a pipeline in the run history.

Owns: the properties by which people's code tells the steps of a pipeline apart, and reused ones.
Leaves: a run's other JSON to runs.py, a pipeline's ARM resource to arm/pipeline_resources.py.
Always: a step's module is its component, or the step where the component is its own.

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


def steps_of(services: RecordServices, job: Job | None) -> dict[str, dict[str, str]]:
    """The properties of each step, by the step's job; none for a job that is not a pipeline."""
    if job is None or job.type != KIND:
        return {}
    return {step.row.child_name: _properties(step) for step in actions.steps(services, job)}


def as_child(
    run: Mapping[str, Any], parent: str, steps: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    """The JSON of a run that may be a step's, also one that the parent reuses."""
    found = steps.get(run["runId"])
    if found is None:
        return dict(run)
    return {**run, "parentRunId": parent, "properties": {**found, **run["properties"]}}


def _properties(step: ShownStep) -> dict[str, str]:
    properties = {_MODULE: _module(step)}
    if step.row.reused_from:
        properties |= {
            "azureml.isreused": "true",
            "azureml.reusedrunid": step.row.child_name,
            "azureml.reusedpipelinerunid": step.row.reused_from,
        }
    return properties


def _module(step: ShownStep) -> str:
    component = step.row.component.partition(":")[0]
    return component if component not in ("", ANONYMOUS_COMPONENT) else step.row.name
