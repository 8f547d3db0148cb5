"""Clusters of the workspace, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource

# What a cluster's document may hold; the server answers with much more.
_DOCUMENT_KEYS = (
    "name", "type", "engine", "size", "tier", "min_instances", "max_instances",
    "idle_time_before_scale_down", "description", "tags", "torchyard",
)  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Compute(Resource):
    """A cluster of nodes.

    Args:
        size: of a node, as `STANDARD_D2_V2`; empty where a node is the machine itself.
        idle_s: how long an idle node is kept.
        cores: of a node; None without a size. So are `memory_bytes` and `gpus`.
        current_node_count: nodes that exist.
        node_states: how many nodes are `idle`, `running`, `preparing`, `unusable`, `leaving`,
            `preempted`.
        allocation_state: `Steady` or `Resizing`.
        provisioning_state: `Succeeded` or `Deleting`.
        notices: of `create` and `update`: what the server's machine lacks.
    """

    _making: ClassVar[str] = (
        """write `client.computes.create({"name": "cpu", "type": "amlcompute"})`"""
    )

    name: str
    type: str
    engine: str
    size: str
    tier: str
    min_instances: int
    max_instances: int
    idle_s: int
    description: str
    tags: Mapping[str, str]
    owner: str
    created_at: datetime
    cores: int | None
    memory_bytes: int | None
    gpus: int | None
    gpu_kind: str
    current_node_count: int
    target_node_count: int
    node_states: Mapping[str, int]
    allocation_state: str
    provisioning_state: str
    notices: tuple[str, ...]

    _shown = ("name", "size", "max_instances")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ComputeNode(Resource):
    """A node of a cluster; `job`, `owner` and `rank` are those of the job that holds it, if any."""

    name: str
    state: str
    since: datetime
    job: str
    owner: str
    rank: int | None

    _shown = ("name", "state", "job")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class WaitingJob(Resource):
    """A job that waits for nodes of a cluster, and why."""

    job: str
    owner: str
    node_count: int
    since: datetime
    reason: str

    _shown = ("job", "node_count", "reason")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class EngineMachine(Resource):
    """A machine of a cluster's engine: what it has, and who uses it."""

    name: str
    address: str
    state: str
    cpus: int
    memory_bytes: int
    gpus: int
    gpu_kind: str
    users: tuple[str, ...]
    reason: str

    _shown = ("name", "state", "users")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ComputeEngine(Resource):
    """What a cluster's engine says of it.

    Args:
        most_nodes: how many it could ever have; 0 where it does not know.
        server_urls: where its nodes look for the server.
    """

    engine: str
    version: str
    python: str
    most_nodes: int
    machines: Listing[EngineMachine]
    notices: tuple[str, ...]
    server_urls: tuple[str, ...]

    _shown = ("engine", "version", "machines")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ComputeNodes(Resource):
    """The nodes of a cluster, and the first of the jobs that wait for some; the machines of its
    engine, where that is another one than `local`.
    """

    nodes: Listing[ComputeNode]
    waiting: Listing[WaitingJob]
    waiting_count: int
    machines: Listing[EngineMachine]

    _shown = ("nodes", "waiting_count")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NodeCount(Resource):
    """How many nodes there were from `at` on, and why that changed; `machines` is how many its
    engine had, None for a local cluster, or before it was asked.
    """

    at: datetime
    current: int
    running: int
    target: int
    reason: str
    machines: int | None = None

    _shown = ("at", "current", "reason")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DayOfUse(Resource):
    """One UTC day, as `2026-01-31`: how long nodes existed, and how long jobs held them."""

    day: str
    node_hours: float
    busy_hours: float

    _shown = ("day", "node_hours", "busy_hours")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ComputeHistory(Resource):
    """What a cluster has been used for."""

    counts: Listing[NodeCount]
    usage: Listing[DayOfUse]

    _shown = ("usage",)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NodeSize(Resource):
    """A size that a node may have; `fits` is how many of them the server's machine holds."""

    name: str
    cores: int
    memory_bytes: int
    gpus: int
    gpu_kind: str
    fits: int

    _shown = ("name", "cores", "gpus", "fits")


