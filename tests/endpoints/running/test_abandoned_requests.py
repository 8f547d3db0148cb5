"""What waits in an instance is dropped once its client has gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any

from torchyard.endpoints.running.in_instance.abandoned_requests import WithoutAbandoned


def answers(environ: dict[str, Any]) -> tuple[list[str], list[bytes]]:
    """The statuses that were said, and the body."""
    statuses: list[str] = []

    def script(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [b"scored"]

    app = WithoutAbandoned(script)
    body = list(app(environ, lambda status, headers: statuses.append(status)))
    return statuses, body


def test_a_request_that_nobody_waits_for_is_not_scored() -> None:
    router, instance = socket.socketpair()
    router.sendall(b'{"data": [1]}')
    router.close()
    statuses, body = answers({"gunicorn.socket": instance})
    assert (statuses, body) == (["499 Client Closed Request"], [])
    instance.close()


def test_a_request_whose_client_waits_is_scored() -> None:
    router, instance = socket.socketpair()
    router.sendall(b'{"data": [1]}')
    assert answers({"gunicorn.socket": instance}) == (["200 OK"], [b"scored"])
    router.close()
    instance.close()
    # A server that does not say which connection it is.
    assert answers({}) == (["200 OK"], [b"scored"])
