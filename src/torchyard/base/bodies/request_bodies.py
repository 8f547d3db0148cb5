"""Read a request's body, up to a limit.

Owns: the limit, how many values JSON may have, refusing text that no database stores.
Leaves: which limit a route has to the route, what a body means to the parsers, where it is kept
meanwhile to body_spool.py.
Always: nothing is read beyond the limit, nor at all when the announced length exceeds it; a long
body is held in memory only while its request is worked on.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive

from torchyard.base.bodies import large_json
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

# Smaller ones are parsed on the spot.
_SMALL_BYTES = 64 << 10
# What a parsed value takes in memory besides its text, with what is made of it.
_VALUE_BYTES = 250
_BETWEEN_VALUES = (b",", b"[", b"{", b"<")
# Spaces, and what UTF-8, UTF-16 and UTF-32 may begin with.
_BEFORE_DOCUMENT = b" \t\n\r\v\f\0\xef\xbb\xbf\xfe\xff"
_SUSPICIOUS_ESCAPE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
# Of a character beyond the first 65,536: how it begins in UTF-8, and half of it as an escape.
_WIDEST = re.compile(rb"[\xf0-\xf7]|\\u[dD][89a-fA-F]")


def has_body(request: Request, limit_bytes: int) -> bool:
    """Whether `with_body` has something to read."""
    return limit_bytes != UNLIMITED and _announces_body(request.headers)


@asynccontextmanager
async def with_body(
    request: Request, limit_bytes: int, is_file: bool = False, copies: int = 2
) -> AsyncIterator[Request]:
    """The request, its body read whole; the block is what works on it.

    Args:
        is_file: the body is stored as it is, or parsed by the block in its own way.
        copies: how many times the memory of such a body it takes to work on it.

    Raises:
        LimitExceeded: the body is larger than the limit, or has too many values.
        InvalidInput: the body holds a NUL character or half a surrogate pair.
        ServerBusy: bodies of other requests take all the memory or disk space there is for them.
    """
    spool: BodySpool = request.app.state.body_spool
    body = ArrivingBody(spool)
    try:
        broken_off = await _read(request, limit_bytes, body)
        if broken_off is not None:
            yield Request(request.scope, _replay(broken_off, request.receive))
            return
        is_text = not is_file and "octet-stream" not in request.headers.get("content-type", "")
        if body.size_bytes <= _SMALL_BYTES and not body.is_spooled:
            content = body.content()
            if is_text:
                _check_text(content)
            yield Request(request.scope, _whole(content, request.receive))
            return
        need_bytes = copies * body.size_bytes
        if is_text:
            need_bytes = await in_body_thread(_memory_of_text, body)
        async with spool.gate.entered(need_bytes):
            content = await in_body_thread(_load, body, is_text)
            try:
                yield _LargeRequest(request.scope, _whole(content, request.receive))
            except Exception as error:
                _forget_locals(error)
                raise
    except ServerBusy:
        request.scope[BUSY] = True
        raise
    finally:
        body.drop()


class _LargeRequest(Request):
    """Parses its JSON in a thread."""

    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = await in_body_thread(large_json.loads, await self.body())
        return self._json


def _forget_locals(error: BaseException | None) -> None:
    """Free what the functions that failed hold, which is the body and all that was made of it.

    The next large body is worked on while this error is still being answered.
    """
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


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


def _whole(content: bytes, receive: Receive) -> Receive:
    return _replay({"type": "http.request", "body": content, "more_body": False}, receive)


def _replay(message: Message, receive: Receive) -> Receive:
    """A `receive` that yields the message once more."""
    messages = [message]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def _memory_of_text(body: ArrivingBody) -> int:
    """How many bytes it takes to parse the body, if it is JSON or XML, and to work on that.

    These are its own bytes, the decoded text, the values' texts and one more copy, of characters
    that take as much as the widest of them, and what the values take besides.

    Raises:
        LimitExceeded: it has too many values.
    """
    is_document, values, width = False, 0, 1
    for chunk in body.chunks():
        if not is_document:
            start = chunk.lstrip(_BEFORE_DOCUMENT)[:1]
            if not start:
                continue  # What is in front of it is longer than a chunk.
            if start not in (b"{", b"[", b"<", b'"'):
                return 2 * body.size_bytes
            is_document = True
        width = max(width, _width(chunk))
        values += sum(chunk.count(mark) for mark in _BETWEEN_VALUES)
        if values > _MOST_VALUES:
            raise LimitExceeded(
                f"the request's body has more than {_MOST_VALUES:,} values", "send fewer at once"
            )
    return (1 + 3 * width) * body.size_bytes + _VALUE_BYTES * values


def _width(chunk: bytes) -> int:
    """Bytes for a character of a text that has this part, in UTF-8, as Python holds texts."""
    if chunk.isascii() and b"\\u" not in chunk:
        return 1
    return 4 if _WIDEST.search(chunk) else 2


def _load(body: ArrivingBody, is_text: bool) -> bytes:
    content = body.content()
    if is_text:
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
        document = large_json.loads(body)
    except (ValueError, RecursionError):
        return  # the route says what is wrong with it
    for text in _texts(document):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(
                "the request's body holds half of a surrogate pair, which is not text",
                "send whole ones",
            ) from error
        if "\0" in text:
            raise InvalidInput("the request's body holds a NUL character", "remove it")


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
