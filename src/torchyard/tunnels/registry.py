"""Which nodes have a tunnel, and which are asked to open one.

Owns: the tunnels of this server, by attempt and node; waiting for one.
Leaves: telling a worker to the answer of its control request (jobs/http/worker_routes.py).
Always: nothing is kept of a node that nobody asked for; used in the event loop's thread only,
except for `is_wanted`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from torchyard.base.errors import Unreachable
from torchyard.tunnels.tunnel import Channel, Tunnel

_OPENING_LIMIT_S = 20.0
NodeKey = tuple[str, int]
"""An attempt's id and one of its nodes."""


class Tunnels:
    """Lives as long as the server."""

    def __init__(self) -> None:
        self._open: dict[NodeKey, Tunnel] = {}
        self._waiting: defaultdict[NodeKey, list[asyncio.Event]] = defaultdict(list)

    def is_wanted(self, attempt_id: str, node: int) -> bool:
        """Whether the node is to open a tunnel."""
        return (attempt_id, node) in self._waiting

    async def channel(
        self, node_key: NodeKey, request: Mapping[str, Any], notify: Callable[[], None]
    ) -> Channel:
        """Open a channel to a node.

        Args:
            request: what the node is asked for.
            notify: has the node's worker look for what is wanted.

        Raises:
            Unreachable: the node opened no tunnel in time.
            Conflict: too many are open.
        """
        tunnel = self._open.get(node_key)
        if tunnel is None or tunnel.is_over:
            await self._wait(node_key, notify)
            tunnel = self._open[node_key]
        return tunnel.open(request)

    def add(self, node_key: NodeKey, tunnel: Tunnel) -> None:
        """The node has opened it; it replaces the one that it had."""
        before = self._open.get(node_key)
        if before is not None:
            before.end("the node opened another connection")
        self._open[node_key] = tunnel
        for event in self._waiting.pop(node_key, []):
            event.set()

    def find_by_name(self, node_key: NodeKey, name: str) -> Tunnel | None:
        tunnel = self._open.get(node_key)
        return tunnel if tunnel is not None and tunnel.name == name else None

    def remove(self, node_key: NodeKey, tunnel: Tunnel) -> None:
        tunnel.end("the connection to the node was lost")
        if self._open.get(node_key) is tunnel:
            del self._open[node_key]

    def close(self) -> None:
        """The server is stopping."""
        for tunnel in self._open.values():
            tunnel.end("the server is stopping")

    async def _wait(self, node_key: NodeKey, notify: Callable[[], None]) -> None:
        event = asyncio.Event()
        self._waiting[node_key].append(event)
        notify()
        try:
            await asyncio.wait_for(event.wait(), _OPENING_LIMIT_S)
        except asyncio.TimeoutError:
            raise Unreachable(
                f"node {node_key[1]} of the job does not respond",
                "its worker may have lost the server, or is connected to another one: try again",
                code="node_unreachable",
            ) from None
        finally:
            events = self._waiting.get(node_key)
            if events is not None and event in events:
                events.remove(event)
                if not events:
                    del self._waiting[node_key]
