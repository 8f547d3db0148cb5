"""HTTP: what the server says of itself."""

from __future__ import annotations

import os
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

import torchyard
from torchyard.base.dependencies import from_state
from torchyard.base.errors import NotFound
from torchyard.executors.server_for_nodes import ServerForNodes
from torchyard.jobs.scheduler import Scheduler
from torchyard.shared.failures import Failure
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

ForNodesOf = Annotated[ServerForNodes, Depends(from_state("for_nodes"))]
SchedulerOf = Annotated[Scheduler, Depends(from_state("scheduler"))]

router = APIRouter(route_class=GuardedRoute)


@router.get("/health", tags=["server"])
@needs(Permission.OPEN)
async def health(request: Request, scheduler: SchedulerOf) -> dict[str, Any]:
    trouble = scheduler.trouble or request.app.state.trouble
    return {
        "status": "degraded" if trouble else "ok",
        "trouble": trouble,
        "version": torchyard.__version__,
        "pid": os.getpid(),
    }


@router.get("/", include_in_schema=False)
@needs(Permission.OPEN)
async def root(request: Request) -> Response:
    """Browsers get the web page; programs are told where things are."""
    if "text/html" not in request.headers.get("accept", ""):
        raise NotFound("nothing answers GET `/`", "the API is below `/v1`, the page at `/ui/`")
    return RedirectResponse("/ui/", 302, headers={"vary": "accept"})


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


@router.get("/v1/server/addresses", tags=["server"])
@needs(Permission.SELF)
def addresses(for_nodes: ForNodesOf) -> dict[str, Any]:
    """Where other machines reach this server; empty when none does."""
    return {"value": for_nodes.public_urls}


@router.get("/v1/server/certificate", tags=["server"])
@needs(Permission.OPEN)
def certificate(for_nodes: ForNodesOf) -> dict[str, Any]:
    """The certificate that machines trust, as PEM, empty for what they trust already.

    Who has its fingerprint, as an invitation says it, may take it from anybody.
    """
    return {"certificate": for_nodes.certificate}


@router.get("/openapi.json", include_in_schema=False)
@needs(Permission.SELF)
def openapi(request: Request) -> dict[str, Any]:
    document: dict[str, Any] = request.app.openapi()
    return document
