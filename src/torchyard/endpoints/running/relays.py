"""Sockets for instances on other machines, as if they were here.

Owns: the listeners, passing bytes to the instance's service through its node's tunnel.
Leaves: the tunnel to interactive/ and tunnels/.
Always: only the server's user, and so the router, reaches a listener; it ends with its instance,
and its connections with it.
"""

from __future__ import annotations

import asyncio
import errno
from contextlib import suppress
from pathlib import Path

from torchyard.base.errors import TorchyardError
from torchyard.endpoints.running.instance_jobs import SERVICE
from torchyard.interactive import running_nodes
from torchyard.interactive.running_nodes import RunningNode
from torchyard.jobs.services import Services
from torchyard.shared import unix_sockets
from torchyard.tunnels.tunnel import Channel, ChannelClosed

_READ_BYTES = 1 << 16


class Relay:
    """Of one attempt.

    Args:
        path: of the socket that it listens at.
    """

    def __init__(self, services: Services, attempt: str, path: Path) -> None:
        self._path = path
        self._services = services
        self._node = RunningNode(attempt, 0, 0, 0)
        self._server: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        # One of a server that was killed is replaced: nobody answers there.
        listener = unix_sockets.listen(self._path)
        if listener is None:
            raise OSError(errno.EADDRINUSE, f"another relay listens at {self._path}")
        self._server = await asyncio.start_unix_server(self._serve, sock=listener)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            request = {"kind": "service", "name": SERVICE}
            channel = await running_nodes.open_channel(self._services, self._node, request)
            await _pass(channel, reader, writer)
        except (TorchyardError, ChannelClosed, OSError, asyncio.CancelledError):
            pass  # the caller sees a closed connection
        finally:
            self._tasks.discard(task)
            writer.close()


async def _pass(
    channel: Channel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    async def to_instance() -> None:
        with suppress(ChannelClosed, OSError):
            while data := await reader.read(_READ_BYTES):
                await channel.write(data)
            # The caller has gone: nobody waits for the answer.
            channel.close()

    sending = asyncio.get_running_loop().create_task(to_instance())
    try:
        while data := await channel.read():
            writer.write(data)
            await writer.drain()
    finally:
        sending.cancel()
        channel.close()
