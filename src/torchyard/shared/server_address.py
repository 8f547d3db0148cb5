"""Where the server listens, and whether a response comes from it.

Owns: the address that a node uses, finding it again, telling the server from another program.
Leaves: connections to connection.py, TLS and proxies to server_routes.py.
Always: a program that has taken the server's port while the server was down ends nothing: only a
server of the home that made the attempt can end it, refuse its reports, or accept them.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Optional, Protocol
from urllib.parse import SplitResult, urlsplit

from torchyard.shared import server_routes
from torchyard.shared.plan import LaunchPlan

if TYPE_CHECKING:
    import ssl

_HEADER = "X-Torchyard-Server"
_FOLDER = "servers"
# An address that does not answer keeps nobody from trying the next.
_NEXT_AFTER_S = 5.0


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
        urls: its further addresses, tried in turn.
        certificate: PEM, the only one that is trusted; empty for what the machine trusts.
        environ: names the proxy; None for none.
    """

    def __init__(
        self,
        url: str,
        server_id: str = "",
        server_file: str = "",
        urls: Sequence[str] = (),
        certificate: str = "",
        environ: Optional[Mapping[str, str]] = None,
    ) -> None:
        self._urls = list(dict.fromkeys(filter(None, (url, *urls))))
        self.parts: SplitResult = urlsplit(self._urls[0] if self._urls else "")
        self._server_id = server_id
        self._file = Path(server_file) if server_file else None
        self._certificate = certificate
        self._environ = environ
        self._context: Optional[ssl.SSLContext] = None
        self._lock = threading.Lock()

    def refresh(self, tried: Optional[SplitResult] = None) -> None:
        """Find the address again, after a request that did not reach the server.

        Args:
            tried: where the request went; another thread may have found another since.
        """
        with self._lock:
            if tried is not None and tried != self.parts:
                return
            urls = self._urls
            if self._file is not None:
                others = sorted((self._file.parent / _FOLDER).glob("*.json"))
                urls = [url for url in map(_url_in, [self._file, *others]) if url]
            if not urls:
                return
            last = self.parts.geturl()
            # One after the other, for a file may name a server that is gone.
            following = urls[urls.index(last) + 1 :] if last in urls else []
            untried = [url for url in [*following, *urls] if url != last]
            self.parts = urlsplit((untried or urls)[0])

    def connection(self, parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
        """A connection to `parts`, not connected yet.

        Raises:
            OSError: the certificate can't be used.
        """
        if parts.scheme == "https" and self._context is None:
            self._context = server_routes.trusting(self._certificate)
        return server_routes.opened(parts, timeout_s, self._context, self._environ)

    def connect_limit_s(self, timeout_s: float) -> float:
        """How long a connection may take that has `timeout_s` for everything."""
        return min(timeout_s, _NEXT_AFTER_S) if len(self._urls) > 1 else timeout_s

    def sent(self, response: Headers) -> bool:
        """Whether the response comes from our server."""
        return not self._server_id or response.getheader(_HEADER) == self._server_id


def of_plan(plan: LaunchPlan, environ: Optional[Mapping[str, str]] = None) -> ServerAddress:
    """
    Args:
        environ: of this process; its proxies are used on nodes that don't see the server's disk.
    """
    return ServerAddress(
        plan.server_url,
        plan.server_id,
        plan.server_file,
        plan.server_urls,
        plan.server_certificate,
        None if plan.server_file else environ,
    )


def _url_in(file: Path) -> str:
    try:
        url = json.loads(file.read_text())["url"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return url if isinstance(url, str) else ""
