"""Where the server listens, and whether a response comes from it.

Owns: the address that a node uses, finding it anew, telling the server from another program.
Leaves: connections to connection.py.
Always: a program that has taken the server's port while the server was down ends nothing: only a
server of the home that made the attempt can end it, refuse its reports, or accept them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Optional, Protocol
from urllib.parse import SplitResult, urlsplit

from torchyard.shared.plan import LaunchPlan

_HEADER = "X-Torchyard-Server"
_FOLDER = "servers"


class Headers(Protocol):
    """The part of a response that shows who sent it."""

    def getheader(self, name: str) -> Optional[str]: ...


class ServerAddress:
    """`parts` is the server's address as it was last known.

    Args:
        server_id: what the server signs with; empty for one that does not sign.
        server_file: says where the server listens now, on this node's disk; empty when it is on
            another. Where several servers share a home, a folder beside it has one such file for
            each.
    """

    def __init__(self, url: str, server_id: str = "", server_file: str = "") -> None:
        self.parts: SplitResult = urlsplit(url)
        self._server_id = server_id
        self._file = Path(server_file) if server_file else None

    def refresh(self) -> None:
        """Find the address anew, after a request that did not reach the server."""
        if self._file is None:
            return
        others = sorted((self._file.parent / _FOLDER).glob("*.json"))
        urls = [url for url in map(_url_in, [self._file, *others]) if url]
        if not urls:
            return
        last = self.parts.geturl()
        # One after the other, for a file may name a server that is gone.
        following = urls[urls.index(last) + 1 :] if last in urls else []
        untried = [url for url in [*following, *urls] if url != last]
        self.parts = urlsplit((untried or urls)[0])

    def sent(self, response: Headers) -> bool:
        """Whether the response comes from our server."""
        return not self._server_id or response.getheader(_HEADER) == self._server_id


def of_plan(plan: LaunchPlan) -> ServerAddress:
    return ServerAddress(plan.server_url, plan.server_id, plan.server_file)


def _url_in(file: Path) -> str:
    try:
        url = json.loads(file.read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return url if isinstance(url, str) else ""
