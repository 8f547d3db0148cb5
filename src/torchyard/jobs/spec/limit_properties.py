"""The limits of a job, by its properties and its workspace's settings.

Owns: reading `torchyard.max_*`, `torchyard.disk_quota_mb` and `torchyard.network`; who wins.
Leaves: holding them to the worker; cores and memory, which come from the compute's size.
Always: a job gets at most what its workspace allows; one that asks for more is refused at its
submission, and told what it may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchyard.base.errors import InvalidSpec, did_you_mean
from torchyard.jobs.spec import own_properties
from torchyard.shared.plan import NONE, OPEN, WORKSPACE_ONLY, LimitsPlan
from torchyard.workspaces.types import NETWORKS, Workspace

PROCESSES = "torchyard.max_processes"
OPEN_FILES = "torchyard.max_open_files"
DISK = "torchyard.disk_quota_mb"
NETWORK = "torchyard.network"
DEFAULT_PROCESSES = 4096
"""Processes and threads for each rank; a hundred data loaders have fewer."""
_LEAST_PROCESSES, _MOST_PROCESSES = 64, 4_194_304
_LEAST_FILES, _MOST_FILES = 64, 1 << 30
_MOST_MB = 1 << 30
_MIB = 1 << 20


@dataclass(frozen=True)
class Requested:
    """What a job's own properties say; 0 and empty where they say nothing."""

    processes: int = 0
    open_files: int = 0
    disk_mb: int = 0
    network: str = ""


def read(properties: Mapping[str, str]) -> Requested:
    """
    Raises:
        InvalidSpec: a value is not understood, or out of range.
    """
    return Requested(
        _count(properties, PROCESSES, _LEAST_PROCESSES, _MOST_PROCESSES),
        _count(properties, OPEN_FILES, _LEAST_FILES, _MOST_FILES),
        _count(properties, DISK, 1, _MOST_MB),
        _network(properties),
    )


def check(
    properties: Mapping[str, str], workspace: Workspace, node_count: int, distribution: str
) -> None:
    """
    Raises:
        InvalidSpec: the job asks for more than its workspace allows, or for a network that its
            nodes can't do with.
    """
    requested = read(properties)
    name = workspace.name
    for key, amount, maximum in (
        (PROCESSES, requested.processes, workspace.max_processes),
        (DISK, requested.disk_mb, workspace.disk_quota_mb),
    ):
        if amount and maximum and amount > maximum:
            raise InvalidSpec(
                f"`{key}` is {amount}; workspace `{name}` allows {maximum}",
                f"ask for at most {maximum}, or ask an owner of the workspace to raise it",
                code="limit_exceeded",
                at=("properties", key),
            )
    if requested.network and _stricter(requested.network, workspace.network) != requested.network:
        raise InvalidSpec(
            f"`{NETWORK}` is `{requested.network}`; workspace `{name}` allows "
            f"`{workspace.network}`",
            "leave it out, or ask an owner of the workspace to change its setting `network`",
            code="limit_exceeded",
            at=("properties", NETWORK),
        )
    _check_network(
        _stricter(requested.network or OPEN, workspace.network), node_count, distribution
    )


def recorded(properties: Mapping[str, str], workspace: Workspace) -> dict[str, str]:
    """A job's properties as they are written down: with a network that its workspace chose."""
    network = _stricter(properties.get(NETWORK) or OPEN, workspace.network)
    return dict(properties) if network == OPEN else {**properties, NETWORK: network}


def notices(properties: Mapping[str, str], workspace: Workspace) -> list[str]:
    """What the user is told of a network that the workspace chose."""
    if workspace.network == OPEN or properties.get(NETWORK):
        return []
    return [f"workspace `{workspace.name}` sets `{NETWORK}` to `{workspace.network}`"]


def plan(
    properties: Mapping[str, str], workspace: Workspace, processes_per_node: int
) -> LimitsPlan:
    """The limits of each node of a job; as strict as its workspace is now."""
    requested = read(properties)
    processes = requested.processes or workspace.max_processes
    return LimitsPlan(
        _least(processes or DEFAULT_PROCESSES * processes_per_node, workspace.max_processes),
        requested.open_files,
        _least(requested.disk_mb or workspace.disk_quota_mb, workspace.disk_quota_mb) * _MIB,
        _stricter(requested.network or OPEN, workspace.network),
    )


def _check_network(network: str, node_count: int, distribution: str) -> None:
    at = ("properties", NETWORK)
    if network == NONE and node_count > 1:
        raise InvalidSpec(
            f"a job of {node_count} nodes can't have `{NETWORK}: {NONE}`: its nodes would not find "
            "each other",
            f"use `{WORKSPACE_ONLY}`, which connects them, or one node",
            code="network_unavailable",
            at=at,
        )
    if network != OPEN and distribution == "mpi":
        raise InvalidSpec(
            f"a job of type mpi can't have `{NETWORK}: {network}`: mpirun starts outside of it",
            "use `distribution: {type: pytorch}`",
            code="network_unavailable",
            at=at,
        )


def _network(properties: Mapping[str, str]) -> str:
    written = properties.get(NETWORK, "")
    if written and written not in NETWORKS:
        raise InvalidSpec(
            f"`{NETWORK}` is `{written[:50]}`",
            did_you_mean(written, NETWORKS),
            at=("properties", NETWORK),
        )
    return written


def _count(properties: Mapping[str, str], key: str, least: int, maximum: int) -> int:
    return own_properties.count(properties, key, least, least, maximum) if key in properties else 0


def _least(requested: int, maximum: int) -> int:
    return min(requested, maximum) if maximum else requested


def _stricter(first: str, second: str) -> str:
    return max(first, second, key=NETWORKS.index)
