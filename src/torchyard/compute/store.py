"""The tables of clusters: documents, nodes, who holds them, counts over time, use by day."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from torchyard.base.db import Instant, metadata
from torchyard.compute import machine_store
from torchyard.compute.types import DELETING, Compute, Node, Sample

Id = BigInteger().with_variant(Integer, "sqlite")

computes = Table(
    "computes",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("type", String(32), nullable=False),
    Column("size", String(64), nullable=False),
    Column("tier", String(16), nullable=False),
    Column("min_instances", Integer, nullable=False),
    Column("max_instances", Integer, nullable=False),
    Column("idle_time_before_scale_down", Integer, nullable=False),
    Column("description", Text, nullable=False),
    Column("tags", JSON),
    Column("created_at", Instant, nullable=False),
    Column("engine", String(16), nullable=False, server_default="local"),
    Column("cores", Integer),
    Column("memory_bytes", BigInteger),
    Column("gpus", Integer),
    Column("gpu_kind", String(64), nullable=False, server_default=""),
    Column("owner", String(128), nullable=False, server_default=""),
    Column("provisioning_state", String(16), nullable=False, server_default="Succeeded"),
    Column("engine_settings", JSON),
)

# A node that exists; it is held while `node_slots` has a row of its number, and idle otherwise.
cluster_nodes = Table(
    "cluster_nodes",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("compute", String(64), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("made_at", Instant, nullable=False),
    Column("since", Instant, nullable=False),
    Column("preempted", Boolean, nullable=False),
)

node_slots = Table(
    "node_slots",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("compute", String(64), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("attempt_id", String(64), nullable=False, index=True),
    Column("node", Integer, nullable=False),
    UniqueConstraint("attempt_id", "node"),
)

cluster_counts = Table(
    "cluster_counts",
    metadata,
    Column("id", Id, primary_key=True),
    Column("workspace", String(64), nullable=False),
    Column("compute", String(64), nullable=False),
    Column("at", Instant, nullable=False),
    Column("current", Integer, nullable=False),
    Column("running", Integer, nullable=False),
    Column("target", Integer, nullable=False),
    Column("reason", Text, nullable=False),
    Column("machines", Integer),
    Index(None, "workspace", "compute", "id"),
)

cluster_usage = Table(
    "cluster_usage",
    metadata,
    Column("workspace", String(64), primary_key=True),
    Column("compute", String(64), primary_key=True),
    Column("day", String(10), primary_key=True),
    Column("node_seconds", Double, nullable=False),
    Column("busy_seconds", Double, nullable=False),
)

_HELD = and_(
    node_slots.c.workspace == cluster_nodes.c.workspace,
    node_slots.c.compute == cluster_nodes.c.compute,
    node_slots.c.number == cluster_nodes.c.number,
)


def put(connection: Connection, compute: Compute) -> None:
    """Insert or replace a cluster; its owner and creation time stay."""
    values = dict(vars(compute))
    key = (computes.c.workspace == compute.workspace) & (computes.c.name == compute.name)
    if connection.execute(select(computes.c.name).where(key)).first() is None:
        connection.execute(insert(computes).values(values))
        return
    values.pop("created_at")
    values.pop("owner")
    connection.execute(update(computes).where(key).values(values))


# Needed for every job that starts, or in every round: built once.
_EVERYWHERE = select(computes).order_by(computes.c.workspace, computes.c.name)
_SCALING = _EVERYWHERE.where(
    or_(
        computes.c.min_instances > 0,
        computes.c.provisioning_state == DELETING,
        select(cluster_nodes.c.number)
        .select_from(cluster_nodes.outerjoin(node_slots, _HELD))
        .where(
            cluster_nodes.c.workspace == computes.c.workspace,
            cluster_nodes.c.compute == computes.c.name,
            node_slots.c.attempt_id.is_(None),
        )
        .exists(),
    )
)
_CLUSTER = select(computes).where(
    computes.c.workspace == bindparam("place"), computes.c.name == bindparam("called")
)
# One row for the idle nodes and one for the held: a row each would take longer to fetch.
_NUMBERS = (
    select(
        node_slots.c.attempt_id.is_(None),
        func.aggregate_strings(cast(cluster_nodes.c.number, String), ","),
    )
    .select_from(cluster_nodes.outerjoin(node_slots, _HELD))
    .where(
        cluster_nodes.c.workspace == bindparam("place"),
        cluster_nodes.c.compute == bindparam("called"),
    )
    .group_by(node_slots.c.attempt_id.is_(None))
)
_MAKE, _HOLD, _ADD_SAMPLE = insert(cluster_nodes), insert(node_slots), insert(cluster_counts)


def get(connection: Connection, workspace: str, name: str) -> Compute | None:
    row = connection.execute(_CLUSTER, {"place": workspace, "called": name}).one_or_none()
    return None if row is None else Compute(**row._mapping)


def list_in(connection: Connection, workspace: str) -> list[Compute]:
    rows = connection.execute(
        select(computes).where(computes.c.workspace == workspace).order_by(computes.c.name)
    )
    return [Compute(**row._mapping) for row in rows]


def everywhere(connection: Connection) -> list[Compute]:
    return [Compute(**row._mapping) for row in connection.execute(_EVERYWHERE)]


def scaling(connection: Connection) -> list[Compute]:
    """Clusters that may need resizing: with a minimum, idle nodes, or being deleted."""
    return [Compute(**row._mapping) for row in connection.execute(_SCALING)]


def drop(connection: Connection, workspace: str, name: str) -> None:
    """Delete a cluster, its nodes and the machines that joined it; its use by day stays."""
    machine_store.forget_all(connection, workspace, name)
    connection.execute(
        delete(computes).where(computes.c.workspace == workspace, computes.c.name == name)
    )
    for table in (cluster_nodes, cluster_counts):
        connection.execute(
            delete(table).where(table.c.workspace == workspace, table.c.compute == name)
        )


def forget_use(connection: Connection, workspace: str) -> None:
    connection.execute(delete(cluster_usage).where(cluster_usage.c.workspace == workspace))


def numbers(connection: Connection, workspace: str, name: str) -> tuple[list[int], list[int]]:
    """The idle nodes and the held ones, lowest first."""
    rows = connection.execute(_NUMBERS, {"place": workspace, "called": name})
    texts = {bool(is_idle): text for is_idle, text in rows}
    idle, busy = (
        sorted(map(int, texts[key].split(","))) if key in texts else [] for key in (True, False)
    )
    return idle, busy


def nodes_in(connection: Connection, workspace: str, name: str = "") -> dict[str, list[Node]]:
    """The nodes that exist, by cluster, lowest first; of all clusters if `name` is empty."""
    query = (
        select(cluster_nodes, node_slots.c.attempt_id)
        .select_from(cluster_nodes.outerjoin(node_slots, _HELD))
        .where(cluster_nodes.c.workspace == workspace)
        .order_by(cluster_nodes.c.number)
    )
    if name:
        query = query.where(cluster_nodes.c.compute == name)
    by_cluster: dict[str, list[Node]] = defaultdict(list)
    for row in connection.execute(query):
        node = Node(row.number, row.made_at, row.since, row.attempt_id or "", row.preempted)
        by_cluster[row.compute].append(node)
    return by_cluster


def make(
    connection: Connection, workspace: str, name: str, numbers: Collection[int], now: datetime
) -> None:
    """Insert new nodes."""
    if numbers:
        row = {"workspace": workspace, "compute": name, "made_at": now, "since": now}
        rows = [{**row, "number": number, "preempted": False} for number in numbers]
        connection.execute(_MAKE, rows)


def mark(
    connection: Connection, workspace: str, name: str, numbers: Collection[int], **values: Any
) -> None:
    """Update `since` or `preempted` of some nodes."""
    if numbers:
        these = _these(workspace, name, numbers)
        connection.execute(update(cluster_nodes).where(these).values(values))


def unmake(connection: Connection, workspace: str, name: str, numbers: Collection[int]) -> None:
    if numbers:
        connection.execute(delete(cluster_nodes).where(_these(workspace, name, numbers)))


def hold(
    connection: Connection, workspace: str, name: str, numbers: Sequence[int], attempt_id: str
) -> None:
    rows = [
        {
            "workspace": workspace,
            "compute": name,
            "number": number,
            "attempt_id": attempt_id,
            "node": node,
        }
        for node, number in enumerate(numbers)
    ]
    connection.execute(_HOLD, rows)


_HELD_BY = (
    select(cluster_nodes)
    .join_from(cluster_nodes, node_slots, _HELD)
    .where(node_slots.c.attempt_id == bindparam("attempt"))
    .order_by(node_slots.c.node)
)


class HeldNodes(NamedTuple):
    """What an attempt holds of a cluster: by number, since when a node exists and is held."""

    workspace: str
    compute: str
    nodes: dict[int, tuple[datetime, datetime]]


def held_by(connection: Connection, attempt_id: str) -> HeldNodes | None:
    """None if it holds nothing."""
    rows = connection.execute(_HELD_BY, {"attempt": attempt_id}).all()
    if not rows:
        return None
    nodes = {row.number: (row.made_at, row.since) for row in rows}
    return HeldNodes(rows[0].workspace, rows[0].compute, nodes)


def slots_of(connection: Connection, attempt_id: str) -> list[int]:
    """By node."""
    rows = connection.execute(
        select(node_slots.c.number)
        .where(node_slots.c.attempt_id == attempt_id)
        .order_by(node_slots.c.node)
    )
    return [row.number for row in rows]


_RELEASE = delete(node_slots).where(node_slots.c.attempt_id == bindparam("attempt"))


def release(connection: Connection, attempt_id: str) -> None:
    connection.execute(_RELEASE, {"attempt": attempt_id})


def add_sample(connection: Connection, workspace: str, name: str, sample: Sample) -> None:
    values = {"workspace": workspace, "compute": name, **vars(sample)}
    connection.execute(_ADD_SAMPLE, values)


def samples(connection: Connection, workspace: str, name: str, limit: int) -> list[Sample]:
    """The latest samples, oldest first."""
    rows = connection.execute(
        select(cluster_counts)
        .where(cluster_counts.c.workspace == workspace, cluster_counts.c.compute == name)
        .order_by(cluster_counts.c.id.desc())
        .limit(limit)
    ).all()
    return [
        Sample(r.at, r.current, r.running, r.target, r.reason, r.machines) for r in reversed(rows)
    ]


def last_machines(connection: Connection, workspace: str, name: str) -> int | None:
    """The latest number of the engine's machines; None before there was one."""
    latest = samples(connection, workspace, name, 1)
    return latest[0].machines if latest else None


