"""Loopback listeners for instances on other machines.

Owns: the listeners, passing bytes to the instance's service through its node's tunnel.
Leaves: the tunnel to interactive/ and tunnels/.
Always: a listener is on loopback; it ends with its instance, and its connections with it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from torchyard.base.errors import TorchyardError
from torchyard.endpoints.running.instance_jobs import SERVICE
from torchyard.endpoints.running.probes import Address
from torchyard.interactive import running_nodes
from torchyard.interactive.running_nodes import RunningNode
from torchyard.jobs.services import Services
from torchyard.tunnels.tunnel import Channel, ChannelClosed

_READ_BYTES = 1 << 16
_HOST = "127.0.0.1"


class Relay:
    """Of one attempt."""

    def __init__(self, services: Services, attempt: str) -> None:
        self._services = services
        self._node = RunningNode(attempt, 0, 0, 0)
        self._server: asyncio.AbstractServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Address:
        self._server = await asyncio.start_server(self._serve, _HOST, 0)
        return Address(_HOST, int(self._server.sockets[0].getsockname()[1]))

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
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
