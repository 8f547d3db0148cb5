"""The way from the relay to the server, for what only the server can answer.

Owns: what is delivered before a question is asked, how long it waits, streaming an answer back.
Leaves: connections to the server to proxy.py, which requests go this way to the doors.
Always: a script reads what it wrote before.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from typing import Any, Protocol

from torchyard.worker.relay.http import Connection, Request
from torchyard.worker.relay.proxy import CHUNK_BYTES, Away, Proxy, Told, answer_headers

# A script waits so long for each thing that only the server can answer. The client asks again
# after a 503, 7 times with growing pauses unless told otherwise.
PATIENCE_S = 60.0
_SETTLE_S = 10.0
# How long the job's own run is asked for before it is answered from memory.
_OWN_TIMEOUT_S = 5.0


class Keeper(Protocol):
    """What the doors need of the relay."""

    def keep(self, records: list[dict[str, Any]]) -> None: ...

    def settle(self, timeout_s: float) -> None: ...


class Passage:
    """To the routes behind one `Proxy`."""

    def __init__(self, proxy: Proxy, keeper: Keeper, patience_s: float = PATIENCE_S) -> None:
        self._proxy = proxy
        self._keeper = keeper
        self._patience_s = patience_s

    def settle(self) -> None:
        """Until the server has what was kept so far, unless it is away."""
        self._keeper.settle(_SETTLE_S)

    def pass_on(self, connection: Connection, request: Request) -> None:
        """Ask once, and stream the answer.

        Raises:
            Away: the server is away, or breaks off.
        """
        self.settle()
        body = connection.body(request)
        try:
            answer = self._proxy.stream(
                request.method,
                request.target,
                request.headers,
                body,
                request.size_bytes,
                self._patience_s,
            )
        except Away:
            # Perhaps not all of the body was read, which the next request would begin with.
            connection.closing = True
            raise
        with answer:
            # A server that refuses early leaves some of the body unread.
            connection.closing = connection.closing or next(body, None) is not None
            _stream(connection, answer, bare=request.method == "HEAD")

    def ask(
        self,
        request: Request,
        content: bytes,
        own: bool = False,
        more: Mapping[str, str] | None = None,
    ) -> Told:
        """For what may be done twice; the job's own run is not waited for.

        Raises:
            Away: the server is away, or breaks off.
        """
        self._keeper.settle(_OWN_TIMEOUT_S if own else _SETTLE_S)
        headers = {**request.headers, **(more or {})}
        waits = (0.0, _OWN_TIMEOUT_S) if own else (self._patience_s,)
        return self._proxy.ask(request.method, request.target, headers, content, *waits)


def content_of(connection: Connection, request: Request) -> bytes:
    """The whole body of a request."""
    return b"".join(connection.body(request))


def _stream(connection: Connection, answer: http.client.HTTPResponse, bare: bool) -> None:
    headers = list(answer_headers(answer))
    length = answer.getheader("Content-Length")
    bare = bare or answer.status in (204, 304)
    if length is not None:
        headers.append(("Content-Length", length))
    elif not bare:
        headers.append(("Transfer-Encoding", "chunked"))
    connection.send_head(answer.status, headers)
    if bare:
        return
    try:
        while chunk := answer.read(CHUNK_BYTES):
            framed = chunk if length is not None else b"%x\r\n%b\r\n" % (len(chunk), chunk)
            connection.write(framed)
        if length is None:
            connection.write(b"0\r\n\r\n")
    except (http.client.HTTPException, OSError):
        # Half an answer can't be taken back; an end before its time tells the client.
        connection.closing = True
