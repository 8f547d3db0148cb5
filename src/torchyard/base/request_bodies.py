"""Read a request's body, up to a limit.

Owns: the limit, refusing text that no database stores.
Leaves: which limit a route has to the route, what a body means to the parsers.
Always: nothing is read beyond the limit, nor at all when the announced length exceeds it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping

from starlette.requests import Request
from starlette.types import Message, Receive

from torchyard.base.errors import InvalidInput, LimitExceeded

DEFAULT_LIMIT_BYTES = 16 << 20
STRANGERS_LIMIT_BYTES = 64 << 10
"""For requests without a token."""
UNLIMITED = sys.maxsize
"""The endpoint reads the body itself, as a stream."""

_SUSPICIOUS_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


async def with_body(request: Request, limit_bytes: int) -> Request:
    """The request, its body read whole, unless the limit is `UNLIMITED`.

    Raises:
        LimitExceeded: the body is larger than the limit.
        InvalidInput: the body holds a NUL character or half a surrogate pair.
    """
    if limit_bytes == UNLIMITED or not _announces_body(request.headers):
        return request
    return Request(request.scope, await _read(request, limit_bytes))


def _announces_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "").isdigit() or bool(headers.get("transfer-encoding"))


async def _read(request: Request, limit_bytes: int) -> Receive:
    """Read the body; returns a `receive` that yields it once more."""
    too_large = LimitExceeded(
        f"the request's body is larger than {limit_bytes >> 10} KiB", "send less at once"
    )
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > limit_bytes):
        raise too_large
    parts = []
    size_bytes = 0
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            return _replay(message, request.receive)
        parts.append(message.get("body", b""))
        size_bytes += len(parts[-1])
        if size_bytes > limit_bytes:
            raise too_large
        if not message.get("more_body", False):
            break
    body = b"".join(parts)
    content_type = request.headers.get("content-type", "")
    if _SUSPICIOUS_ESCAPE.search(body) and "octet-stream" not in content_type:
        _check_text(body)
    return _replay({"type": "http.request", "body": body, "more_body": False}, request.receive)


def _replay(message: Message, receive: Receive) -> Receive:
    messages = [message]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

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
            "the request's body holds half of a surrogate pair, which is not text",
            "send whole ones",
        ) from error
    if _ESCAPED_NUL.search(text):
        raise InvalidInput("the request's body holds a NUL character", "remove it")
