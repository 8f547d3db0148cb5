"""The worker's line to the server.

Owns: one HTTP connection a thread, the attempt's token, what an answer means.
Leaves: patience to the callers: each decides how long a lost server is waited for.
Always: `AttemptOver` is raised as soon as the server disowns the attempt, and by nothing else.
"""

from __future__ import annotations

import http.client
import json
import select
import socket
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any, Optional, Union
from urllib.parse import SplitResult, urlencode

from torchyard.worker.server import server_address as whereabouts_of
from torchyard.worker.server.server_address import Whereabouts

# Evaluated at run time, so in the words of Python 3.9.
Content = Union[bytes, IO[bytes], Iterable[bytes]]


class AttemptOver(Exception):
    """The server no longer takes reports of this attempt: stop the ranks and leave."""


class ServerFailed(OSError):
    """The server is there and fails; later it may not."""


class Refused(Exception):
    """The server understood and said no; `body` is its answer, a JSON object."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {json.dumps(body)[:500]}")
        self.status = status
        self.body = body


class Link:
    """Calls raise OSError when the server can't be reached or fails (5xx); try again later.

    For the latter it is `ServerFailed`.
    """

    def __init__(
        self,
        server_url: str,
        token: str,
        attempt_id: str,
        whereabouts: Optional[Whereabouts] = None,
    ) -> None:
        self._whereabouts = whereabouts or Whereabouts(server_url)
        self._token = token
        self._path = f"/v1/attempts/{attempt_id}"
        self._local = threading.local()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        query: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
    ) -> dict[str, Any]:
        """JSON in, JSON out. `path` is below the attempt, `/report` for example."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.send(method, path, content, query, timeout_s, "application/json")

    def send(
        self,
        method: str,
        path: str,
        content: Content,
        query: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
        content_type: str = "application/octet-stream",
    ) -> dict[str, Any]:
        """Raw bytes, a file or chunks in, JSON out."""
        answer = self._ask(method, path, content, query, timeout_s, content_type)
        text = self._read(answer)
        body = _json(text) if text else {}
        if not isinstance(body, dict):
            self._drop()
            raise OSError(f"no answer of a torchyard server: {text[:200]!r}")
        return body

    def open(self, path: str, timeout_s: float = 60.0) -> http.client.HTTPResponse:
        """An answer to be read bit by bit; read it whole before the next call on this thread."""
        return self._ask("GET", path, b"", None, timeout_s, "")

    def close(self) -> None:
        """Close this thread's connection; a later call opens another."""
        self._drop()

    def _ask(
        self,
        method: str,
        path: str,
        content: Content,
        query: Mapping[str, Any] | None,
        timeout_s: float,
        content_type: str,
    ) -> http.client.HTTPResponse:
        base = self._whereabouts.parts.path.rstrip("/") + self._path
        target = base + path + ("?" + urlencode(query) if query else "")
        headers = {"Authorization": "Bearer " + self._token}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            connection = self._connection(timeout_s)
            broken = _request(connection, method, target, content, headers)
            answer = connection.getresponse()
            if broken is not None and answer.status < 400:
                raise broken
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            self._whereabouts.look()
            raise OSError(f"server not reached: {error!r}") from error
        if answer.status < 500 and not self._whereabouts.is_own(answer):
            self._drop()
            self._whereabouts.look()
            raise OSError("another server answers where ours was")
        if answer.status < 400:
            return answer
        text = self._read(answer)
        if broken is not None:
            self._drop()
        if answer.status in (401, 410):
            raise AttemptOver(f"{answer.status} on {path}")
        if answer.status in (429, 503, 507):
            # Its database is away, its disk full, or it bids us wait: as good as a server away.
            raise OSError(f"server not ready: {text[:200]!r}")
        if answer.status >= 500:
            raise ServerFailed(f"server failed: {answer.status} {text[:200]!r}")
        raise Refused(answer.status, _json_object(text))

    def _read(self, answer: http.client.HTTPResponse) -> bytes:
        try:
            return answer.read()
        except (http.client.HTTPException, OSError) as error:
            # A server that is killed breaks off in the middle of its answer, too.
            self._drop()
            raise OSError(f"answer cut off: {error!r}") from error

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        parts = self._whereabouts.parts
        kept: tuple[SplitResult, http.client.HTTPConnection] | None = getattr(
            self._local, "kept", None
        )
        if kept is not None and kept[0] != parts:
            self._drop()
            kept = None
        if kept is None:
            kept = parts, whereabouts_of.connection_to(parts, timeout_s)
            self._local.kept = kept
        connection = kept[1]
        if connection.sock is not None and _is_closed(connection.sock):
            # A server closes what was quiet for some seconds, which does not make it a lost one.
            connection.close()
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection

    def _drop(self) -> None:
        kept = getattr(self._local, "kept", None)
        if kept is not None:
            kept[1].close()
            self._local.kept = None


def _is_closed(quiet: socket.socket) -> bool:
    """Whether the other end is done with a connection that has nothing more to say."""
    poll = select.poll()
    poll.register(quiet, select.POLLIN)
    return bool(poll.poll(0))


def _request(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    content: Content,
    headers: Mapping[str, str],
) -> OSError | None:
    """Send it; what broke it off, where the server may have answered before it read all."""
    try:
        connection.request(method, target, body=content, headers=dict(headers))
    except (BrokenPipeError, ConnectionResetError) as error:
        return error
    return None


def _json(text: bytes) -> Any:
    """None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json_object(text: bytes) -> Mapping[str, Any]:
    body = _json(text)
    if body is None:
        return {"text": text[:500].decode("utf-8", "replace")}
    return body if isinstance(body, dict) else {}
