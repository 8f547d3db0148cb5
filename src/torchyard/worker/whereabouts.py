"""Where the server listens, and whether who answers there is it.

Owns: the address a worker speaks to, finding it anew, telling the server from a stranger.
Leaves: connections to link.py and relay_proxy.py.
Always: a stranger that has taken the server's port while it was away ends nothing: only the
server that made the attempt can disown it.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Optional
from urllib.parse import SplitResult, urlsplit

from torchyard.plan import LaunchPlan

_HEADER = "X-Torchyard-Server"


class Whereabouts:
    """`parts` is the server's address as it was last known.

    Args:
        server_id: what the server signs with; empty for one that does not.
        server_file: says where it listens now, on this node's disk; empty when it is not here.
    """

    def __init__(self, url: str, server_id: str = "", server_file: str = "") -> None:
        self.parts: SplitResult = urlsplit(url)
        self._server_id = server_id
        self._file = Path(server_file) if server_file else None

    def look(self) -> None:
        """Find the address anew, after a call that did not reach the server."""
        if self._file is None:
            return
        try:
            url = json.loads(self._file.read_text())["url"]
        except (OSError, ValueError, KeyError, TypeError):
            return
        if isinstance(url, str) and url:
            self.parts = urlsplit(url)

    def is_own(self, answer: http.client.HTTPResponse) -> bool:
        """Whether it is our server that refuses a token."""
        return not self._server_id or answer.getheader(_HEADER) == self._server_id


def of_plan(plan: LaunchPlan) -> Whereabouts:
    return Whereabouts(plan.server_url, plan.server_id, plan.server_file)


def connection_to(parts: SplitResult, timeout_s: Optional[float]) -> http.client.HTTPConnection:
    """Not connected yet."""
    host, port = parts.hostname or "127.0.0.1", parts.port
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)
