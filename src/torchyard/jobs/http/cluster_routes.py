"""HTTP: clusters with the jobs on them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from torchyard.base.clock import to_text
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Services
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission


def router(services: Services) -> APIRouter:
    routes = APIRouter(
        prefix="/v1/workspaces/{workspace}/computes/{name}",
        tags=["compute"],
        route_class=GuardedRoute,
    )

    @routes.get("/nodes")
    @needs(Permission.READ)
    def nodes(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        waiting, count = clusters.waiting_at(services, workspace, name)
        return {
            "value": [
                {**vars(node), "since": to_text(node.since), "made_at": to_text(node.made_at)}
                for node in clusters.nodes(services, workspace, name)
            ],
            "waiting": [{**vars(job), "since": to_text(job.since)} for job in waiting],
            "waiting_count": count,
        }

    @routes.delete("")
    @needs(Permission.COMPUTE)
    def delete(workspace: str, name: str, identity: Person, force: bool = False) -> dict[str, Any]:
        return {"gone": clusters.delete(services, workspace, name, identity.user, force=force)}

    return routes
