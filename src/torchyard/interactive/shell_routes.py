"""HTTP: what is typed into a shell, and what it prints."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request

from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.errors import Conflict
from torchyard.interactive.job_routes import ShellsOf
from torchyard.interactive.running_services import may_enter
from torchyard.interactive.shells import refusal
from torchyard.jobs.services import ServicesOf
from torchyard.tunnels.tunnel import ChannelClosed
from torchyard.workspaces.guarded_routes import GuardedRoute, Person, needs
from torchyard.workspaces.permissions import Permission

_INPUT_LIMIT_BYTES = 1 << 20
_LAST_WORDS = refusal("you may no longer enter its job, or your token is no longer good")

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/shells", tags=["jobs"], route_class=GuardedRoute
)


@router.get("/{id}/output")
@needs(Permission.READ)
async def read_output(
    shells: ShellsOf,
    services: ServicesOf,
    workspace: str,
    id: str,
    identity: Person,
    request: Request,
) -> LiveStream:
    shell = shells.get(id, identity.user, workspace)
    if shell.is_read:
        raise Conflict("somebody reads this shell already", "open another one")
    shell.is_read = True
    output = shells.output(id, request.is_disconnected)
    may_go_on = partial(
        may_enter, services.db, services.clock, workspace, shell.owner, identity.token_hash
    )
    return LiveStream(output, "application/octet-stream", _LAST_WORDS, may_go_on)


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
