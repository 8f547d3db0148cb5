"""HTTP: clusters with the jobs on them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fastapi import APIRouter
from typing_extensions import TypedDict

from torchyard.base.clock import from_text, to_text
from torchyard.base.errors import InvalidInput
from torchyard.compute import actions as computes
from torchyard.compute.machine_routes import HeadsOf
from torchyard.executors.executor import EngineNode
from torchyard.jobs.scheduling import clusters, node_hours
from torchyard.jobs.scheduling.clusters import ClusterNode, WaitingJob
from torchyard.jobs.scheduling.node_hours import PersonHours
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_PERIOD = timedelta(days=30)

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/computes/{name}",
    tags=["compute"],
    route_class=GuardedRoute,
)


class ClusterNodes(TypedDict):
    value: list[ClusterNode]
    waiting: list[WaitingJob]
    waiting_count: int
    machines: list[EngineNode]


class PeopleHours(TypedDict):
    since: str
    until: str
    value: list[PersonHours]


class Engine(TypedDict):
    engine: str
    version: str
    python: str
    most_nodes: int
    notices: tuple[str, ...]
    server_urls: list[str]
    machines: tuple[EngineNode, ...]


@router.get("/nodes")
@needs(Permission.READ)
def nodes(services: ServicesOf, workspace: str, name: str) -> ClusterNodes:
    waiting, count = clusters.waiting_at(services, workspace, name)
    return {
        "value": clusters.nodes(services.db, workspace, name),
        "waiting": waiting,
        "waiting_count": count,
        "machines": clusters.machines(services, workspace, name),
    }


@router.get("/people")
@needs(Permission.READ)
def people(
    services: ServicesOf, workspace: str, name: str, since: str = "", until: str = ""
) -> PeopleHours:
    """Node-hours by person; of the last 30 days unless a period is given."""
    end = _moment("until", until) or services.clock.now()
    start = _moment("since", since) or end - _PERIOD
    hours = node_hours.by_person(services, workspace, name, start, end)
    return {"since": to_text(start), "until": to_text(end), "value": hours}


@router.get("/engine")
@needs(Permission.READ)
def engine(services: ServicesOf, workspace: str, name: str) -> Engine:
    view = clusters.engine_view(services, workspace, name)
    cluster = view.cluster
    return {
        "engine": cluster.engine,
        "version": cluster.version,
        "python": cluster.python,
        "most_nodes": cluster.most_nodes,
        "notices": cluster.notices,
        "server_urls": view.server_urls,
        "machines": cluster.nodes,
    }


def _moment(name: str, text: str) -> datetime | None:
    if not text:
        return None
    try:
        return from_text(text)
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"`{name}` is not a time: `{text[:80]}`", "write it as 2026-01-31T12:00:00Z", at=[name]
        ) from error


@router.delete("")
@needs(Permission.COMPUTE)
def delete(
    services: ServicesOf,
    heads: HeadsOf,
    workspace: str,
    name: str,
    identity: Person,
    force: bool = False,
) -> dict[str, Any]:
    is_removed = clusters.delete(services, workspace, name, identity.user, force=force)
    if is_removed:
        heads.keep(lambda: computes.ray_heads(services.db))
    return {"gone": is_removed}
