"""A job of any type as an Azure resource.

Owns: what every job's resource has.
Leaves: the properties to the types, see job_kinds.py.
Always: a run that was started outside any job has no properties: clients read it from the run
history.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.azureml.arm import job_kinds
from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.common.calls import Call
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job

KINDS = job_kinds.kinds()


def to_resource(
    call: Call, job: Job, environment_hash: str, params: Mapping[str, str] | None = None
) -> Resource:
    """
    Args:
        environment_hash: of the job's environment; needed if that has no name.
        params: what the job's script logged as its parameters.
    """
    kind = KINDS.get(job.type)
    properties = None if kind is None else kind.properties(call, job, environment_hash)
    if properties is not None and params:
        properties["parameters"] = job_masking.masked(job, dict(params))
    return Resource(
        ("jobs", job.name),
        properties,
        job.created_at,
        job.owner,
        job.ended_at or job.started_at,
    )
