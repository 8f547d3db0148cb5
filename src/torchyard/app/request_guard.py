"""The doors of the server: what is turned away before any room sees it.

Owns: which hosts are answered to, how large a request may be, text that no database keeps.
Leaves: who may pass to workspaces/access.py, connections and their pace to listeners.py.
Always: nothing is read beyond what a route takes; only routes that write what they read to disk
take bodies of any size.

Source: a web page can reach a server on loopback by a name of its own that resolves there ("DNS
rebinding"); it can't choose another Host header: https://crypto.stanford.edu/dns/dns-rebinding.pdf
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from torchyard.azureml.common import errors as azure_errors
from torchyard.base.errors import Forbidden, InvalidInput, LimitExceeded, TorchyardError

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SERVER_HEADER = b"x-torchyard-server"
_DISOWNED = (401, 410)
_OF_WORKERS = "/v1/attempts/"
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

_HEADERS_MOST_BYTES = 64 << 10
_STRANGERS_MOST_BYTES = 64 << 10
_MOST_BYTES = 16 << 20
# Routes that write to disk what they read; their rooms say how much.
_STREAMED = re.compile(
    r"/v1/workspaces/[^/]+/blobs(?:/[0-9a-f]{64})?|/v1/attempts/[^/]+/(?:files|outputs)/.*"
    r"|(?:/mlflow/[^/]+)?/(?:ajax-)?api/2\.0/mlflow-artifacts/(?:artifacts/.*|mpu/parts/[^/]+/\d+)",
    re.DOTALL,
)
# Its requests are signed and carry no token; nothing of a body is read before the signature is.
_SIGNED = re.compile(r"/azureml-blob/.*", re.DOTALL)
_OTHERS = (
    # A worker's chunk is 1 MiB.
    (re.compile(r"/v1/attempts/[^/]+/logs"), 4 << 20),
    # 100,000 files and more: their number has a limit of its own at the client.
    (re.compile(r"/v1/workspaces/[^/]+/(?:snapshots|blobs/missing)"), 64 << 20),
)
_NO_TEXT = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class Doors:
    """ASGI middleware around the whole app.

    Args:
        hosts: the names that plain requests may call the server by; any when empty.
        server_id: said with every answer to a worker and every refusal of a token, so that a
            worker can tell its own server from another one that has taken its port.
    """

    def __init__(self, app: App, hosts: Collection[str] = (), server_id: str = "") -> None:
        self._app = app
        self._hosts = frozenset(hosts)
        self._server_id = server_id.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = self._signed(send, scope["path"].startswith(_OF_WORKERS))
        try:
            self._look_at(scope)
            limit = _limit(scope)
            if limit is not None:
                receive = await _read(scope, receive, limit)
        except TorchyardError as error:
            await _refuse(scope, send, error)
            return
        await self._app(scope, receive, send)

    def _signed(self, send: Send, always: bool) -> Send:
        async def signed(message: MutableMapping[str, Any]) -> None:
            starts = message["type"] == "http.response.start"
            if starts and (always or message["status"] in _DISOWNED):
                message["headers"] = [*message["headers"], (SERVER_HEADER, self._server_id)]
            await send(message)

        return signed

    def _look_at(self, scope: Scope) -> None:
        size_bytes = sum(len(name) + len(value) for name, value in scope["headers"])
        if size_bytes + len(scope.get("query_string", b"")) > _HEADERS_MOST_BYTES:
            raise _TooLong("the request's headers and query are longer than 64 KiB", "shorten them")
        if "\0" in scope["path"] or b"%00" in scope.get("query_string", b""):
            raise InvalidInput("the request's address holds a NUL character", "remove it")
        if self._hosts and scope.get("scheme") == "http":
            host = _name_of(_header(scope, b"host"))
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


def _limit(scope: Scope) -> int | None:
    """How many bytes of body the request may have; None for any number."""
    path = scope["path"]
    if _SIGNED.fullmatch(path):
        return None
    if _header(scope, b"authorization")[:7].lower() != "bearer ":
        return _STRANGERS_MOST_BYTES
    if scope["method"] in ("PUT", "POST") and _STREAMED.fullmatch(path):
        return None
    return next((limit for route, limit in _OTHERS if route.fullmatch(path)), _MOST_BYTES)


async def _read(scope: Scope, receive: Receive, limit: int) -> Receive:
    """The body, whole; a `receive` that gives it once more."""
    promised = _header(scope, b"content-length")
    if not promised.isdigit() and not _header(scope, b"transfer-encoding"):
        return receive
    too_large = LimitExceeded(
        f"the request's body is larger than {limit >> 10} KiB", "send less at once"
    )
    if promised.isdigit() and (len(promised) > 18 or int(promised) > limit):
        raise too_large
    parts = []
    size_bytes = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return _again([message], receive)
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > limit:
            raise too_large
        if not message.get("more_body", False):
            break
    body = b"".join(parts)
    if _NO_TEXT.search(body) and "octet-stream" not in _header(scope, b"content-type"):
        _check_text(body)
    return _again([{"type": "http.request", "body": body, "more_body": False}], receive)


def _again(messages: list[MutableMapping[str, Any]], receive: Receive) -> Receive:
    async def replay() -> MutableMapping[str, Any]:
        return messages.pop(0) if messages else await receive()

    return replay


def _check_text(body: bytes) -> None:
    """
    Raises:
        InvalidInput: the JSON has half a character, or a NUL, which no database keeps as text.
    """
    try:
        text = json.dumps(json.loads(body), ensure_ascii=False)
    except (ValueError, RecursionError):
        return  # the route says what is wrong with it
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "the request's body holds half of a surrogate pair, which is no text", "send whole ones"
        ) from error
    if _ESCAPED_NUL.search(text):
        raise InvalidInput("the request's body holds a NUL character", "remove it")


async def _refuse(scope: Scope, send: Send, error: TorchyardError) -> None:
    body = error.to_json()
    if "/api/2.0/mlflow" in scope["path"]:
        # MLflow's clients read these two.
        body = {"error_code": "INVALID_PARAMETER_VALUE", "message": error.message, **body}
    elif scope["path"].startswith(("/azureml/", "/azureml-above/")):
        body = azure_errors.envelope(error)
    content = json.dumps(body).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
    ]
    await send({"type": "http.response.start", "status": error.http_status, "headers": headers})
    await send({"type": "http.response.body", "body": content})


def _header(scope: Scope, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            return str(value.decode("latin-1"))
    return ""


def _name_of(host: str) -> str:
    """A Host header without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()
