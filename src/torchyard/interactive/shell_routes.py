"""HTTP: what is typed into a shell, and what it prints."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.errors import Conflict
from torchyard.interactive.job_routes import ShellsOf
from torchyard.tunnels.tunnel import ChannelClosed
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_INPUT_LIMIT_BYTES = 1 << 20

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/shells", tags=["jobs"], route_class=GuardedRoute
)


@router.get("/{id}/output")
@needs(Permission.READ)
async def read_output(
    shells: ShellsOf, workspace: str, id: str, identity: Person, request: Request
) -> LiveStream:
    shell = shells.get(id, identity.user, workspace)
    if shell.is_read:
        raise Conflict("somebody reads this shell already", "open another one")
    shell.is_read = True
    return LiveStream(shells.output(id, request.is_disconnected), "application/octet-stream")


@router.post("/{id}/input")
@needs(Permission.READ, body_limit_bytes=_INPUT_LIMIT_BYTES)
async def write_input(
    shells: ShellsOf, workspace: str, id: str, identity: Person, request: Request
) -> dict[str, Any]:
    """Frames, as shared/channels.py has them; answered when the node may have them."""
    shell = shells.get(id, identity.user, workspace)
    try:
        await shell.channel.write(await request.body())
    except ChannelClosed as error:
        raise Conflict(f"the shell has ended: {error}", code="shell_ended") from error
    return {}
