"""What a job file says of processes, nodes and the rights of a job.

Owns: resources, limits, identity and queue settings.
Leaves: distribution to distribution.py, services to services.py; whether the compute has that many
nodes to jobs/actions.py.
Always: what can't be kept is refused; what is kept by other means is told as a notice when the
user could think otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import count, seconds, text
from torchyard.jobs.spec import distribution as spec_distribution
from torchyard.jobs.spec import elastic as spec_elastic
from torchyard.jobs.spec.elastic import Elastic
from torchyard.jobs.spec.values import At, mapping, section, served

_SHM_SIZE = re.compile(r"^\d+(?:\.\d+)?[bkmg]\Z", re.IGNORECASE)
_HARMLESS_ARGUMENTS = ("--shm-size", "--ipc", "--gpus", "--runtime", "--ulimit")
_BACKENDS = ("nccl", "gloo")


@dataclass(frozen=True)
class Shape:
    """How many nodes and processes; `distribution` is pytorch, mpi, tensorflow or empty.

    An `elastic` job starts with `instance_count` nodes if so many are free.
    """

    distribution: str
    process_count_per_instance: int
    instance_count: int
    timeout_s: float
    notices: tuple[str, ...]
    job_tier: str = "standard"
    priority: str = "medium"
    communication_backend: str = ""
    parameter_servers: int = 0
    elastic: Elastic | None = None


def read(job: Mapping[str, Any]) -> Shape:
    """
    Raises:
        InvalidSpec: what is wrong or not served, and where.
    """
    resources = section(job, "resources")
    elastic = spec_elastic.read(spec_elastic.written(job))
    default = elastic.max_nodes if elastic else 1
    nodes = count(resources, "instance_count", ("resources",), default=default, least=1)
    notices = []
    size = text(resources, "instance_type", ("resources",))
    if size:
        notices.append(
            f"`resources.instance_type: {size}` chooses nothing: the nodes of the compute are "
            "what they are"
        )
    _shm_size(resources)
    notices += _docker_args(resources)
    limits = section(job, "limits")
    distribution = spec_distribution.read(job, nodes)
    if elastic:
        spec_elastic.refuse_size(elastic, nodes)
        spec_elastic.refuse_fixed_tasks(distribution.kind)
    _identity(job)
    job_tier, priority = _queue_settings(job)
    return Shape(
        distribution.kind,
        distribution.processes,
        nodes,
        float(seconds(limits, "timeout", ("limits",))),
        (*notices, *distribution.notices),
        job_tier,
        priority,
        _backend(job),
        distribution.parameter_servers,
        elastic,
    )


def _backend(job: Mapping[str, Any]) -> str:
    """What the ranks talk by, in any case as v1's PyTorchConfiguration has it; empty for unsaid."""
    at: At = ("distribution",)
    written = text(section(job, "distribution"), "communication_backend", at)
    if written and written.lower() not in _BACKENDS:
        raise InvalidSpec(
            f"`{written[:50]}` is not a `communication_backend`",
            "use `nccl` between GPUs or `gloo`, or leave it out",
            at=(*at, "communication_backend"),
        )
    return written.lower()


def _shm_size(resources: Mapping[str, Any]) -> None:
    written = text(resources, "shm_size", ("resources",))
    if written and not _SHM_SIZE.match(written.strip()):
        raise InvalidSpec(
            f"`{written}` is not a valid `shm_size`",
            "a number and one of b, k, m, g: `2g`",
            at=("resources", "shm_size"),
        )


def _docker_args(resources: Mapping[str, Any]) -> list[str]:
    """A notice for arguments that ask for what the processes of a job have anyway.

    Raises:
        InvalidSpec: another argument, which would change what the job sees.
    """
    at: At = ("resources", "docker_args")
    written = resources.get("docker_args") or []
    words = written.split() if isinstance(written, str) else written
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InvalidSpec("`docker_args` must be text or a list of texts", "remove it", at=at)
    # An argument's value is a word of its own, or stands behind `=`.
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    refused = [option for option in options if option not in _HARMLESS_ARGUMENTS]
    if refused or (words and not words[0].startswith("-")):
        raise InvalidSpec(
            f"`docker_args: {(refused or words)[0][:80]}` is not served",
            "jobs start no container of their own: remove it",
            code="not_served",
            at=at,
        )
    return ["`resources.docker_args` changes nothing: the job has them anyway"] if words else []


def _identity(job: Mapping[str, Any]) -> None:
    if job.get("identity"):
        body = mapping(job["identity"], ("identity",), "`identity`")
        served(body, "type", ("identity",), "identity.type", "aml_token")
        section(job, "identity")


def _queue_settings(job: Mapping[str, Any]) -> tuple[str, str]:
    """Tier and priority."""
    at: At = ("queue_settings",)
    body = section(job, "queue_settings")
    return (
        served(body, "job_tier", at, "queue_settings.job_tier", "standard"),
        served(body, "priority", at, "queue_settings.priority", "medium"),
    )
