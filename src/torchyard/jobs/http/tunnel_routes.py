"""HTTP: the tunnel that a node opens into its server.

Owns: the response that carries what goes to the node, the requests that bring what comes from it.
Leaves: frames and channels to tunnels/, who may ask for a channel to interactive/.
Always: only the worker of an attempt opens its tunnels.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.services import ServicesOf
from torchyard.shared.channels import BadFrames
from torchyard.tunnels.registry import NodeKey, Tunnels
from torchyard.tunnels.tunnel import Tunnel
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_BYTES = "application/octet-stream"
_BATCH_LIMIT_BYTES = 2 << 20

router = APIRouter(prefix="/v1/attempts/{attempt_id}", tags=["attempts"], route_class=GuardedRoute)


@router.get("/tunnel")
@needs(Permission.WORKER)
async def open_tunnel(services: ServicesOf, attempt_id: str, node: int = 0) -> LiveStream:
    attempt, _ = await run_in_threadpool(worker_reports.get, services, attempt_id)
    if not 0 <= node < attempt.node_count:
        raise InvalidInput(f"the attempt has no node {node}")
    tunnel, node_key = Tunnel(), (attempt_id, node)
    services.tunnels.add(node_key, tunnel)
    return LiveStream(_outgoing(services.tunnels, node_key, tunnel), _BYTES)


@router.post("/tunnel/{name}")
@needs(Permission.WORKER, body_limit_bytes=_BATCH_LIMIT_BYTES)
async def receive(
    services: ServicesOf, attempt_id: str, name: str, request: Request, node: int = 0
) -> dict[str, Any]:
    tunnel = services.tunnels.find_by_name((attempt_id, node), name)
    if tunnel is None or tunnel.is_over:
        raise NotFound("this tunnel is over", "open another one")
    try:
        tunnel.receive(await request.body())
    except BadFrames as error:
        raise InvalidInput(f"these are not a tunnel's frames: {error}") from error
    return {}


async def _outgoing(tunnels: Tunnels, node_key: NodeKey, tunnel: Tunnel) -> AsyncIterator[bytes]:
    try:
        async for data in tunnel.outgoing():
            yield data
    finally:
        tunnels.remove(node_key, tunnel)
