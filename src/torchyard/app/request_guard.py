"""What is refused before any route is looked for, and how the server signs its answers.

Owns: which hosts and versions are answered to, how long headers and query may be, the server's
header.
Leaves: who may pass and how large a body may be to workspaces/guarded_routes.py, connections to
uvicorn and to a proxy before it.
Always: nothing of a body is read here.

Source: a web page can reach a server on loopback by a name of its own that resolves there ("DNS
rebinding"); it can't choose another Host header: https://crypto.stanford.edu/dns/dns-rebinding.pdf
"""

from __future__ import annotations

from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchyard.app.refusals import refuse
from torchyard.base import request_headers, versions
from torchyard.base.bodies.request_bodies import BUSY
from torchyard.base.errors import Forbidden, InvalidInput, LimitExceeded, TorchyardError

_AS_SERVED = (b"x-content-type-options", b"nosniff")
_RETRY_AFTER = (b"retry-after", b"2")
SERVER_HEADER = b"x-torchyard-server"
_DISOWNED = (401, 410)
_OF_WORKERS = "/v1/attempts/"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

_HEADERS_MOST_BYTES = 64 << 10
# So that a command can tell that a server runs, and of which version.
_OPEN_TO_ANY_VERSION = ("/health", "/livez")


class RequestGuard:
    """ASGI middleware around the whole app.

    Args:
        hosts: the names that plain requests may call the server by; any when empty.
        server_id: said with every answer to a worker and every refusal of a token, so that a
            worker can tell its own server from another one that has taken its port.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] = (), server_id: str = "") -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._server_id = server_id.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = self._signed(scope, send, scope["path"].startswith(_OF_WORKERS))
        try:
            self._check(scope)
        except TorchyardError as error:
            await refuse(scope, send, error)
            return
        await self._app(scope, receive, send)

    def _signed(self, scope: Scope, send: Send, always: bool) -> Send:
        async def signed(message: Message) -> None:
            starts = message["type"] == "http.response.start"
            if starts and all(name != _AS_SERVED[0] for name, _ in message["headers"]):
                # No browser takes what a person uploaded for something else than it is served as.
                message["headers"] = [*message["headers"], _AS_SERVED]
            if starts and BUSY in scope:
                message["headers"] = [*message["headers"], _RETRY_AFTER]
            if starts and (always or message["status"] in _DISOWNED):
                message["headers"] = [*message["headers"], (SERVER_HEADER, self._server_id)]
            await send(message)

        return signed

    def _check(self, scope: Scope) -> None:
        size_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        if size_bytes + len(scope.get("query_string", b"")) > _HEADERS_MOST_BYTES:
            raise _TooLong("the request's headers and query are longer than 64 KiB", "shorten them")
        if "\0" in scope["path"] or b"%00" in scope.get("query_string", b""):
            raise InvalidInput("the request's address contains a NUL character", "remove it")
        if scope["path"] not in _OPEN_TO_ANY_VERSION:
            refusal = versions.refusal(request_headers.header(scope, b"user-agent"))
            if refusal is not None:
                raise refusal
        if self._hosts and scope.get("scheme") == "http":
            host = _name_of(request_headers.header(scope, b"host"))
            if host not in self._hosts:
                raise Forbidden(
                    f"this server does not answer to the name `{host[:80]}`",
                    "ask it as `127.0.0.1` or `localhost`; to be reached by others it is started "
                    "with `--host`",
                    code="wrong_host",
                )


class _TooLong(LimitExceeded):
    """The status that HTTP has for headers."""

    http_status = 431


def _name_of(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()
