"""HTTP: what the server says of itself."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request

import torchyard
from torchyard.base.dependencies import from_state
from torchyard.jobs.http.scheduler import Scheduler
from torchyard.shared.failures import Failure
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

SchedulerOf = Annotated[Scheduler, Depends(from_state("scheduler"))]

router = APIRouter(route_class=GuardedRoute)


@router.get("/health", tags=["server"])
@needs(Permission.OPEN)
async def health(scheduler: SchedulerOf) -> dict[str, Any]:
    trouble = scheduler.trouble
    return {
        "status": "degraded" if trouble else "ok",
        "trouble": trouble,
        "version": torchyard.__version__,
        "pid": os.getpid(),
    }


@router.get("/v1/server/limits", tags=["server"])
@needs(Permission.SELF)
def limits() -> dict[str, Any]:
    """Which limits of jobs hold for workers that this server starts itself."""
    from torchyard.worker.system import cgroups, network_space  # Few ask.

    network = ""
    try:
        network_space.make().close()
    except Failure as failure:
        network = failure.message
    return {**cgroups.holds(), "network": not network, "network_reason": network}


@router.get("/openapi.json", include_in_schema=False)
@needs(Permission.SELF)
def openapi(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = request.app.openapi()
    return document
