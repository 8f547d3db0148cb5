"""A file as the body of a response, as it was when the response began.

Owns: what happens when the file grows or is replaced meanwhile.
Leaves: ranges and validators to Starlette; headers of their own to the callers.
Always: as many bytes as were promised, of the one file that was opened.

Source: https://www.rfc-editor.org/rfc/rfc9110#name-content-length
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast

from fastapi.concurrency import run_in_threadpool
from starlette.responses import FileResponse
from starlette.types import Message, Receive, Scope, Send

from torchyard.base import files
from torchyard.base.errors import NotFound
from torchyard.base.files import OpenFile, Readable


class OpenFileResponse(FileResponse):
    """A file that others may be writing, such as the log of a running job.

    Starlette promises the size that the file had, then sends what it holds by now; more than was
    promised ends the connection.
    """

    # Each piece costs a change of threads; Starlette's of 64 KiB are for many slow readers.
    chunk_size = 256 << 10

    def __init__(
        self,
        file: Readable,
        media_type: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("", media_type=media_type, headers=headers)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened = await run_in_threadpool(files.reading, self._file)
        except FileNotFoundError:
            raise _removed_error() from None
        finally:
            if isinstance(self._file, OpenFile):
                self._file.close()
        with opened:
            self.stat_result = os.fstat(opened.fileno())
            # Starlette opens what this says: the same file, whatever stands at its path by then.
            self.path = cast(str, _Descriptor(opened.fileno()))
            self.set_stat_headers(self.stat_result)
            await super().__call__(scope, receive, _Promised(send))


class _Descriptor:
    """A number that is a descriptor of its own each time `open` takes it, which then closes it.

    A path below /dev/fd would be opened again, and a file of another account is not this user's.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __index__(self) -> int:
        duplicate = os.dup(self._descriptor)
        os.lseek(duplicate, 0, os.SEEK_SET)
        return duplicate


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
