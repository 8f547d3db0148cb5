"""Requests whose clients have gone while they waited in the instance.

Owns: noticing that nobody waits for an answer any more, and not asking the script for one.
Leaves: everything else to the server's application.
Always: a request whose client still waits is served as if this were not there.
"""

import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

_GONE = select.POLLHUP | select.POLLERR | select.POLLRDHUP


class WithoutAbandoned:
    """A WSGI application that drops a request whose connection was closed while it waited."""

    def __init__(self, app: "Callable[..., Iterable[bytes]]") -> None:
        self._app = app

    def __call__(
        self, environ: "dict[str, Any]", start_response: "Callable[..., Any]"
    ) -> "Iterable[bytes]":
        if is_abandoned(environ.get("gunicorn.socket")):
            start_response("499 Client Closed Request", [("Content-Length", "0")])
            return []
        return self._app(environ, start_response)


def is_abandoned(connection: "Any") -> bool:
    """Whether the other end of a connection is closed, though it may have left unread bytes."""
    if connection is None:
        return False
    poll = select.poll()
    poll.register(connection, _GONE)
    return any(events & _GONE for _, events in poll.poll(0))
