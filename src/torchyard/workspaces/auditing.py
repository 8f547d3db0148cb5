"""Middleware that records requests in the audit log.

Owns: which requests are recorded.
Leaves: the lines to audit.py; identity and permission to access.py and guarded_routes.py, which
note them while the request passes.
Always: metrics and reads cost no more than a check of their status; requests without a valid token
add a bounded number of lines per minute.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from torchyard.workspaces import audit
from torchyard.workspaces.permissions import UNAUDITED, Permission

STRANGERS_A_MINUTE = 60


class Auditing:
    """ASGI middleware around everything else."""

    def __init__(self, app: ASGIApp, lines: audit.Audit) -> None:
        self._app = app
        self._lines = lines
        self._gathered: _Gathered | None = None
        self._minute = 0
        self._strangers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note = audit.begin(scope)
        method, path = scope["method"], scope["path"]

        is_answered = False

        async def record(status: int) -> None:
            if self._is_worth(method, status, note):
                client = scope.get("client")
                line = audit.line_of(note, method, path, status, client[0] if client else "")
                await self._write(line)

        async def watched(message: Message) -> None:
            nonlocal is_answered
            if message["type"] == "http.response.start":
                is_answered = True
                await record(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception:
            if not is_answered:
                # Starlette answers what nobody has caught outside of all middleware.
                await record(500)
            raise

    async def _write(self, line: Mapping[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        if self._gathered is None or self._gathered.loop is not loop:
            self._gathered = _Gathered(self._lines, loop)
        await self._gathered.add(line)

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


class _Gathered:
    """The lines of requests that end at the same time, written by one thread in one go."""

    def __init__(self, lines: audit.Audit, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lines = lines
        self._waiting: list[tuple[Mapping[str, Any], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, line: Mapping[str, Any]) -> None:
        """Returns when the line was written."""
        written: asyncio.Future[None] = self.loop.create_future()
        self._waiting.append((line, written))
        if self._writing is None or self._writing.done():
            self._writing = self.loop.create_task(self._write_all())
        await written

    async def _write_all(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting, []
            try:
                await run_in_threadpool(self._write, [line for line, _ in some])
            except BaseException as error:
                for _, written in some:
                    if not written.done():
                        written.set_exception(error)
                continue
            for _, written in some:
                if not written.done():
                    written.set_result(None)

    def _write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        for line in lines:
            self._lines.write(line)
