"""Types of jobs in Azure's words.

Owns: what a type has to say of itself, and the one of command jobs.
Leaves: which other types there are to the features, each to its own module.
Always: one type is one `JobKind`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.azureml.arm import job_resources
from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.common.calls import Call
from torchyard.base.feature import load
from torchyard.features import features
from torchyard.jobs.records.types import COMMAND, Job
from torchyard.jobs.requests import resubmission
from torchyard.jobs.services import Services


@dataclass(frozen=True)
class JobKind:
    """
    Attributes:
        read: the document of the job that a client sends, by its name and Azure's properties.
        properties: of a job's resource; the hash is that of its environment, needed if that has
            no name.
        require_same: raises Conflict unless the document is that of the job.
    """

    read: Callable[[Reader, str, Mapping[str, Any]], dict[str, Any]]
    properties: Callable[[Call, Job, str], dict[str, Any]]
    require_same: Callable[[Services, Job, dict[str, Any]], None]


COMMANDS = JobKind(Reader.read, job_resources.command, resubmission.require_same)


def kinds() -> Mapping[str, JobKind]:
    """By `Job.type`."""
    further = [each for feature in features() for each in feature.azure_jobs.items()]
    return {COMMAND: COMMANDS, **{kind: load(name) for kind, name in further}}
