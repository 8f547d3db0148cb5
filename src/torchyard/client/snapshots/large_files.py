"""Send large files: several at a time, and of one that was cut off only what is left.

Owns: the connections, the way on after a break, who hears of the bytes that were sent.
Leaves: which files to upload.py, bundles of small ones too.
Always: a file that is no longer what was hashed is refused, also in the middle of it; memory holds
a block of each file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import Empty, SimpleQueue

from torchyard.base.errors import InvalidInput, Unreachable
from torchyard.base.http import Transport
from torchyard.client.snapshots.snapshot import Content

_AT_ONCE = 4
_BLOCK_BYTES = 1 << 20
# So long nothing may arrive; a server that starts anew needs seconds.
_PATIENCE_S, _PAUSE_S, _NOTICED_S = 60.0, 0.5, 10.0
# The server reads again what it has of a file, before it takes more.
_READ_AGAIN_BYTES_PER_S = 50e6

Add = Callable[[int], None]
"""Called with the number of bytes sent since the last call; negative if some have to be again."""


class Stopped(Exception):
    """Another file has failed, or the user has pressed Ctrl-C."""


def send_all(transport: Transport, folder: str, contents: Sequence[Content], add: Add) -> None:
    """Send files to the blobs below the path `folder`.

    Raises:
        Conflict: a file changed since it was hashed.
        Unreachable: nothing more arrived for a minute.
    """
    left: SimpleQueue[Content] = SimpleQueue()
    for content in contents:
        left.put(content)
    stop, lock = threading.Event(), threading.Lock()

    def count(size_bytes: int) -> None:
        if stop.is_set():
            raise Stopped
        with lock:
            add(size_bytes)

    def work() -> None:
        with closing(transport.twin()) as connection:
            while True:
                try:
                    content = left.get_nowait()
                except Empty:
                    return
                _send(connection, f"{folder}/{content.sha256}", content, count)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        try:
            for done in [threads.submit(work) for _ in contents[:_AT_ONCE]]:
                done.result()
        finally:
            stop.set()


def _send(connection: Transport, path: str, content: Content, add: Add) -> None:
    start = sent = 0
    until = time.monotonic() + _PATIENCE_S

    def counted(blocks: Iterable[bytes]) -> Iterator[bytes]:
        nonlocal sent
        for block in blocks:
            add(len(block))
            sent += len(block)
            yield block

    while True:
        try:
            connection.send(
                "PUT",
                path,
                counted(_blocks(content, start)),
                content.size_bytes - start,
                query={"start": start} if start else None,
            )
            return
        except InvalidInput:
            if not start:
                raise
            # What was there may have been another one's, of other bytes.
            add(-sent)
            start = sent = 0
        except Unreachable:
            connection.close()
            came = _came(connection, path, until)
            if came is None:
                add(content.size_bytes - sent)
                return
            add(came - sent)
            if came > start:
                until = time.monotonic() + _PATIENCE_S + came / _READ_AGAIN_BYTES_PER_S
            elif time.monotonic() > until:
                raise
            start = sent = came
            connection.limit_answers(_PATIENCE_S + start / _READ_AGAIN_BYTES_PER_S)


def _came(connection: Transport, path: str, until: float) -> int | None:
    """How much the server has of a file; None if it has all of it."""
    cut_at = time.monotonic()
    while True:
        time.sleep(_PAUSE_S)
        try:
            part = connection.get(f"{path}/part")
        except Unreachable:
            if time.monotonic() > until:
                raise
            continue
        # It may not have noticed yet that the connection was cut.
        if not part["is_arriving"] or time.monotonic() > cut_at + _NOTICED_S:
            return None if part["is_stored"] else int(part["size_bytes"])


def _blocks(content: Content, start: int) -> Iterator[bytes]:
    """Exactly as many bytes as were promised: more or fewer would break the request's frame."""
    left = content.size_bytes - start
    with content.opened() as file:
        file.seek(start)
        while left:
            block = file.read(min(left, _BLOCK_BYTES))
            if not block:
                raise content.changed()
            left -= len(block)
            yield block
