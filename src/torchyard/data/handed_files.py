"""Store files that were handed over as open descriptors.

Owns: copying beside hashing, what is said meanwhile, the limits.
Leaves: descriptors to base/bodies/handover.py, where the bytes are to base/blobs.py.
Always: the sha256 is of the bytes that are stored; a file that changed meanwhile is refused; the
program that handed it over holds up nobody but itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import AsyncIterator
from typing import Any

from torchyard.base import disk
from torchyard.base.blobs import Blobs
from torchyard.base.bodies.handover import in_handover_thread, not_handed
from torchyard.base.errors import Conflict, TorchyardError
from torchyard.base.files import OpenFile

_PIECE_BYTES = 32 << 20
_SAID_EVERY_S = 0.5
_log = logging.getLogger(__name__)


async def stored(blobs: Blobs, source: OpenFile) -> AsyncIterator[bytes]:
    """Lines of JSON: `stored_bytes` so far, at the end `sha256` and `size_bytes`, or `error` with
    its `status`.
    """
    try:
        async for progress in _store(blobs, source):
            yield _line(progress)
    except (TorchyardError, OSError) as error:
        refusal = error if isinstance(error, TorchyardError) else disk.meaning(error)
        if refusal is None:
            _log.warning("a file that was handed over can't be stored", exc_info=error)
            refusal = not_handed(str(error))
        yield _line({**refusal.to_json(), "status": refusal.http_status})


async def _store(blobs: Blobs, source: OpenFile) -> AsyncIterator[dict[str, Any]]:
    before = await in_handover_thread(os.fstat, source.descriptor)
    size_bytes = before.st_size
    said_at_s = time.monotonic()
    with blobs.arriving() as arriving:
        await in_handover_thread(arriving.clone, source, size_bytes)
        while True:
            copied = arriving.copied_bytes
            piece_bytes = min(_PIECE_BYTES, size_bytes - copied)
            end = min(copied, arriving.hashed_bytes + _PIECE_BYTES)
            # Those that were written by now are hashed while the next are copied.
            await asyncio.gather(
                in_handover_thread(arriving.copy, source, piece_bytes),
                in_handover_thread(arriving.hash, end),
            )
            if arriving.copied_bytes == copied == arriving.hashed_bytes:
                break
            if time.monotonic() - said_at_s >= _SAID_EVERY_S:
                said_at_s = time.monotonic()
                yield {"stored_bytes": arriving.hashed_bytes}
        after = await in_handover_thread(os.fstat, source.descriptor)
        is_same = (before.st_mtime_ns, size_bytes) == (after.st_mtime_ns, after.st_size)
        if not is_same or arriving.hashed_bytes != size_bytes:
            raise Conflict(
                "the file changed while it was read", "submit again when nothing writes to it"
            )
        sha256 = await in_handover_thread(blobs.keep, arriving)
    yield {"sha256": sha256, "size_bytes": size_bytes}


def _line(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields).encode() + b"\n"
