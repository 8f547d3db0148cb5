"""Send large files, several at a time, and resume one whose connection was cut.

Owns: the connections, resuming, the count of bytes that were sent.
Leaves: which files to send to upload.py, and bundles of small files.
Always: a file that is no longer what was hashed is refused; memory holds one block of each file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import Empty, SimpleQueue

from torchyard.base.errors import Conflict, InvalidInput, Unreachable
from torchyard.base.http import Transport
from torchyard.client.snapshots.snapshot import CommandStopped, Content

_AT_ONCE = 4
_BLOCK_BYTES = 1 << 20
# How long nothing may arrive, which covers a restart of the server; how soon after a cut the server
# is asked; how long it may take to notice the cut.
_PATIENCE_S, _PAUSE_S, _NOTICED_S = 60.0, 0.5, 10.0
# Before it takes more, the server reads what it has of a file.
_READ_AGAIN_BYTES_PER_S = 50e6

Add = Callable[[int], None]
"""Called with the number of bytes sent since the last call; negative if some have to be again."""


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
            raise CommandStopped
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
        except (InvalidInput, Conflict):
            if not start:
                raise
            # Other bytes were there, which somebody else had sent, or none any more.
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
    """How many bytes of a file the server has; None if the blob is complete."""
    cut_at = time.monotonic()
    while True:
        time.sleep(_PAUSE_S)
        try:
            part = connection.get(f"{path}/part")
        except Unreachable:
            if time.monotonic() > until:
                raise
            continue
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
