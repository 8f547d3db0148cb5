"""Refusal of wrong tokens before any route is looked for.

Owns: refusing requests with a wrong token from an address that has sent too many, at a fraction of
what a request costs that goes its whole way, and late, so that programs which ask again at once do
so once a second.
Leaves: counting failures and the lookup of tokens to workspaces/access.py.
Always: a request with a valid token goes on, and so does one without any; what people and other
programs watch a server by is answered to everyone.
"""

from __future__ import annotations

import asyncio

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from torchyard.app.refusals import refuse
from torchyard.base.errors import TooManyRequests
from torchyard.workspaces.access import Access, bearer_token

_PROBES = ("/health", "/livez", "/readyz")
# 250 programs that open a connection as soon as one is refused cost the event loop more than
# everything else that they could send.
_LATE_S = 1.0


class WrongTokens:
    """ASGI middleware; the client's address is what uvicorn took from a trusted proxy."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            address = scope["client"][0] if scope.get("client") else ""
            if self._access.has_failed_often(address) and scope["path"] not in _PROBES:
                try:
                    await self._check(scope, address)
                except TooManyRequests as error:
                    await asyncio.sleep(_LATE_S)
                    await refuse(scope, send, error)
                    return
        await self._app(scope, receive, send)

    async def _check(self, scope: Scope, address: str) -> None:
        token = bearer_token(scope)
        if token and not self._access.is_cached(token, address):
            await run_in_threadpool(self._access.refuse_wrong, token, address)