class Computes:
    """Clusters of the workspace."""

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._workspace_path = workspace_path
        self._path = f"{workspace_path}/computes"

    def create(self, document: Mapping[str, Any]) -> Compute:
        """Create or change the cluster `document["name"]`; keys as in Azure ML's amlCompute.

        Raises:
            InvalidSpec: the document is wrong.

        Example::

            client.computes.create({"name": "cpu", "type": "amlcompute", "max_instances": 4})
        """
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("a compute needs a name", "give one with `--name`", at=("name",))
        return _compute(self._transport.put(self._compute_path(name), dict(document)))

    def update(self, name: str, changes: Mapping[str, Any]) -> Compute:
        """Change some keys of a cluster, and leave the others as they are.

        Raises:
            NotFound: the cluster does not exist.
        """
        raw = self.get(name).raw
        body = {key: raw[key] for key in _DOCUMENT_KEYS if raw.get(key) not in (None, "")}
        return _compute(self._transport.put(self._compute_path(name), {**body, **changes}))

    def list(self) -> Listing[Compute]:
        """All clusters of the workspace."""
        return Listing(_compute(row) for row in self._transport.get(self._path)["value"])

    def get(self, name: str) -> Compute:
        """One cluster.

        Raises:
            NotFound: the cluster does not exist.
        """
        return _compute(self._transport.get(self._compute_path(name)))

    def delete(self, name: str, force: bool = False) -> bool:
        """Delete a cluster; `force` cancels its jobs. Returns whether it is gone already: one
        with jobs goes with the last of them.

        Raises:
            NotFound: the cluster does not exist.
            Conflict: jobs are on it, and `force` is False.
        """
        query = {"force": "true"} if force else None
        response = self._transport.delete(self._compute_path(name), query)
        return bool((response or {}).get("gone", True))

    def nodes(self, name: str) -> ComputeNodes:
        """Its nodes with their jobs, and the jobs that wait for some, with the reason.

        Raises:
            NotFound: the cluster does not exist.
        """
        raw: Json = self._transport.get(f"{self._compute_path(name)}/nodes")
        return ComputeNodes(
            raw=raw,
            nodes=Listing(_node(row) for row in raw["value"]),
            waiting=Listing(_waiting_job(row) for row in raw["waiting"]),
            waiting_count=raw["waiting_count"],
            machines=Listing(_machine(row) for row in raw.get("machines") or []),
        )

    def engine(self, name: str) -> ComputeEngine:
        """Ask a cluster's engine whether it is there, and what it has.

        Raises:
            NotFound: the cluster does not exist.
            Conflict: it does not answer, or its nodes can't reach the server.
        """
        raw: Json = self._transport.get(f"{self._compute_path(name)}/engine")
        return ComputeEngine(
            raw=raw,
            engine=raw["engine"],
            version=read.text(raw, "version"),
            python=read.text(raw, "python"),
            most_nodes=read.integer_at(raw, "most_nodes"),
            machines=Listing(_machine(row) for row in raw["machines"]),
            notices=read.texts(raw, "notices"),
            server_urls=read.texts(raw, "server_urls"),
        )

    def history(self, name: str) -> ComputeHistory:
        """How many nodes there were, and node-hours by day.

        Raises:
            NotFound: the cluster does not exist.
        """
        raw: Json = self._transport.get(f"{self._compute_path(name)}/history")
        return ComputeHistory(
            raw=raw,
            counts=Listing(_node_count(row) for row in raw["counts"]),
            usage=Listing(
                DayOfUse(
                    raw=row,
                    day=row["day"],
                    node_hours=row["node_hours"],
                    busy_hours=row["busy_hours"],
                )
                for row in raw["usage"]
            ),
        )

    def sizes(self) -> Listing[NodeSize]:
        """Every size that a node may have."""
        response = self._transport.get(f"{self._workspace_path}/compute-sizes")
        return Listing(
            NodeSize(
                raw=row,
                name=row["name"],
                cores=row["cores"],
                memory_bytes=row["memory_bytes"],
                gpus=row["gpus"],
                gpu_kind=row["gpu_kind"],
                fits=row["fits"],
            )
            for row in response["value"]
        )

    def _compute_path(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


def _compute(raw: Json) -> Compute:
    states: Mapping[str, int] = raw.get("node_state_counts") or {}
    return Compute(
        raw=raw,
        name=raw["name"],
        type=read.text(raw, "type"),
        engine=read.text(raw, "engine"),
        size=read.text(raw, "size"),
        tier=read.text(raw, "tier"),
        min_instances=read.integer_at(raw, "min_instances"),
        max_instances=read.integer_at(raw, "max_instances"),
        idle_s=read.integer_at(raw, "idle_time_before_scale_down"),
        description=read.text(raw, "description"),
        tags=read.mapping(raw, "tags"),
        owner=read.text(raw, "owner"),
        created_at=read.moment(raw, "created_at"),
        cores=read.optional_whole(raw, "cores"),
        memory_bytes=read.optional_whole(raw, "memory_bytes"),
        gpus=read.optional_whole(raw, "gpus"),
        gpu_kind=read.text(raw, "gpu_kind"),
        current_node_count=read.integer_at(raw, "current_node_count"),
        target_node_count=read.integer_at(raw, "target_node_count"),
        node_states={key.removesuffix("_node_count"): count for key, count in states.items()},
        allocation_state=read.text(raw, "allocation_state"),
        provisioning_state=read.text(raw, "provisioning_state"),
        notices=read.texts(raw, "notices"),
    )


def _node(raw: Json) -> ComputeNode:
    return ComputeNode(
        raw=raw,
        name=raw["name"],
        state=raw["state"],
        since=read.moment(raw, "since"),
        job=read.text(raw, "job"),
        owner=read.text(raw, "owner"),
        rank=read.optional_whole(raw, "rank"),
    )


def _machine(raw: Json) -> EngineMachine:
    return EngineMachine(
        raw=raw,
        name=raw["name"],
        address=read.text(raw, "address"),
        state=read.text(raw, "state"),
        cpus=read.integer_at(raw, "cpus"),
        memory_bytes=read.integer_at(raw, "memory_bytes"),
        gpus=read.integer_at(raw, "gpus"),
        gpu_kind=read.text(raw, "gpu_kind"),
        users=read.texts(raw, "users"),
        reason=read.text(raw, "reason"),
    )


def _waiting_job(raw: Json) -> WaitingJob:
    return WaitingJob(
        raw=raw,
        job=raw["job"],
        owner=raw["owner"],
        node_count=raw["node_count"],
        since=read.moment(raw, "since"),
        reason=read.text(raw, "why"),
    )


def _node_count(raw: Json) -> NodeCount:
    return NodeCount(
        raw=raw,
        at=read.moment(raw, "at"),
        current=raw["current"],
        running=raw["running"],
        target=raw["target"],
        reason=raw["reason"],
        machines=raw.get("machines"),
    )
