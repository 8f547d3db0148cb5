"""A request of the script, passed on to the server.

Owns: the way to the server's routes and back, waiting for a server that is away.
Leaves: which requests go this way to relay_server.py.
Always: bodies are streamed, and nothing is sent twice that the server may have acted on, unless
it is the same done twice.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from torchyard.shared.plan import LaunchPlan
from torchyard.worker.server import server_address

CHUNK_BYTES = 256 * 1024
# Named for their one hop only; and what this hop says itself.
_HOP = frozenset(
    "connection keep-alive proxy-connection te trailer transfer-encoding upgrade host "
    "authorization content-length expect".split()
)
_PAUSE_S = 0.5
_SAFE = frozenset({"GET", "HEAD"})
# What a server says that is about to end; to a script it is away, too.
_AWAY = (502, 503, 504, 507)


class Away(Exception):
    """No server answered in time."""


class Told(NamedTuple):
    """What the server said, read whole."""

    status: int
    content: bytes
    kind: str


class Proxy:
    """Carries requests to the server with the run's token.

    Args:
        path: put before all that is asked for; None for the workspace's MLflow routes.
    """

    def __init__(self, plan: LaunchPlan, path: str | None = None) -> None:
        self._whereabouts = server_address.of_plan(plan)
        self._path = f"/mlflow/{plan.workspace}" if path is None else path
        self._token = plan.run_token

    def stream(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Iterable[bytes],
        size_bytes: int | None,
        patience_s: float,
        timeout_s: float = 600.0,
    ) -> http.client.HTTPResponse:
        """Send one request; `size_bytes` None sends the body in chunks.

        The caller closes the answer, which ends its connection. A server that can't be reached
        is tried again; one that breaks off is asked again only for what changes nothing.

        Raises:
            Away: it did not answer within `patience_s`, or broke off.
        """
        deadline = time.monotonic() + patience_s
        while True:
            connection = self._connection(timeout_s)
            sent = False
            try:
                connection.connect()
                sent = method not in _SAFE
                self._send(connection, method, target, headers, body, size_bytes)
                answer = connection.getresponse()
                if answer.status == 401 and not self._whereabouts.is_own(answer):
                    answer.close()
                    # It has done nothing of what was asked; what can be sent again may be.
                    sent = not isinstance(body, list)
                    raise OSError("another server answers where ours was")
                # The answer reads on from its own half of the socket and ends it when closed.
                if connection.sock is not None:
                    connection.sock.close()
                return answer
            except (http.client.HTTPException, OSError) as error:
                connection.close()
                self._whereabouts.look()
                if sent or time.monotonic() + _PAUSE_S > deadline:
                    raise Away(f"the torchyard server does not answer: {error!r}") from error
            time.sleep(_PAUSE_S)

    def ask(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        content: bytes,
        patience_s: float,
        timeout_s: float = 60.0,
    ) -> Told:
        """Send one request that does the same when it is done twice, until it is answered.

        Raises:
            Away: it was not, within `patience_s`.
        """
        deadline = time.monotonic() + patience_s
        body = [content] if content else []
        while True:
            left_s = deadline - time.monotonic()
            try:
                answer = self.stream(method, target, headers, body, len(content), left_s, timeout_s)
                with answer:
                    kind = answer.getheader("Content-Type") or "application/json"
                    told = Told(answer.status, answer.read(), kind)
                if told.status not in _AWAY:
                    return told
                why = f"it says {told.status}"
            except (Away, http.client.HTTPException, OSError) as error:
                why = str(error)
            if time.monotonic() + _PAUSE_S > deadline:
                raise Away(why)
            time.sleep(_PAUSE_S)

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        return server_address.connection_to(self._whereabouts.parts, timeout_s)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Iterable[bytes],
        size_bytes: int | None,
    ) -> None:
        base = self._whereabouts.parts.path.rstrip("/") + self._path
        connection.putrequest(method, base + target, skip_accept_encoding=True)
        for name, value in headers.items():
            if name.lower() not in _HOP:
                connection.putheader(name, value)
        connection.putheader("Authorization", "Bearer " + self._token)
        connection.putheader("Connection", "close")
        if size_bytes is None:
            connection.putheader("Transfer-Encoding", "chunked")
        elif size_bytes or method not in _SAFE:
            connection.putheader("Content-Length", str(size_bytes))
        connection.endheaders()
        try:
            for chunk in body:
                connection.send(
                    b"%x\r\n%b\r\n" % (len(chunk), chunk) if size_bytes is None else chunk
                )
            if size_bytes is None:
                connection.send(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            # The server may have refused before it read all; its answer says why.
            pass


def answer_headers(answer: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """Those that the script gets to see."""
    for name, value in answer.getheaders():
        if name.lower() not in _HOP and name.lower() not in ("server", "date"):
            yield name, value


def pieces(read: Callable[[int], bytes], size_bytes: int) -> Iterator[bytes]:
    """`size_bytes` bytes, bit by bit.

    Raises:
        OSError: they end too early.
    """
    left = size_bytes
    while left:
        chunk = read(min(CHUNK_BYTES, left))
        if not chunk:
            raise OSError("the body ended early")
        left -= len(chunk)
        yield chunk


def chunks(readline: Callable[[int], bytes], read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The content of a chunked body.

    Raises:
        OSError: it ends too early, or is none.
    """
    while True:
        try:
            size = int(readline(1024).split(b";")[0], 16)
        except ValueError:
            raise OSError("the body is not chunked as it says") from None
        if size == 0:
            while readline(65536) not in (b"\r\n", b"\n", b""):
                pass
            return
        yield from pieces(read, size)
        readline(8)
