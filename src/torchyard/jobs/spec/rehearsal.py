"""Whether a job is rehearsed: a script written for GPUs, run on a machine's CPU.

Owns: who asks for it and who wins, what is recorded on such a job, how many GPUs its script sees.
Leaves: the rehearsal itself to worker/in_rank/rehearsal_*.py, sizes to compute/.
Always: a job is rehearsed only when its own property or its workspace's setting says so, the
property first; it carries a property, a tag and a notice that tell of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.jobs.spec import own_properties
from torchyard.workspaces.types import Workspace

PROPERTY = "torchyard.rehearse_on_cpu"
TAG = "torchyard.rehearsal"
_MODE = "cpu"
_NOTICE = (
    "rehearsal on CPU, asked for by {whom}: cuda devices become the CPU and nccl becomes gloo; "
    "its times and memory say nothing of a GPU's"
)


def read(properties: Mapping[str, str]) -> bool | None:
    """What a job's own properties say; None when they say nothing.

    Raises:
        InvalidSpec: neither true nor false.
    """
    return own_properties.truth(properties, PROPERTY, False) if PROPERTY in properties else None


def is_asked(properties: Mapping[str, str], workspace: Workspace) -> bool:
    """Whether a job with these properties will be rehearsed in this workspace.

    Raises:
        InvalidSpec: the property is neither true nor false.
    """
    requested = read(properties)
    return workspace.rehearse_on_cpu if requested is None else requested


def is_rehearsed(properties: Mapping[str, str]) -> bool:
    """Whether a stored job is rehearsed; a later change of its workspace changes nothing."""
    return properties.get(PROPERTY) == "true"


def recorded(
    properties: Mapping[str, str], tags: Mapping[str, str], rehearsed: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """A job's properties and tags as they are written down."""
    if not rehearsed:
        return dict(properties), dict(tags)
    return {**properties, PROPERTY: "true"}, {**tags, TAG: _MODE}


def notices(properties: Mapping[str, str], workspace: Workspace) -> list[str]:
    """What the user is told at the job's start; nothing for an ordinary job."""
    if not is_asked(properties, workspace):
        return []
    whom = "the job" if read(properties) else f"workspace `{workspace.name}`"
    return [_NOTICE.format(whom=whom)]


def mode(properties: Mapping[str, str]) -> str:
    """`cpu` for a rehearsed job, else empty."""
    return _MODE if is_rehearsed(properties) else ""


def gpus(properties: Mapping[str, str], processes_per_node: int, gpus_per_node: int | None) -> int:
    """How many GPUs the script of a rehearsed job sees on its node; 0 when it is not rehearsed.

    Args:
        gpus_per_node: what the compute's size has; None or 0 when it has none.
    """
    return max(processes_per_node, gpus_per_node or 0) if is_rehearsed(properties) else 0
