"""What can be done with clusters.

Owns: creating, changing, listing and deleting clusters; what this package offers to others.
Leaves: a document's grammar to documents.py, nodes to nodes.py, which job gets them to jobs/.
Always: a cluster that is being deleted takes no job, and is removed with its last node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidSpec, NotFound, did_you_mean
from torchyard.compute import (
    accounts,
    documents,
    engine_settings,
    nodes,
    scaling,
    server_files,
    sizes,
    store,
)
from torchyard.compute.nodes import Holding as Holding
from torchyard.compute.types import DELETING, LOCAL, Compute, Node, NodeHours, Sample, Use
from torchyard.executors.executor import EngineRefused, EngineUnreachable
from torchyard.shared.plurals import plural

_STATES = ("idle", "running", "preparing", "unusable", "leaving", "preempted")
_MOST_SAMPLES = 1000


def ensure_local(db: Database, clock: Clock, workspace: str) -> None:
    """Create the default cluster if needed: four nodes on the server's machine."""
    with db.write() as connection:
        if store.get(connection, workspace, LOCAL) is None:
            compute = Compute(LOCAL, workspace, clock.now(), description="this machine")
            store.put(connection, compute)


def create(
    db: Database,
    clock: Clock,
    workspace: str,
    document: Mapping[str, Any],
    *,
    home: Path | None = None,
    owner: str = "",
    engines: Collection[str] = (LOCAL,),
    describe: Callable[[str, Mapping[str, Any]], object] | None = None,
    may_name_files: bool = False,
    has_runner: bool = False,
) -> Compute:
    """Create or update a cluster from its YAML document, with its minimum of nodes.

    One that exists keeps its engine and the engine's settings unless the document names an engine.

    Args:
        home: the folder that has `sizes.yml`.
        engines: those that this server runs.
        describe: asks an engine what it says of a cluster with these settings.
        may_name_files, has_runner: see server_files.py.

    Raises:
        Forbidden: it names files of the server's machine, or an address.
        InvalidSpec: a key is unknown, or a value is wrong, or its engine refuses the settings.
        Conflict: it is being deleted, or jobs run on nodes of another size.
    """
    now = clock.now()
    available_sizes = sizes.all_sizes(home)
    with db.read() as connection:
        existing = store.get(connection, workspace, str(document.get("name")))
    if existing is not None:
        settings = existing.engine_settings or {}
        document = engine_settings.with_engine(document, existing.engine, settings)
    new_compute = documents.read(document, workspace, now, available_sizes, engines)
    new_compute = replace(new_compute, owner=owner)
    server_files.check(new_compute, existing, may_name_files, has_runner)
    if describe is not None and not new_compute.is_local:
        _is_accepted(new_compute, describe)
    with db.write() as connection:
        _check_spill_over(connection, new_compute)
        before = store.get(connection, workspace, new_compute.name)
        if before is not None:
            _can_become(connection, before, new_compute, now)
        store.put(connection, new_compute)
        existing = store.get(connection, workspace, new_compute.name)
        assert existing is not None
        scaling.settle(connection, existing, now)
    return existing


def _check_spill_over(connection: Connection, new_compute: Compute) -> None:
    target = new_compute.settings.get("spill_over")
    if target is None or store.get(connection, new_compute.workspace, target) is not None:
        return
    names = [compute.name for compute in store.list_in(connection, new_compute.workspace)]
    raise InvalidSpec(
        f"`spill_over` names compute `{target}`, which does not exist in workspace "
        f"`{new_compute.workspace}`",
        did_you_mean(target, names, "list what exists with `yard compute list`"),
        at=("torchyard", "spill_over"),
    )


def _is_accepted(compute: Compute, describe: Callable[[str, Mapping[str, Any]], object]) -> None:
    """Ask the engine; one that does not answer now refuses nothing."""
    try:
        describe(compute.engine, compute.settings)
    except EngineRefused as refusal:
        raise InvalidSpec(refusal.message, refusal.hint, at=("torchyard",)) from refusal
    except EngineUnreachable:
        pass


def _can_become(connection: Connection, before: Compute, after: Compute, now: datetime) -> None:
    if before.deleting:
        raise Conflict(
            f"compute `{before.name}` is being deleted",
            "wait until `yard compute list` no longer shows it, or choose another name",
        )
    if (before.size.lower(), before.engine) == (after.size.lower(), after.engine):
        return
    idle, busy = store.numbers(connection, before.workspace, before.name)
    if busy and before.engine != after.engine:
        raise Conflict(
            f"jobs hold {len(busy)} nodes of `{before.name}`, which `{before.engine}` runs",
            "change the engine when they have ended, or create another cluster",
            at=("torchyard", "engine"),
        )
    if busy:
        raise Conflict(
            f"jobs hold {len(busy)} nodes of `{before.name}`, which are of size "
            f"`{before.size or 'this machine'}`",
            "change the size when they have ended, or create another cluster",
            at=("size",),
        )
    scaling.retire(connection, before, idle, now)


def get(db: Database, workspace: str, name: str) -> Compute:
    """
    Raises:
        NotFound: with the nearest name there is.
    """
    with db.read() as connection:
        compute_row = store.get(connection, workspace, name)
        if compute_row is not None:
            return compute_row
        names = [compute.name for compute in store.list_in(connection, workspace)]
    raise NotFound(
        f"compute `{name}` does not exist in workspace `{workspace}`",
        did_you_mean(name, names, "list what exists with `yard compute list`"),
        code="compute_not_found",
    )


