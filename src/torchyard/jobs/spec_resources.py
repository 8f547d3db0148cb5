"""What a job file says of processes, nodes and the rights of a job.

Owns: distribution, resources, limits, identity and queue settings.
Leaves: whether the compute has that many nodes to actions.py.
Always: what can't be kept is refused; what is kept by other means is told as a notice when the
user could think otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec_values import At, choice, count, mapping, refused, section, served, text

_SHM_SIZE = re.compile(r"^\d+(?:\.\d+)?[bkmg]\Z", re.IGNORECASE)
_OF_TYPE = {
    "pytorch": ("process_count_per_instance",),
    "mpi": ("process_count_per_instance",),
    "tensorflow": ("worker_count", "parameter_server_count"),
}


@dataclass(frozen=True)
class Shape:
    """How many nodes and processes; `distribution` is `pytorch` or empty."""

    distribution: str
    process_count_per_instance: int
    instance_count: int
    timeout_s: float
    notices: tuple[str, ...]


def read(job: Mapping[str, Any]) -> Shape:
    """
    Raises:
        InvalidSpec: what is wrong or not served, and where.
    """
    resources = section(job, "resources")
    nodes = count(resources, "instance_count", ("resources",), 1)
    notices = []
    size = text(resources, "instance_type", ("resources",))
    if size:
        notices.append(
            f"`resources.instance_type: {size}` chooses nothing: the nodes of the compute are "
            "what they are"
        )
    _shm_size(resources)
    limits = section(job, "limits")
    distribution, processes, notice = _distribution(job, nodes)
    _identity(job)
    _queue_settings(job)
    return Shape(
        distribution,
        processes,
        nodes,
        float(count(limits, "timeout", ("limits",), 0, least=0)),
        tuple(notices + ([notice] if notice else [])),
    )


def _distribution(job: Mapping[str, Any], nodes: int) -> tuple[str, int, str]:
    """Its type, processes on each node, and a notice."""
    if not job.get("distribution"):
        return "", 1, ""
    at: At = ("distribution",)
    body = mapping(job["distribution"], at, "`distribution`")
    if not body.get("type"):
        raise InvalidSpec("`distribution` has no `type`", "write `type: pytorch`", at=at)
    kind = choice(body, "type", at, "distribution.type", "")
    if kind.value == "ray":
        raise refused(kind, (*at, "type"))
    section(job, "distribution")
    for key in body:
        if key != "type" and key not in _OF_TYPE[kind.value]:
            raise InvalidSpec(
                f"`{key}` is no key of `distribution` with `type: {kind.value}`",
                f"it has: {', '.join(_OF_TYPE[kind.value])}",
                at=(*at, str(key)),
            )
    processes = count(body, "process_count_per_instance", at, 1)
    if kind.value == "pytorch":
        return "pytorch", processes, ""
    workers = count(body, "worker_count", at, nodes)
    servers = count(body, "parameter_server_count", at, 0, least=0)
    if nodes * processes * workers > 1 or servers:
        raise refused(kind, (*at, "type"))
    # One process has nobody to meet: what its launcher would do is nothing.
    return "", 1, f"`distribution.type: {kind.value}` with one process is started as it is"


def _shm_size(resources: Mapping[str, Any]) -> None:
    written = text(resources, "shm_size", ("resources",))
    if written and not _SHM_SIZE.match(written.strip()):
        raise InvalidSpec(
            f"`{written}` is no `shm_size`",
            "a number and one of b, k, m, g: `2g`",
            at=("resources", "shm_size"),
        )


def _identity(job: Mapping[str, Any]) -> None:
    if job.get("identity"):
        body = mapping(job["identity"], ("identity",), "`identity`")
        served(body, "type", ("identity",), "identity.type", "aml_token")
        section(job, "identity")


def _queue_settings(job: Mapping[str, Any]) -> None:
    at: At = ("queue_settings",)
    body = section(job, "queue_settings")
    served(body, "job_tier", at, "queue_settings.job_tier", "standard")
    served(body, "priority", at, "queue_settings.priority", "medium")
