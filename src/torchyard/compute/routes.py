"""HTTP: clusters and sizes. Deleting one, and what runs on it, is in
jobs/http/cluster_routes.py."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends
from typing_extensions import TypedDict

from torchyard.base import fields
from torchyard.base.clock import to_text
from torchyard.base.db import Database
from torchyard.base.dependencies import ClockOf, DatabaseOf, HomeOf, from_state
from torchyard.compute import actions, promises, sizes
from torchyard.compute.sizes import Size
from torchyard.compute.types import Compute, NodeHours, Use
from torchyard.executors.engines import Engines
from torchyard.executors.machine import Machine
from torchyard.workspaces import people
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_STATES = ("idle", "running", "preparing", "unusable", "leaving", "preempted")

EnginesOf = Annotated[Engines, Depends(from_state("engines"))]
JobsAsServerUserOf = Annotated[bool, Depends(from_state("jobs_as_server_user"))]
MachineOf = Annotated[Machine, Depends(from_state("devices"))]

router = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["compute"], route_class=GuardedRoute)


class NodeCount(TypedDict):
    at: str
    current: int
    running: int
    target: int
    reason: str
    machines: int | None


class ClusterHistory(TypedDict):
    counts: list[NodeCount]
    usage: list[NodeHours]


@router.get("/computes")
@needs(Permission.READ)
def list_computes(db: DatabaseOf, workspace: str) -> dict[str, Any]:
    return {"value": [to_json(*both) for both in actions.list_in(db, workspace)]}


@router.get("/computes/{name}")
@needs(Permission.READ)
def show(db: DatabaseOf, workspace: str, name: str) -> dict[str, Any]:
    return _with_use(db, actions.get(db, workspace, name))


@router.put("/computes/{name}")
@needs(Permission.COMPUTE)
def create(
    db: DatabaseOf,
    clock: ClockOf,
    home: HomeOf,
    machine: MachineOf,
    engines: EnginesOf,
    jobs_as_server_user: JobsAsServerUserOf,
    workspace: str,
    name: str,
    identity: Person,
    document: Annotated[Any, Body()],
) -> dict[str, Any]:
    compute_document = fields.with_path_name(
        fields.mapping(document, "the compute's document"), name
    )
    compute = actions.create(
        db,
        clock,
        workspace,
        compute_document,
        home=home,
        owner=identity.user,
        engines=engines.names,
        describe=engines.describe,
        may_name_files=people.administers(db, identity),
        has_runner=not jobs_as_server_user,
    )
    return {**_with_use(db, compute), "notices": promises.notices(compute, machine)}


@router.get("/computes/{name}/history")
@needs(Permission.READ)
def history(db: DatabaseOf, clock: ClockOf, workspace: str, name: str) -> ClusterHistory:
    compute = actions.get(db, workspace, name)
    counts: list[NodeCount] = [
        {
            "at": to_text(sample.at),
            "current": sample.current,
            "running": sample.running,
            "target": sample.target,
            "reason": sample.reason,
            "machines": sample.machines,
        }
        for sample in actions.samples(db, compute)
    ]
    return {"counts": counts, "usage": actions.usage(db, clock, compute)}


@router.get("/compute-sizes")
@needs(Permission.READ)
def list_sizes(home: HomeOf, machine: MachineOf, workspace: str) -> dict[str, Any]:
    return {
        "value": [
            _size(size, promises.fits(size, machine)) for size in sizes.all_sizes(home).values()
        ],
        "machine": {
            "cores": machine.cores,
            "memory_bytes": machine.memory_bytes,
            "gpus": machine.most_together(),
            "gpu_kind": ", ".join(dict.fromkeys(gpu.name for gpu in machine.whole_devices)),
        },
    }


def _size(size: Size, fits: int) -> dict[str, Any]:
    return {
        "name": size.name,
        "cores": size.cores,
        "memory_bytes": size.memory_bytes,
        "gpus": size.gpus,
        "gpu_kind": size.gpu_kind,
        "own": size.custom,
        "fits": fits,
    }


def _with_use(db: Database, compute: Compute) -> dict[str, Any]:
    return to_json(compute, actions.use(db, compute))


def to_json(compute: Compute, use: Use) -> dict[str, Any]:
    """Azure ML's names for its states and counts, ours for the rest."""
    body = dict(vars(compute))
    settings = body.pop("engine_settings") or {}
    if settings:
        body["torchyard"] = {"engine": compute.engine, **settings}
    return {
        **body,
        "created_at": to_text(compute.created_at),
        "tags": compute.tags or {},
        "allocation_state": "Steady" if use.current == use.target else "Resizing",
        "current_node_count": use.current,
        "target_node_count": use.target,
        "node_state_counts": {f"{state}_node_count": use.counts[state] for state in _STATES},
        "scale_settings": {
            "min_node_count": compute.min_instances,
            "max_node_count": compute.max_instances,
            "node_idle_time_before_scale_down": f"PT{compute.idle_time_before_scale_down}S",
        },
        "errors": [],
    }
