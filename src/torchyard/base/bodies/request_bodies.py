"""Read a request's body, up to a limit.

Owns: the limit, how many values JSON may have, refusing text that no database stores.
Leaves: which limit a route has to the route, what a body means to the parsers, where it is kept
meanwhile to body_spool.py.
Always: nothing is read beyond the limit, nor at all when the announced length exceeds it; a long
body is held in memory only while its request is worked on.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive

from torchyard.base.bodies import json_values
from torchyard.base.bodies.body_spool import ArrivingBody, BodySpool, in_body_thread
from torchyard.base.errors import InvalidInput, LimitExceeded, ServerBusy

DEFAULT_LIMIT_BYTES = 4 << 20
WORKERS_LIMIT_BYTES = 16 << 20
"""A worker's batch of history has 4 MiB before it is encoded once more."""
STRANGERS_LIMIT_BYTES = 64 << 10
"""For requests without a token."""
UNLIMITED = sys.maxsize
"""The endpoint reads the body itself, as a stream."""
_MOST_VALUES = 250_000
"""Of one JSON or XML document."""
BUSY = "torchyard.busy"
"""Where a request's scope says that the server had no room for it."""

_SUSPICIOUS_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")


def has_body(request: Request, limit_bytes: int) -> bool:
    """Whether `with_body` has something to read."""
    return limit_bytes != UNLIMITED and _announces_body(request.headers)


@asynccontextmanager
async def with_body(
    request: Request, limit_bytes: int, is_file: bool = False
) -> AsyncIterator[Request]:
    """The request, its body read whole; the block is what works on it.

    Args:
        is_file: the body is stored as it is, or parsed by the block in its own way.

    Raises:
        LimitExceeded: the body is larger than the limit, or has too many values.
        InvalidInput: the body holds a NUL character or half a surrogate pair.
        ServerBusy: bodies of other requests take all the disk space or time there is for them.
    """
    spool: BodySpool = request.app.state.body_spool
    body = ArrivingBody(spool)
    try:
        broken_off = await _read(request, limit_bytes, body)
        if broken_off is not None:
            yield Request(request.scope, _replay(broken_off, request.receive))
            return
        is_text = not is_file and "octet-stream" not in request.headers.get("content-type", "")
        if not body.is_spooled:
            content = _load(body, is_text)
            yield Request(request.scope, _replay_content(content, request.receive))
            return
        async with spool.working() if body.is_large else nullcontext():
            content = await in_body_thread(_load, body, is_text)
            yield Request(request.scope, _replay_content(content, request.receive))
    except ServerBusy:
        request.scope[BUSY] = True
        raise
    finally:
        body.drop()


def _announces_body(headers: Mapping[str, str]) -> bool:
    return headers.get("content-length", "").isdigit() or bool(headers.get("transfer-encoding"))


async def _read(request: Request, limit_bytes: int, body: ArrivingBody) -> Message | None:
    """Read all of it into `body`; returns the message that broke it off, if one did."""
    too_large = LimitExceeded(
        f"the request's body is larger than {limit_bytes >> 10} KiB", "send less at once"
    )
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and (len(announced) > 18 or int(announced) > limit_bytes):
        raise too_large
    while True:
        message = await request.receive()
        if message["type"] != "http.request":
            return message
        chunk = message.get("body", b"")
        if body.size_bytes + len(chunk) > limit_bytes:
            raise too_large
        await body.add(chunk)
        if not message.get("more_body", False):
            return None


def _replay_content(content: bytes, receive: Receive) -> Receive:
    return _replay({"type": "http.request", "body": content, "more_body": False}, receive)


def _replay(message: Message, receive: Receive) -> Receive:
    """A `receive` that yields the message once more."""
    messages = [message]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _load(body: ArrivingBody, is_text: bool) -> bytes:
    """
    Raises:
        LimitExceeded: it is a document with too many values.
        InvalidInput: as `_check_text`.
    """
    content = body.content()
    if is_text:
        if json_values.most_values(content) > _MOST_VALUES:
            raise LimitExceeded(
                f"the request's body has more than {_MOST_VALUES:,} values", "send fewer at once"
            )
        _check_text(content)
    return content


def _check_text(body: bytes) -> None:
    """
    Raises:
        InvalidInput: the JSON has half a character, or a NUL, which no database keeps as text.
    """
    if b"\\u" not in body or not _SUSPICIOUS_ESCAPE.search(body):
        return
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return  # the route says what is wrong with it
    for text in _texts(document):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "the request's body contains half of a surrogate pair, which is not text",
                "send whole ones",
            ) from error
        if "\0" in text:
            raise InvalidInput("the request's body contains a NUL character", "remove it")


def _texts(document: Any) -> Iterator[str]:
    """All texts in a JSON document, names among them."""
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
