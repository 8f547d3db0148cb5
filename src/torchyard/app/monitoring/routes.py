"""HTTP: /metrics, /livez and /readyz.

Owns: the routes, and who may ask.
Leaves: the numbers and the checks to their modules.
Always: /livez asks neither database nor disk; only /metrics needs a token, and no job's token does.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from fastapi.responses import JSONResponse, PlainTextResponse

from torchyard.app.monitoring import exposition
from torchyard.app.monitoring.probes import OK, Probes
from torchyard.app.monitoring.requests import Requests
from torchyard.app.monitoring.server_metrics import ServerMetrics
from torchyard.base.dependencies import from_state
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

ProbesOf = Annotated[Probes, Depends(from_state("probes"))]
RequestsOf = Annotated[Requests, Depends(from_state("requests"))]
ServerMetricsOf = Annotated[ServerMetrics, Depends(from_state("server_metrics"))]

router = APIRouter(tags=["server"], route_class=GuardedRoute)


@router.get("/livez")
@needs(Permission.OPEN)
async def livez(probes: ProbesOf) -> Any:
    """Whether the process works; if not, it has to be restarted."""
    return _answer(probes.is_live(), {})


@router.get("/readyz")
@needs(Permission.OPEN)
def readyz(probes: ProbesOf) -> Any:
    """Whether requests can be served now."""
    checks = probes.checks()
    return _answer(all(word == OK for word in checks.values()), {"checks": checks})


@router.get("/metrics", response_class=PlainTextResponse)
@needs(Permission.METRICS)
def metrics(requests: RequestsOf, server_metrics: ServerMetricsOf) -> Response:
    families = [*server_metrics.families(), *requests.families()]
    return Response(exposition.text_of(families), headers={"content-type": exposition.CONTENT_TYPE})


def _answer(is_ok: bool, more: dict[str, Any]) -> Any:
    body = {"status": "ok" if is_ok else "failing", **more}
    return JSONResponse(body, 200 if is_ok else 503, headers={"cache-control": "no-store"})