def find(connection: Connection, workspace: str, name: str) -> Compute | None:
    """The cluster or None, in the caller's transaction."""
    return store.get(connection, workspace, name)


def list_in(db: Database, workspace: str) -> list[tuple[Compute, Use]]:
    """Every cluster of a workspace, with its use."""
    with db.read() as connection:
        there = store.nodes_in(connection, workspace)
        return [
            (compute, _use(compute, there.get(compute.name, [])))
            for compute in store.list_in(connection, workspace)
        ]


def use(db: Database, compute: Compute) -> Use:
    return _use(compute, nodes_of(db, compute))


def nodes_of(db: Database, compute: Compute) -> list[Node]:
    """The nodes that exist, lowest number first."""
    with db.read() as connection:
        return store.nodes_in(connection, compute.workspace, compute.name)[compute.name]


def samples(db: Database, compute: Compute, limit: int = _MOST_SAMPLES) -> list[Sample]:
    """The number of nodes at each change of the last 30 days; oldest first."""
    with db.read() as connection:
        return store.samples(connection, compute.workspace, compute.name, limit)


def usage(db: Database, clock: Clock, compute: Compute) -> list[NodeHours]:
    """Its node-hours, by day."""
    with db.read() as connection:
        return accounts.usage(connection, compute, clock.now())


def _use(compute: Compute, there: list[Node]) -> Use:
    counts = dict.fromkeys(_STATES, 0)
    for node in there:
        counts[node.state(compute.max_instances)] += 1
    return Use(counts, scaling.target(compute, len(there)))


def delete(
    db: Database,
    clock: Clock,
    workspace: str,
    name: str,
    *,
    force: bool = False,
    check: Callable[[Connection], None] = lambda connection: None,
) -> bool:
    """Delete a cluster; with `force`, once jobs that hold its nodes have ended.

    Returns whether it is deleted already. The caller cancels those jobs.

    Args:
        check: called in the same transaction before anything is deleted; if it raises, the
            cluster stays.

    Raises:
        NotFound: no such cluster.
        Conflict: jobs hold its nodes, or it is the built-in one.
    """
    get(db, workspace, name)
    if name == LOCAL:
        raise Conflict(
            "compute `local` is built in and can't be deleted",
            "it uses nothing while no job runs; change it with `yard compute update -n local`",
        )
    with db.write() as connection:
        compute = store.get(connection, workspace, name)
        if compute is None:
            return True
        check(connection)
        busy = store.count_held(connection, workspace, name)
        if busy and not force:
            raise Conflict(
                f"jobs hold {busy} {plural('node', busy)} of compute `{name}`",
                "wait for them, or cancel them with `--force`",
                code="compute_busy",
            )
        deleting = replace(compute, provisioning_state=DELETING)
        store.put(connection, deleting)
        scaling.settle(connection, deleting, clock.now())
        return store.get(connection, workspace, name) is None


def forget_all(connection: Connection, workspace: str) -> None:
    """Delete every cluster of a deleted workspace, the built-in one too."""
    for compute in store.list_in(connection, workspace):
        store.drop(connection, workspace, compute.name)
    store.forget_use(connection, workspace)


def available_nodes(connection: Connection, workspace: str, name: str) -> int:
    """How many nodes could be held now: idle ones, and those not yet made."""
    return nodes.available_nodes(connection, workspace, name)


def slots_of(connection: Connection, attempt_id: str) -> list[int]:
    """The numbers of the nodes that an attempt holds, in the attempt's order."""
    return store.slots_of(connection, attempt_id)


def release(connection: Connection, attempt_id: str, now: datetime) -> None:
    """Give back every node of some attempts."""
    nodes.release(connection, attempt_id, now)


def preempt(connection: Connection, attempt_id: str) -> None:
    """Mark the nodes of an attempt that another job preempts."""
    nodes.preempt(connection, attempt_id)


def per_node(connection: Connection, workspace: str, name: str) -> tuple[int, int]:
    """(cores, GPUs) that quotas count for one node of a cluster; 0 where unknown."""
    compute = store.get(connection, workspace, name)
    return (0, 0) if compute is None else (compute.cores or 0, compute.gpus or 0)


def in_use(db: Database) -> tuple[int, int]:
    """(cores, GPUs) that jobs hold now in all workspaces, on clusters with a size."""
    cores = gpus = 0
    with db.read() as connection:
        for compute in store.everywhere(connection):
            busy = store.count_held(connection, compute.workspace, compute.name)
            cores += busy * (compute.cores or 0)
            gpus += busy * (compute.gpus or 0)
    return cores, gpus


@dataclass(frozen=True)
class NodeCount:
    """Nodes of all clusters; `maximum` is how many there may be."""

    held: int
    idle: int
    maximum: int


def count_nodes(db: Database) -> NodeCount:
    with db.read() as connection:
        busy, existing, maximum = store.count_nodes(connection)
    return NodeCount(busy, max(0, existing - busy), maximum)


def ray_heads(db: Database) -> set[str]:
    """The names of the heads that clusters have torchyard start; see `Compute.settings`."""
    with db.read() as connection:
        every = store.everywhere(connection)
    return {str(compute.settings["head"]) for compute in every if "head" in compute.settings}


def clusters(connection: Connection) -> list[Compute]:
    """Every cluster of every workspace: they share the machine."""
    return store.everywhere(connection)
