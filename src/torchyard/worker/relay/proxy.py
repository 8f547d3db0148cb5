"""Requests of a script, passed on to the server.

Owns: the server's routes for scripts, repeating a request while the server is unreachable.
Leaves: connections to shared/connection.py; which requests are passed on to relay_server.py.
Always: bodies are streamed, and nothing is sent twice that the server may have acted on, unless
doing it twice is the same as doing it once.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from torchyard.shared import server_address
from torchyard.shared.connection import Connection, Unreachable
from torchyard.shared.plan import LaunchPlan

# They concern one hop only, or this hop sets them itself.
_HOP_HEADERS = frozenset(
    "connection keep-alive proxy-connection te trailer transfer-encoding upgrade host "
    "authorization content-length expect".split()
)
_PAUSE_S = 0.5
# From a server that is about to end, or from a proxy before it: the same as unreachable.
_UNREACHABLE_STATUSES = (502, 503, 504, 507)


class ServerUnreachable(Exception):
    """The server did not respond in time."""


class ServerResponse(NamedTuple):
    """A response of the server, read whole."""

    status: int
    content: bytes
    kind: str


class Proxy:
    """Carries requests to the server with the run's token.

    Args:
        path: put before every request's own; None for the workspace's MLflow routes.
        environ: of the worker; see `server_address.of_plan`.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        path: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        path = f"/mlflow/{plan.workspace}" if path is None else path
        address = server_address.of_plan(plan, environ)
        self._connection = Connection(address, plan.run_token, path)

    def stream(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Iterable[bytes],
        size_bytes: int | None,
        wait_s: float,
        timeout_s: float = 600.0,
    ) -> http.client.HTTPResponse:
        """Send one request; `size_bytes` None sends the body in chunks.

        The caller closes the response, which ends its connection. A server that can't be reached
        is tried again; one that is interrupted gets only requests again that change nothing.

        Raises:
            ServerUnreachable: it did not respond within `wait_s`, or was interrupted.
        """
        deadline = time.monotonic() + wait_s
        headers = {
            name: value for name, value in headers.items() if name.lower() not in _HOP_HEADERS
        }
        while True:
            try:
                return self._connection.forward(
                    method, target, headers, body, size_bytes, timeout_s
                )
            except Unreachable as error:
                if error.delivered or time.monotonic() + _PAUSE_S > deadline:
                    raise ServerUnreachable(str(error)) from error
            time.sleep(_PAUSE_S)

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes,
        wait_s: float,
        timeout_s: float = 60.0,
    ) -> ServerResponse:
        """Send a request that may be done twice, until the server responds to it.

        Raises:
            ServerUnreachable: it did not within `wait_s`.
        """
        deadline = time.monotonic() + wait_s
        body = [content] if content else []
        while True:
            left_s = deadline - time.monotonic()
            try:
                with self.stream(
                    method, target, headers, body, len(content), left_s, timeout_s
                ) as response:
                    kind = response.getheader("Content-Type") or "application/json"
                    read = ServerResponse(response.status, response.read(), kind)
                if read.status not in _UNREACHABLE_STATUSES:
                    return read
                reason = f"its status is {read.status}"
            except (ServerUnreachable, http.client.HTTPException, OSError) as error:
                reason = str(error)
            if time.monotonic() + _PAUSE_S > deadline:
                raise ServerUnreachable(reason)
            time.sleep(_PAUSE_S)


def script_headers(response: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """Those that the script gets to see."""
    for name, value in response.getheaders():
        if name.lower() not in _HOP_HEADERS and name.lower() not in ("server", "date"):
            yield name, value
