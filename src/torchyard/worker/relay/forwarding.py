"""The way from the relay to the server, for what only the server can answer.

Owns: what is delivered before a request is passed on, how long it waits, streaming the response.
Leaves: requests to the server to proxy.py; which requests go this way to relay_server.py and
sdk_v1.py.
Always: a script reads what it wrote before.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any, Protocol

from torchyard.worker.relay.http import BLOCK_BYTES, HttpRequest, ScriptConnection
from torchyard.worker.relay.proxy import Proxy, ServerResponse, ServerUnreachable, script_headers

# A script waits so long for each request that only the server can answer. The client asks again
# after a 503, by default 7 times with growing pauses.
WAIT_S = 60.0
_SETTLE_S = 10.0
# How long the server is asked for the job's own run before memory answers.
_OWN_RUN_TIMEOUT_S = 5.0


class Recorder(Protocol):
    """Keeps records on the node's disk, and delivers them."""

    def keep(self, records: list[dict[str, Any]]) -> None: ...

    def settle(self, timeout_s: float) -> None: ...


class Forwarder:
    """Passes requests on to the routes behind one `Proxy`."""

    def __init__(self, proxy: Proxy, recorder: Recorder, wait_s: float = WAIT_S) -> None:
        self._proxy = proxy
        self._recorder = recorder
        self._wait_s = wait_s

    def settle(self) -> None:
        """Until the server has what was kept so far, unless it is unreachable."""
        self._recorder.settle(_SETTLE_S)

    def forward(self, connection: ScriptConnection, request: HttpRequest) -> None:
        """Send the request once, and stream the response.

        Raises:
            ServerUnreachable: the server does not respond, or its response is interrupted.
        """
        self.settle()
        body = connection.body(request)
        try:
            response = self._proxy.stream(
                request.method,
                request.target,
                request.headers,
                body,
                request.size_bytes,
                self._wait_s,
            )
        except ServerUnreachable:
            # Perhaps not all of the body was read, which the next request would begin with.
            connection.closing = True
            raise
        with response:
            # A server that refuses early leaves some of the body unread.
            connection.closing = connection.closing or next(body, None) is not None
            _stream(connection, response, bare=request.method == "HEAD")

    def ask_once(self, request: HttpRequest, content: bytes) -> ServerResponse:
        """Send a request once, and read the response.

        Raises:
            ServerUnreachable: the server does not respond, or its response is interrupted.
        """
        self.settle()
        try:
            with self._proxy.stream(
                request.method,
                request.target,
                request.headers,
                [content] if content else [],
                len(content),
                self._wait_s,
            ) as response:
                kind = response.getheader("Content-Type") or "application/json"
                return ServerResponse(response.status, response.read(), kind)
        except (http.client.HTTPException, OSError) as error:
            raise ServerUnreachable(str(error)) from error

    def ask(
        self,
        request: HttpRequest,
        content: bytes,
        own_run: bool = False,
        headers: Mapping[str, str] | None = None,
    ) -> ServerResponse:
        """Send a request that may be done twice.

        Args:
            own_run: the request is about the job's own run, which memory can answer: don't wait.
            headers: sent besides the request's own.

        Raises:
            ServerUnreachable: the server does not respond, or its response is interrupted.
        """
        self._recorder.settle(_OWN_RUN_TIMEOUT_S if own_run else _SETTLE_S)
        headers = {**request.headers, **(headers or {})}
        limits_s = (0.0, _OWN_RUN_TIMEOUT_S) if own_run else (self._wait_s,)
        return self._proxy.ask(request.method, request.target, headers, content, *limits_s)


def content_of(connection: ScriptConnection, request: HttpRequest) -> bytes:
    """The whole body of a request."""
    return b"".join(connection.body(request))


def _stream(connection: ScriptConnection, response: http.client.HTTPResponse, bare: bool) -> None:
    headers = list(script_headers(response))
    length = response.getheader("Content-Length")
    bare = bare or response.status in (204, 304)
    if length is not None:
        headers.append(("Content-Length", length))
    elif not bare:
        headers.append(("Transfer-Encoding", "chunked"))
    connection.send_head(response.status, headers)
    if bare:
        return
    try:
        while block := response.read(BLOCK_BYTES):
            framed = block if length is not None else b"%x\r\n%b\r\n" % (len(block), block)
            connection.write(framed)
        if length is None:
            connection.write(b"0\r\n\r\n")
    except (http.client.HTTPException, OSError):
        # Half a response can't be taken back; an end before its time tells the client.
        connection.closing = True
