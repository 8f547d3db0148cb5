"""Shells that are open, each in a running job.

Owns: which there are and whose, their bytes in both directions, the end of one that nobody reads.
Leaves: the process to the node's worker, HTTP to shell_routes.py.
Always: only who opened a shell types into it or reads it; its bytes are passed on, never kept.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from torchyard.base.errors import NotFound
from torchyard.shared import channels
from torchyard.shared.channels import Frame
from torchyard.tunnels.tunnel import Channel, ChannelClosed

_CLAIM_LIMIT_S = 30.0
_LOOK_EVERY_S = 1.0
_BEATS = 10


@dataclass
class Shell:
    """`owner` is the job's; `is_read` once its output was asked for."""

    user: str
    workspace: str
    owner: str
    channel: Channel
    is_read: bool = False


class Shells:
    """Used in the event loop's thread only."""

    def __init__(self) -> None:
        self._open: dict[str, Shell] = {}

    def add(self, user: str, workspace: str, owner: str, channel: Channel) -> str:
        """Returns its id; it is closed unless somebody reads it soon."""
        id = secrets.token_hex(16)
        self._open[id] = Shell(user, workspace, owner, channel)
        asyncio.get_running_loop().call_later(_CLAIM_LIMIT_S, self._drop_unread, id)
        return id

    def get(self, id: str, user: str, workspace: str) -> Shell:
        """
        Raises:
            NotFound: no such shell, or it is somebody else's.
        """
        shell = self._open.get(id)
        if shell is None or shell.user != user or shell.workspace != workspace:
            raise NotFound("the shell does not exist", "open another one", code="shell_not_found")
        return shell

    async def output(self, id: str, is_gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[bytes]:
        """What it prints, until it ends or nobody reads any more, which ends it."""
        channel = self._open[id].channel
        looks = 0
        try:
            while not await is_gone():
                try:
                    data = await asyncio.wait_for(channel.read(), _LOOK_EVERY_S)
                except asyncio.TimeoutError:
                    looks += 1
                    if looks % _BEATS == 0:
                        yield Frame(0, channels.BEAT).to_bytes()
                    continue
                except ChannelClosed as error:
                    yield refusal(str(error) or "the job has ended, or its node was lost")
                    return
                if not data:
                    return
                yield data
        finally:
            channel.close()
            self._open.pop(id, None)

    def _drop_unread(self, id: str) -> None:
        shell = self._open.get(id)
        if shell is not None and not shell.is_read:
            shell.channel.close()
            del self._open[id]


def refusal(message: str) -> bytes:
    """The last frame of a shell that has ended, and why."""
    body = json.dumps({"message": message}).encode()
    return Frame(0, channels.REFUSED, body).to_bytes()
