"""A job of any type as an Azure resource.

Owns: which module translates which type.
Leaves: the translation to job_resources.py and sweep_resources.py.
Always: a run that was started outside any job has no properties: clients read it from the run
history.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.azureml.arm import job_resources, sweep_resources
from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.common.calls import Call
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job
from torchyard.sweeps.actions import TYPE as SWEEP

COMMAND = "command"
TRANSLATED = {COMMAND: job_resources.command, SWEEP: sweep_resources.sweep}
"""By `Job.type`, what makes its resource's properties."""


def to_resource(
    call: Call, job: Job, environment_hash: str, params: Mapping[str, str] | None = None
) -> Resource:
    """
    Args:
        environment_hash: of the job's environment; needed if that has no name.
        params: what the job's script logged as its parameters.
    """
    translate = TRANSLATED.get(job.type)
    properties = None if translate is None else translate(call, job, environment_hash)
    if properties is not None and params:
        properties["parameters"] = job_masking.masked(job, dict(params))
    return Resource(
        ("jobs", job.name),
        properties,
        job.created_at,
        job.owner,
        job.ended_at or job.started_at,
    )
