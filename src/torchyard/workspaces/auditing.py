"""Middleware that records requests in the audit log.

Owns: which requests are recorded.
Leaves: the lines to audit.py; identity and permission to access.py and guarded_routes.py, which
note them while the request passes.
Always: metrics and reads cost no more than a check of their status; requests without a valid token
add a bounded number of lines per minute.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from torchyard.workspaces import audit
from torchyard.workspaces.permissions import UNAUDITED, Permission

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

STRANGERS_A_MINUTE = 60


class Auditing:
    """ASGI middleware around everything else."""

    def __init__(self, app: App, lines: audit.Audit) -> None:
        self._app = app
        self._lines = lines
        self._minute = 0
        self._strangers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note = audit.begin(scope)
        method, path = scope["method"], scope["path"]

        async def watched(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._is_worth(method, status, note):
                    client = scope.get("client")
                    line = audit.line_of(note, method, path, status, client[0] if client else "")
                    await run_in_threadpool(self._lines.write, line)
            await send(message)

        await self._app(scope, receive, watched)

    def _is_worth(self, method: str, status: int, note: MutableMapping[str, Any]) -> bool:
        permission = note.get("permission")
        if status in (401, 403):
            # Workers whose attempt has ended are refused regularly.
            return bool(note.get("user")) or (
                permission is not Permission.WORKER and self._is_new_stranger()
            )
        # Of authorized requests: those that could change something, whether or not they did.
        return "user" in note and permission not in UNAUDITED and method != "GET"

    def _is_new_stranger(self) -> bool:
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._strangers = minute, 0
        self._strangers += 1
        return self._strangers <= STRANGERS_A_MINUTE
