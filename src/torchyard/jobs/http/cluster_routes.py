"""HTTP: clusters with the jobs on them."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from torchyard.base.clock import to_text
from torchyard.jobs.scheduling import clusters
from torchyard.jobs.services import Room
from torchyard.workspaces.access import Person


def router(room: Room) -> APIRouter:
    routes = APIRouter(prefix="/v1/workspaces/{workspace}/computes/{name}", tags=["compute"])

    @routes.get("/nodes")
    def nodes(workspace: str, name: str, identity: Person) -> dict[str, Any]:
        waiting, count = clusters.waiting_at(room, workspace, name)
        return {
            "value": [
                {**vars(node), "since": to_text(node.since), "made_at": to_text(node.made_at)}
                for node in clusters.nodes(room, workspace, name)
            ],
            "waiting": [{**vars(job), "since": to_text(job.since)} for job in waiting],
            "waiting_count": count,
        }

    @routes.delete("")
    def delete(workspace: str, name: str, identity: Person, force: bool = False) -> dict[str, Any]:
        return {"gone": clusters.delete(room, workspace, name, identity.user, force=force)}

    return routes
