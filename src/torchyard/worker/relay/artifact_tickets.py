"""Tickets in the URIs of files, for clients that send no token with a file.

Owns: which clients those are, putting tickets into what they read and taking them out of what they
send, what a ticket allows.
Leaves: everything that comes with a token to relay_server.py.
Always: a ticket allows reading and writing the files of one run, logged model or version, for as
long as the attempt's relay listens; it never reaches the server, and in logs it is masked as every
token.

MLflow 1.23, the newest for Python 3.6, sends its token with every request except those for
artifacts, which it addresses by the run's `artifact_uri`:

    mlflow-artifacts:/7/RUN/artifacts  →  mlflow-artifacts:/TICKET/7/RUN/artifacts
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs, quote, unquote

from torchyard.worker.relay.http import HttpRequest

_CLIENT = "mlflow-python-client/1."
_FILES = "/api/2.0/mlflow-artifacts/artifacts"
_URI = "mlflow-artifacts:/"
_URI_FIELDS = frozenset({"artifact_uri", "root_uri"})
# A run's, a logged model's or a version's files: `7/RUN/artifacts`, `registered/NAME/2`.
_SCOPE_PARTS = 3
# In the form of a token, so that shared/masking.py knows it.
_TICKET = re.compile(r"yard_r_[A-Za-z0-9_-]{43}")
_TICKET_IN_URI = re.compile(_URI.encode() + _TICKET.pattern.encode() + b"/")


class ArtifactTickets:
    """Of one attempt: a restarted relay accepts the tickets of the one before it."""

    def __init__(self, run_token: str) -> None:
        self._key = run_token.encode()

    def are_for(self, request: HttpRequest) -> bool:
        """Whether the request's client is one that sends no token with a file."""
        agent = request.headers.get("user-agent", "")
        return agent.startswith(_CLIENT) and "azureml-mlflow/" not in agent

    def admit(self, request: HttpRequest) -> HttpRequest | None:
        """The request for a file without its ticket; None when it has none that allows it."""
        if request.method not in ("GET", "PUT"):
            return None
        if request.path.rstrip("/") == _FILES:
            folders = parse_qs(request.target.partition("?")[2]).get("path", [])
            path = self._below(folders[0]) if len(folders) == 1 else None
            return None if path is None else _with_target(request, f"{_FILES}?path={quote(path)}")
        if not request.path.startswith(_FILES + "/"):
            return None
        path = self._below(request.path[len(_FILES) :])
        return None if path is None else _with_target(request, f"{_FILES}/{path}")

    def add(self, content: bytes) -> bytes:
        """A response of the server, its URIs of files with tickets."""
        if _URI.encode() not in content:
            return content
        try:
            return json.dumps(self._with_tickets(json.loads(content))).encode()
        except (ValueError, RecursionError):
            return content

    def remove(self, content: bytes) -> bytes:
        """The body of a request without tickets: what the server keeps is never one."""
        return _TICKET_IN_URI.sub(_URI.encode(), content) if b"yard_r_" in content else content

    def _below(self, path: str) -> str | None:
        """What follows the ticket, as it is written; None when the ticket is not for it."""
        ticket, _, rest = path.lstrip("/").partition("/")
        parts = _plain(rest).split("/")
        if not _TICKET.fullmatch(ticket) or ".." in parts or len(parts) < _SCOPE_PARTS:
            return None
        import hmac  # Loads OpenSSL, which only these clients need.

        expected = self._ticket(parts[:_SCOPE_PARTS])
        return rest if hmac.compare_digest(ticket, expected) else None

    def _ticket(self, scope: Sequence[str]) -> str:
        import base64
        import hmac

        digest = hmac.digest(self._key, ("artifacts of " + "/".join(scope)).encode(), "sha256")
        return "yard_r_" + base64.urlsafe_b64encode(digest).decode().rstrip("=")

    def _with_tickets(self, body: Any) -> Any:
        if isinstance(body, list):
            return [self._with_tickets(item) for item in body]
        if not isinstance(body, dict):
            return body
        return {
            key: self._uri(value)
            if key in _URI_FIELDS and isinstance(value, str)
            else self._with_tickets(value)
            for key, value in body.items()
        }

    def _uri(self, uri: str) -> str:
        path = uri[len(_URI) :] if uri.startswith(_URI) else ""
        parts = _plain(path).split("/")
        if len(parts) < _SCOPE_PARTS or _TICKET.fullmatch(parts[0]):
            return uri
        return f"{_URI}{self._ticket(parts[:_SCOPE_PARTS])}/{path}"


def _plain(path: str) -> str:
    """The path however often it is encoded: clients and server differ in that."""
    while (decoded := unquote(path)) != path:
        path = decoded
    return path


def _with_target(request: HttpRequest, target: str) -> HttpRequest:
    return request._replace(target=target)
