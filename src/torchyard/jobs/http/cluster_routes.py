"""HTTP: clusters with the jobs on them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from torchyard.base.clock import to_text
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/computes/{name}",
    tags=["compute"],
    route_class=GuardedRoute,
)


@router.get("/nodes")
@needs(Permission.READ)
def nodes(services: ServicesOf, workspace: str, name: str) -> dict[str, Any]:
    waiting, count = clusters.waiting_at(services, workspace, name)
    return {
        "value": [
            {**vars(node), "since": to_text(node.since), "made_at": to_text(node.made_at)}
            for node in clusters.nodes(services, workspace, name)
        ],
        "waiting": [{**vars(job), "since": to_text(job.since)} for job in waiting],
        "waiting_count": count,
    }


@router.delete("")
@needs(Permission.COMPUTE)
def delete(
    services: ServicesOf, workspace: str, name: str, identity: Person, force: bool = False
) -> dict[str, Any]:
    return {"gone": clusters.delete(services, workspace, name, identity.user, force=force)}
