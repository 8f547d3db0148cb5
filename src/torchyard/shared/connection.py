"""HTTP to the torchyard server, from a node.

Owns: connections, their timeouts and TLS, the token, what a response means as an exception.
Leaves: finding the server to server_address.py; how long an unreachable server is waited for to
the callers, with retry_delays.py.
Always: standard library, Python 3.9; `AttemptOver` is raised as soon as the server ends the
attempt, and by nothing else; a redirect is never followed, so that a token goes to no other server.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Optional, Union
from urllib.parse import SplitResult, urlencode

from torchyard.shared import server_address
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.server_address import ServerAddress

# Evaluated at run time, so in the words of Python 3.9.
Content = Union[bytes, Iterable[bytes]]
_BLOCK_BYTES = 1 << 20
_JSON, _BYTES = "application/json", "application/octet-stream"
# Methods whose requests change nothing, and rarely have a body.
SAFE_METHODS = frozenset({"GET", "HEAD"})


class AttemptOver(Exception):
    """The server no longer accepts reports of this attempt: stop the ranks and leave."""


class Unreachable(OSError):
    """No response came.

    Attributes:
        delivered: whether the server may have acted on the request all the same.
    """

    def __init__(self, message: str, delivered: bool) -> None:
        super().__init__(message)
        self.delivered = delivered


class ServerFailed(OSError):
    """The server responds and fails; later it may not."""


class Refused(Exception):
    """The server understood the request and refused it; `body` is its response, a JSON object."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {json.dumps(body)[:500]}")
        self.status = status
        self.body = body