def forget_samples(connection: Connection, before: datetime) -> None:
    connection.execute(delete(cluster_counts).where(cluster_counts.c.at < before))


def add_use(
    connection: Connection,
    workspace: str,
    name: str,
    seconds_by_day: Mapping[str, tuple[float, float]],
) -> None:
    """Add node-seconds and busy seconds to days."""
    for day, (node_seconds, busy_seconds) in seconds_by_day.items():
        key = (
            cluster_usage.c.workspace == workspace,
            cluster_usage.c.compute == name,
            cluster_usage.c.day == day,
        )
        more = {
            "node_seconds": cluster_usage.c.node_seconds + node_seconds,
            "busy_seconds": cluster_usage.c.busy_seconds + busy_seconds,
        }
        if not connection.execute(update(cluster_usage).where(*key).values(more)).rowcount:
            row = {"workspace": workspace, "compute": name, "day": day}
            seconds = {"node_seconds": node_seconds, "busy_seconds": busy_seconds}
            connection.execute(insert(cluster_usage).values({**row, **seconds}))


def use_by_day(connection: Connection, workspace: str, name: str) -> dict[str, tuple[float, float]]:
    rows = connection.execute(
        select(cluster_usage)
        .where(cluster_usage.c.workspace == workspace, cluster_usage.c.compute == name)
        .order_by(cluster_usage.c.day)
    )
    return {row.day: (row.node_seconds, row.busy_seconds) for row in rows}


