"""Where the server listens, and whether who answers there is it.

Owns: the address a worker speaks to, finding it anew, telling the server from a stranger.
Leaves: connections to connection.py and relay/proxy.py.
Always: a stranger that has taken the server's port while it was away ends nothing: only a server
of the home that made the attempt can disown it, refuse what it reports, or take it.
"""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Optional
from urllib.parse import SplitResult, urlsplit

from torchyard.shared.plan import LaunchPlan

_HEADER = "X-Torchyard-Server"
_FOLDER = "servers"


class Whereabouts:
    """`parts` is the server's address as it was last known.

    Args:
        server_id: what the server signs with; empty for one that does not.
        server_file: says where it listens now, on this node's disk; empty when it is not here.
            Where several servers share a home, a folder beside it has one such file for each.
    """

    def __init__(self, url: str, server_id: str = "", server_file: str = "") -> None:
        self.parts: SplitResult = urlsplit(url)
        self._server_id = server_id
        self._file = Path(server_file) if server_file else None

    def look(self) -> None:
        """Find the address anew, after a call that did not reach the server."""
        if self._file is None:
            return
        others = sorted((self._file.parent / _FOLDER).glob("*.json"))
        known = [url for url in map(_url_in, [self._file, *others]) if url]
        if not known:
            return
        tried = self.parts.geturl()
        # One after the other, for a file may tell of a server that is gone.
        following = known[known.index(tried) + 1 :] if tried in known else []
        untried = [url for url in [*following, *known] if url != tried]
        self.parts = urlsplit((untried or known)[0])

    def is_own(self, answer: http.client.HTTPResponse) -> bool:
        """Whether it is our server that says this."""
        return not self._server_id or answer.getheader(_HEADER) == self._server_id


def _url_in(file: Path) -> str:
    try:
        url = json.loads(file.read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return url if isinstance(url, str) else ""


def of_plan(plan: LaunchPlan) -> Whereabouts:
    return Whereabouts(plan.server_url, plan.server_id, plan.server_file)


def connection_to(parts: SplitResult, timeout_s: Optional[float]) -> http.client.HTTPConnection:
    """Not connected yet."""
    host, port = parts.hostname or "127.0.0.1", parts.port
    if parts.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)
