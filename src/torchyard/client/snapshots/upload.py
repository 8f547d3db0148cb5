"""Send a snapshot: only what the server lacks.

Owns: the order of requests, bundles of small files.
Leaves: the requests themselves to a `Store`, which snapshots.py gives; large files to
large_files.py.
Always: a snapshot that is remembered here, and that the server has, costs one request; a blob is
sent under the name its bytes have at the moment they are sent, or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from torchyard.base.errors import TorchyardError
from torchyard.client.snapshots.snapshot import Content, Snapshot

_BUNDLE_BYTES = 8 << 20
_SMALL_BYTES = 1 << 20
_ASK_AT_ONCE = 20_000

Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and the bytes to send."""


class Store(Protocol):
    """Takes blobs and snapshots."""

    def missing(self, hashes: list[str]) -> list[str]: ...
    def put_large(self, contents: Sequence[Content], add: Callable[[int], None]) -> None: ...
    def put_bundle(self, bundle: bytes) -> None: ...
    def put_snapshot(self, manifest: bytes) -> str: ...


def upload(snapshot: Snapshot, store: Store, progress: Progress | None = None) -> str:
    """Make the server hold `snapshot`; returns its id.

    Raises:
        Conflict: a file changed since it was hashed.
    """
    if not snapshot.is_new:
        try:
            return store.put_snapshot(snapshot.manifest)
        except TorchyardError as error:
            if error.code != "blobs_missing":
                raise
    by_hash = {content.sha256: content for content in snapshot.contents()}
    hashes = list(by_hash)
    lacking = [
        by_hash[sha256]
        for start in range(0, len(hashes), _ASK_AT_ONCE)
        for sha256 in store.missing(hashes[start : start + _ASK_AT_ONCE])
    ]
    total, sent = sum(content.size_bytes for content in lacking), 0

    def add(size_bytes: int) -> None:
        nonlocal sent
        sent += size_bytes
        if progress is not None:
            progress(sent, total)

    large = [content for content in lacking if content.size_bytes > _SMALL_BYTES]
    if large:
        store.put_large(large, add)
    small = (content for content in lacking if content.size_bytes <= _SMALL_BYTES)
    for bundle, size_bytes in _bundles(small):
        store.put_bundle(bundle)
        add(size_bytes)
    return store.put_snapshot(snapshot.manifest)


def _bundles(contents: Iterable[Content]) -> Iterator[tuple[bytes, int]]:
    frames: list[bytes] = []
    size_bytes = 0
    for content in contents:
        data = content.kept
        if data is None:
            with content.opened() as file:
                data = file.read()
            if hashlib.sha256(data).hexdigest() != content.sha256:
                raise content.changed()
        frames += [f"{content.sha256} {len(data)}\n".encode(), data]
        size_bytes += len(data)
        if size_bytes >= _BUNDLE_BYTES:
            yield b"".join(frames), size_bytes
            frames, size_bytes = [], 0
    if frames:
        yield b"".join(frames), size_bytes
