"""What the server may ask a node for through its tunnel.

Owns: the tunnel of this node, which kind of request goes where.
Leaves: shells to shells.py, services to service_programs.py.
Always: only what the server asks for over the worker's own connection is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchyard.shared.connection import Connection
from torchyard.worker.interactive import shells
from torchyard.worker.interactive.tunnel import Channel, Tunnel
from torchyard.worker.launch.guests import Guests

if TYPE_CHECKING:
    from torchyard.worker.interactive.service_programs import NodeServices


class NodeAccess:
    """Lives as long as its node."""

    def __init__(
        self, link: Connection, node: int, guests: Guests, services: NodeServices | None = None
    ) -> None:
        self._guests = guests
        self._services = services
        self._tunnel = Tunnel(link, node, self._serve)

    def open(self) -> None:
        """The server asks for the tunnel."""
        self._tunnel.open()

    def _serve(self, channel: Channel, request: dict[str, Any]) -> None:
        kind = request.get("kind")
        if kind == "shell":
            shells.serve(channel, request, self._guests)
        elif kind == "service" and self._services is not None:
            self._services.serve(channel, str(request.get("name")))
        else:
            channel.close(f"this worker knows no `{kind}`")