_COUNT_HELD, _COUNT_THERE = (
    select(func.count())
    .select_from(table)
    .where(table.c.workspace == bindparam("place"), table.c.compute == bindparam("called"))
    for table in (node_slots, cluster_nodes)
)


def count_held(connection: Connection, workspace: str, name: str) -> int:
    cluster = {"place": workspace, "called": name}
    return int(connection.execute(_COUNT_HELD, cluster).scalar_one())


def count_in(connection: Connection, workspace: str, name: str) -> tuple[int, int]:
    """How many nodes a cluster has, and how many of them are held."""
    cluster = {"place": workspace, "called": name}
    there = connection.execute(_COUNT_THERE, cluster).scalar_one()
    return int(there), count_held(connection, workspace, name)


def count_nodes(connection: Connection) -> tuple[int, int, int]:
    """(held, existing, allowed at most) nodes of all clusters of all workspaces."""
    busy = connection.execute(select(func.count()).select_from(node_slots)).scalar_one()
    there = connection.execute(select(func.count()).select_from(cluster_nodes)).scalar_one()
    maximum = connection.execute(
        select(func.coalesce(func.sum(computes.c.max_instances), 0))
    ).scalar_one()
    return busy, there, int(maximum)


def _these(workspace: str, name: str, numbers: Collection[int]) -> Any:
    return and_(
        cluster_nodes.c.workspace == workspace,
        cluster_nodes.c.compute == name,
        cluster_nodes.c.number.in_(numbers),
    )
