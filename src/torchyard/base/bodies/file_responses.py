"""A file as the body of a response, as it was when the response began.

Owns: what happens when the file grows or is replaced meanwhile.
Leaves: ranges and validators to Starlette; headers of their own to the callers.
Always: as many bytes as were promised, of the one file that was opened.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-content-length
"""

from __future__ import annotations

import os
import stat

from fastapi.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from torchyard.base.errors import NotFound

# A job may leave a named pipe where a file was: to open it waits for nobody.
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


class OpenFileResponse(FileResponse):
    """A file that others may be writing, such as the log of a running job.

    Starlette promises the size that the file had, then sends what it holds by now; more than was
    promised ends the connection.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            descriptor = await run_in_threadpool(os.open, self.path, _FLAGS)
        except FileNotFoundError:
            raise _removed_error() from None
        try:
            self.stat_result = os.fstat(descriptor)
            if not stat.S_ISREG(self.stat_result.st_mode):
                raise _removed_error()
            # By this name the same file is opened again, whatever stands at its path by then.
            self.path = f"/dev/fd/{descriptor}"
            self.set_stat_headers(self.stat_result)
            await super().__call__(scope, receive, _Promised(send))
        finally:
            os.close(descriptor)


class _Promised:
    """Sends what was promised of a body, and drops what is beyond it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._left = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            lengths = [value for name, value in message["headers"] if name == b"content-length"]
            self._left = int(lengths[0])
        elif message["type"] == "http.response.body":
            body = message["body"][: self._left]
            self._left -= len(body)
            message = {**message, "body": body}
        await self._send(message)


def _removed_error() -> NotFound:
    return NotFound("the file was removed while it was read", "list the files, and read again")
