"""The process that writes files from memory.

Owns: its loop, the order of writing, syncing and renaming, the record of what was written.
Leaves: the copy in memory to background, which starts it.
Always: a file is replaced by a rename of its durable draft, so its path has the file before or the
whole new one. It goes on until all that was handed over is written, also when its rank was killed.
"""

from __future__ import annotations

import array
import contextlib
import csv
import errno
import io
import json
import os
import socket
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from torchyard.train.saved_files import drafts

MESSAGE_BYTES = 64 << 10
_BLOCK_BYTES = 16 << 20
# Between tries after an error of the disk; after the last one the file is given up.
_RETRY_DELAYS_S = (1.0, 4.0, None)
_COLUMNS = ("rank", "path", "size_bytes", "blocked_s", "saved_at", "durable_at", "error")


def main(descriptor: int) -> None:
    """Write what comes through the socket until its other end is closed."""
    size = array.array("i").itemsize
    with socket.socket(fileno=descriptor) as connection:
        while True:
            try:
                content, ancillary, _, _ = connection.recvmsg(
                    MESSAGE_BYTES, socket.CMSG_SPACE(2 * size)
                )
            except ConnectionResetError:
                # Comes once, before what is queued, if the other end died with reports unread.
                continue
            if not content:
                return
            descriptors = array.array("i")
            for _, _, data in ancillary:
                descriptors.frombytes(data[: len(data) - len(data) % size])
            save(connection, json.loads(content), *descriptors)


def save(connection: socket.socket, message: dict[str, Any], memory: int, draft: int) -> None:
    """Write one file and report; errors don't end the process."""
    code, text = 0, ""
    for delay_s in _RETRY_DELAYS_S:
        try:
            write(memory, draft, message["size_bytes"], message["draft"], message["path"])
            code, text = 0, ""
            break
        except OSError as error:
            code, text = error.errno or errno.EIO, error.strerror or str(error)
            if delay_s is not None:
                with contextlib.suppress(OSError):
                    os.ftruncate(draft, 0)
                _send(connection, {"told": f"`{message['path']}` can't be written: {text}; trying "
                                           f"again in {delay_s:g} s"})  # fmt: skip
                time.sleep(delay_s)
    if code:
        with contextlib.suppress(OSError):
            if drafts.is_at(draft, Path(message["draft"])):
                os.unlink(message["draft"])
    # First, so that a reader that waited for the file meets what its save has become.
    _send(connection, {"number": message["number"], "code": code, "text": text})
    drafts.end(draft)
    os.close(memory)
    _record(message, text)


def write(memory: int, draft: int, size_bytes: int, draft_path: str, path: str) -> None:
    """Make `size_bytes` of memory the file at `path`.

    Raises:
        OSError: the file there is as it was.
    """
    if not drafts.is_at(draft, Path(draft_path)):
        return  # the process that this one replaces was killed after the rename
    os.ftruncate(draft, 0)
    offset = 0
    while offset < size_bytes:
        block = os.pread(memory, min(_BLOCK_BYTES, size_bytes - offset), offset)
        view = memoryview(block)
        while view:
            written = os.pwrite(draft, view, offset)
            view, offset = view[written:], offset + written
    try:
        commit(draft, draft_path, path)
    except FileNotFoundError:
        if os.path.isdir(os.path.dirname(path)):
            raise
        os.unlink(draft_path)  # the folder was deleted after the save, and the file with it


def commit(draft: int, draft_path: str, path: str) -> None:
    """Make the draft durable, then the file at `path`."""
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(draft, os.stat(path).st_mode & 0o7777)
    os.fsync(draft)
    os.rename(draft_path, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _record(message: dict[str, Any], error: str) -> None:
    """Add a line to the job's table of saves."""
    if not message["record"]:
        return
    row = {
        **message,
        "blocked_s": f"{message['blocked_s']:.4f}",
        "saved_at": _utc(message["saved_at"]),
        "durable_at": "" if error else _utc(time.time()),
        "error": error,
    }
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    try:
        with open(message["record"], "ab") as file:
            if file.tell() == 0:
                table.writerow(_COLUMNS)
            table.writerow([row[column] for column in _COLUMNS])
            file.write(text.getvalue().encode("utf-8", "surrogateescape"))
    except OSError:
        pass  # the file itself is written


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def _send(connection: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the rank has ended
        connection.send(json.dumps(message).encode())
