"""Responses whose bytes are due as soon as they exist.

Owns: the headers that keep proxies from collecting them.
Leaves: what is streamed, and its end, to the routes; ending one that its reader may no longer have
to workspaces/guarded_routes.py.
Always: nothing in between stores such a response.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable

from fastapi.responses import StreamingResponse

# nginx collects the bytes of other responses, so that a slow reader does not hold the server.
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


class LiveStream(StreamingResponse):
    """
    Args:
        last_words: what is sent when it is ended because its reader may no longer have it.
        may_go_on: whether its reader still may, beside what the request's route needs; called in
            a thread, as long as it lasts.
    """

    def __init__(
        self,
        content: AsyncIterable[bytes] | Iterable[bytes],
        media_type: str,
        last_words: bytes = b"",
        may_go_on: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(content, headers=_HEADERS, media_type=media_type)
        self.last_words = last_words
        self.may_go_on = may_go_on
