"""The worker's line to the server.

Owns: one HTTP connection a thread, the attempt's token, what an answer means.
Leaves: patience to the callers: each decides how long a lost server is waited for.
Always: `AttemptOver` is raised as soon as the server disowns the attempt, and by nothing else.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any, Union
from urllib.parse import urlencode, urlsplit

# Evaluated at run time, so in the words of Python 3.9.
Content = Union[bytes, IO[bytes], Iterable[bytes]]


class AttemptOver(Exception):
    """The server no longer takes reports of this attempt: stop the ranks and leave."""


class Refused(Exception):
    """The server understood and said no; `body` is its answer, a JSON object."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(f"{status}: {json.dumps(body)[:500]}")
        self.status = status
        self.body = body


class Link:
    """Calls raise OSError when the server can't be reached or fails (5xx); try again later."""

    def __init__(self, server_url: str, token: str, attempt_id: str) -> None:
        self._parts = urlsplit(server_url)
        self._token = token
        self._base = f"{self._parts.path.rstrip('/')}/v1/attempts/{attempt_id}"
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
        text = answer.read()
        return json.loads(text) if text else {}

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
        target = self._base + path + ("?" + urlencode(query) if query else "")
        headers = {"Authorization": "Bearer " + self._token}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            connection = self._connection(timeout_s)
            connection.request(method, target, body=content, headers=headers)
            answer = connection.getresponse()
        except (http.client.HTTPException, OSError) as error:
            self._drop()
            raise OSError(f"server not reached: {error!r}") from error
        if answer.status < 400:
            return answer
        text = answer.read()
        if answer.status in (401, 410):
            raise AttemptOver(f"{answer.status} on {path}")
        if answer.status >= 500:
            raise OSError(f"server failed: {answer.status} {text[:200]!r}")
        raise Refused(answer.status, _json_object(text))

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "kept", None)
        if connection is None:
            host, port = self._parts.hostname or "127.0.0.1", self._parts.port
            if self._parts.scheme == "https":
                connection = http.client.HTTPSConnection(host, port, timeout=timeout_s)
            else:
                connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
            self._local.kept = connection
        connection.timeout = timeout_s
        if connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection

    def _drop(self) -> None:
        kept = getattr(self._local, "kept", None)
        if kept is not None:
            kept.close()
            self._local.kept = None


def _json_object(text: bytes) -> Mapping[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        return {"text": text[:500].decode("utf-8", "replace")}
    return body if isinstance(body, dict) else {}