class Connection:
    """Keeps one HTTP connection open for each thread that uses it.

    Methods raise OSError when the server can't be reached or fails (5xx): try again later. If it
    fails, that is `ServerFailed`.

    Args:
        token: sent with every request.
        path: put before the path of every request, `/v1/attempts/a1` for example.
    """

    def __init__(self, address: ServerAddress, token: str, path: str) -> None:
        self._address = address
        self._token = token
        self._path = path
        self._local = threading.local()

    @classmethod
    def of_attempt(cls, address: ServerAddress, token: str, attempt_id: str) -> Connection:
        """The connection of a worker, whose paths are below its attempt."""
        return cls(address, token, f"/v1/attempts/{attempt_id}")

    @classmethod
    def of_plan(cls, plan: LaunchPlan, environ: Optional[Mapping[str, str]] = None) -> Connection:
        """The connection of the worker that got this plan; `environ` names its proxy."""
        address = server_address.of_plan(plan, environ)
        return cls.of_attempt(address, plan.report_token, plan.attempt_id)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Optional[Mapping[str, Any]] = None,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        """JSON in, JSON out."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.send(method, path, content, query, timeout_s, _JSON)

    def send(
        self,
        method: str,
        path: str,
        content: Content,
        query: Optional[Mapping[str, Any]] = None,
        timeout_s: float = 60.0,
        content_type: str = _BYTES,
    ) -> dict[str, Any]:
        """Bytes in, whole or in blocks; JSON out."""
        headers = {"Content-Type": content_type}
        text = self._read(self._request(method, path, content, query, timeout_s, headers))
        body = _parsed(text) if text else {}
        if not isinstance(body, dict):
            self._drop()
            raise OSError(f"not a torchyard server's response: {text[:200]!r}")
        return body

    def download(
        self, path: str, write: Callable[[bytes], object], timeout_s: float = 60.0
    ) -> None:
        """GET a file, in blocks.

        Raises:
            OSError: it was cut off, or the server is unreachable; try again from its beginning.
        """
        response = self._request("GET", path, b"", None, timeout_s, {})
        while True:
            try:
                block = response.read(_BLOCK_BYTES)
            except (http.client.HTTPException, OSError) as error:
                self._drop()
                raise OSError(f"response cut off: {error!r}") from error
            if not block:
                break
            write(block)
        if response.length:
            self._drop()
            raise OSError(f"response cut off: {response.length} bytes are missing")

    def forward(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Iterable[bytes],
        size_bytes: Optional[int],
        timeout_s: float,
    ) -> http.client.HTTPResponse:
        """Send somebody else's request once, on a connection of its own.

        Returns whatever the server responds, an error too; the caller closes it, which ends the
        connection.

        Args:
            size_bytes: of the body; None sends it in chunks.

        Raises:
            Unreachable: no response came from our server.
        """
        parts = self._address.parts
        connection = self._address.connection(parts, timeout_s)
        delivered = False
        try:
            self._connect(connection, timeout_s)
            delivered = method not in SAFE_METHODS
            path = parts.path.rstrip("/") + self._path + target
            headers = {**headers, **self._authorization(), "Connection": "close"}
            # The server may have refused before it read all; its response says why.
            _send(connection, method, path, headers, body, size_bytes)
            response = connection.getresponse()
            if response.status == 401 and not self._address.sent(response):
                response.close()
                # It has done nothing; a body that is still here can be sent again.
                delivered = not isinstance(body, list)
                raise OSError("another server responds at the address of ours")
            # The response reads on from its own half of the socket and ends it when closed.
            if connection.sock is not None:
                connection.sock.close()
            return response
        except (http.client.HTTPException, OSError) as error:
            connection.close()
            self._address.refresh(parts)
            message = f"the torchyard server does not respond: {error!r}"
            raise Unreachable(message, delivered) from error

    def close(self) -> None:
        """Close this thread's connection; a later request opens another."""
        self._drop()

    def _request(
        self,
        method: str,
        path: str,
        content: Content,
        query: Optional[Mapping[str, Any]],
        timeout_s: float,
        headers: Mapping[str, str],
    ) -> http.client.HTTPResponse:
        """A response of success, to be read whole before the next request of this thread."""
        parts = self._address.parts
        target = parts.path.rstrip("/") + self._path + path
        if query:
            target += "?" + urlencode(query)
        size_bytes = len(content) if isinstance(content, bytes) else None
        headers = {**self._authorization(), **headers}
        try:
            connection = self._reuse_connection(parts, timeout_s)
            if connection.sock is None:
                self._connect(connection, timeout_s)
            broken = _send(connection, method, target, headers, content, size_bytes)
            response = connection.getresponse()
            if broken is not None and response.status < 400:
                raise broken
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            self._address.refresh(parts)
            raise Unreachable(f"server not reached: {error!r}", True) from error
        if response.status < 500 and not self._address.sent(response):
            self._drop()
            self._address.refresh(parts)
            raise OSError("another server responds at the address of ours")
        if response.status < 300:
            return response
        text = self._read(response)
        if broken is not None:
            self._drop()
        raise self._error(response.status, path, text)

    def _error(self, status: int, path: str, text: bytes) -> Exception:
        if status in (401, 410):
            return AttemptOver(f"{status} on {path}")
        if status in (429, 503, 507):
            # Its database is down, its disk full, or it asks us to wait: the same as unreachable.
            return OSError(f"server not ready: {text[:200]!r}")
        if status >= 500:
            return ServerFailed(f"server failed: {status} {text[:200]!r}")
        if status < 400:
            return OSError(f"not a torchyard server's response: {status} {text[:200]!r}")
        return Refused(status, _refusal(text))

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": "Bearer " + self._token}

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read()
        except (http.client.HTTPException, OSError) as error:
            # A server that is killed is interrupted in the middle of its response, too.
            self._drop()
            raise OSError(f"response cut off: {error!r}") from error

    def _connect(self, connection: http.client.HTTPConnection, timeout_s: float) -> None:
        connection.timeout = self._address.connect_limit_s(timeout_s)
        connection.connect()
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)

    def _reuse_connection(self, parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
        entry: Optional[tuple[SplitResult, http.client.HTTPConnection]] = getattr(
            self._local, "entry", None
        )
        if entry is not None and entry[0] != parts:
            self._drop()
            entry = None
        if entry is None:
            entry = parts, self._address.connection(parts, timeout_s)
            self._local.entry = entry
        connection = entry[1]
        if connection.sock is not None and _is_closed(connection.sock):
            # A server closes what was idle for some seconds, which does not make it unreachable.
            connection.close()
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection

    def _drop(self) -> None:
        entry = getattr(self._local, "entry", None)
        if entry is not None:
            entry[1].close()
            self._local.entry = None


def _is_closed(idle: socket.socket) -> bool:
    """Whether the other end has closed a connection on which nothing is expected."""
    poll = select.poll()
    poll.register(idle, select.POLLIN)
    return bool(poll.poll(0))


def _send(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    headers: Mapping[str, str],
    content: Content,
    size_bytes: Optional[int],
) -> Optional[OSError]:
    """Send a request; returns what broke it off, where the server may have responded before.

    Args:
        size_bytes: of the content; None sends it in chunks.

    Raises:
        OSError: no connection was made. A server that ends just then resets it, too.
    """
    if connection.sock is None:
        connection.connect()
    try:
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        if size_bytes is None:
            connection.putheader("Transfer-Encoding", "chunked")
        elif size_bytes or method not in SAFE_METHODS:
            connection.putheader("Content-Length", str(size_bytes))
        connection.endheaders()
        for block in (content,) if isinstance(content, bytes) else content:
            if block:  # in chunks, an empty one would end the body
                framed = b"%x\r\n%b\r\n" % (len(block), block) if size_bytes is None else block
                connection.send(framed)
        if size_bytes is None:
            connection.send(b"0\r\n\r\n")
    except (BrokenPipeError, ConnectionResetError) as error:
        return error
    return None


def _parsed(text: bytes) -> Any:
    """None for what is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _refusal(text: bytes) -> Mapping[str, Any]:
    body = _parsed(text)
    if body is None:
        return {"text": text[:500].decode("utf-8", "replace")}
    return body if isinstance(body, dict) else {}
