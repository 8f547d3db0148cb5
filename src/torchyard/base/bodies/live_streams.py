"""Responses whose bytes are due as soon as they exist.

Owns: the headers that keep proxies from collecting them.
Leaves: what is streamed, and its end, to the routes.
Always: nothing in between stores such a response.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable

from fastapi.responses import StreamingResponse

# nginx collects the bytes of other responses, so that a slow reader does not hold the server.
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class LiveStream(StreamingResponse):
    def __init__(self, content: AsyncIterable[bytes] | Iterable[bytes], media_type: str) -> None:
        super().__init__(content, headers=_HEADERS, media_type=media_type)
