"""HTTP: blobs and snapshots, coming in and going out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from typing_extensions import TypedDict

from torchyard.assets import served_files
from torchyard.base import blob_parts
from torchyard.base.blobs import Blobs, Snapshot, SnapshotFile, check, parse_manifest
from torchyard.base.bodies.body_spool import in_blocks, in_body_thread
from torchyard.base.bodies.handover import in_handover_thread
from torchyard.base.bodies.live_streams import LiveStream
from torchyard.base.bodies.request_bodies import with_body
from torchyard.base.dependencies import BlobsOf, HandoverOf
from torchyard.base.errors import InvalidInput, LimitExceeded, NotFound
from torchyard.data import handed_files
from torchyard.workspaces.guarded_routes import UNLIMITED, GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_HEADER_LIMIT = 100
# Clients put files of up to 1 MiB into bundles.
_FRAME_MOST_BYTES = 16 << 20
# Longer ones are written while they arrive, shorter ones so many at once.
_SMALL_BYTES = 64 << 10
_AT_ONCE_BYTES, _FILES_AT_ONCE = 1 << 20, 500
# 100,000 files and more: their number has a limit of its own at the client.
_MANIFEST_LIMIT_BYTES = 32 << 20
_MOST_FILES = 120_000
# What the endpoint reads by itself, for the API's description.
_MANIFEST = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["files"],
                "properties": {"files": {"type": "array", "items": {"type": "object"}}},
            }
        }
    },
}

router = APIRouter(
    prefix="/v1/workspaces/{workspace}", tags=["snapshots"], route_class=GuardedRoute
)


class BlobPart(TypedDict):
    size_bytes: int
    is_stored: bool
    is_arriving: bool


class SnapshotContents(TypedDict):
    id: str
    files: tuple[SnapshotFile, ...]


@router.post("/blobs/missing")
@needs(Permission.UPLOAD)
def missing(blobs: BlobsOf, sha256: Annotated[list[str], Body(embed=True)]) -> dict[str, Any]:
    return {"missing": blobs.missing(sha256)}


@router.put("/blobs/{sha256}")
@needs(Permission.UPLOAD, body_limit_bytes=UNLIMITED)
async def put_blob(
    blobs: BlobsOf, sha256: str, request: Request, start: Annotated[int, Query(ge=0)] = 0
) -> dict[str, Any]:
    """Store a blob; with `start`, its bytes from there on, after the part that is here."""
    with blob_parts.arriving(blobs, sha256) as part:
        await in_body_thread(part.resume, start)
        async for block in in_blocks(request.stream()):
            await in_body_thread(part.write, block)
    return {}


@router.get("/blobs/{sha256}/part")
@needs(Permission.UPLOAD)
def get_part(blobs: BlobsOf, sha256: str) -> BlobPart:
    """Say how much of a blob is here, so that a client can resume an upload."""
    is_stored = blobs.has(sha256)
    size_bytes = 0 if is_stored else blob_parts.size_bytes(blobs, sha256)
    return {
        "size_bytes": size_bytes or 0, "is_stored": is_stored, "is_arriving": size_bytes is None
    }  # fmt: skip


@router.post("/blobs")
@needs(Permission.UPLOAD, body_limit_bytes=UNLIMITED)
async def put_bundle(blobs: BlobsOf, request: Request) -> dict[str, Any]:
    frames, stored = _Frames(request.stream()), 0
    small: list[tuple[str, bytes]] = []
    small_bytes = 0
    async for sha256, size_bytes in frames.headers():
        if size_bytes <= _SMALL_BYTES:
            small.append((sha256, await frames.content(size_bytes)))
            small_bytes += size_bytes
            if small_bytes >= _AT_ONCE_BYTES or len(small) >= _FILES_AT_ONCE:
                await in_body_thread(blobs.put_all, small)
                small, small_bytes = [], 0
        else:
            with blobs.writing(sha256) as writing:
                async for piece in frames.pieces(size_bytes):
                    await in_body_thread(writing.write, piece)
                check(sha256, writing.stored.sha256)
        stored += 1
    await in_body_thread(blobs.put_all, small)
    return {"stored": stored}


@router.post("/blobs/handed")
@needs(Permission.UPLOAD)
async def put_handed(
    blobs: BlobsOf, handover: HandoverOf, ticket: Annotated[str, Body(embed=True)]
) -> LiveStream:
    """Store the next file that was handed over at the server's socket for files.

    Lines of JSON say how many bytes of it are here, the last one its sha256, or an error.
    """
    source = await in_handover_thread(handover.take, ticket)
    return LiveStream(handed_files.stored(blobs, source), "application/x-ndjson")


@router.put("/snapshots", openapi_extra={"requestBody": _MANIFEST})
@needs(Permission.UPLOAD, body_limit_bytes=UNLIMITED)
async def put_snapshot(blobs: BlobsOf, request: Request) -> dict[str, Any]:
    async with with_body(request, _MANIFEST_LIMIT_BYTES, is_file=True) as request_body:
        content = await request_body.body()
        snapshot = await run_in_threadpool(_put_snapshot, blobs, content)
    return {"id": snapshot.id}


@router.get("/snapshots/{snapshot_id}")
@needs(Permission.READ)
def get_snapshot(blobs: BlobsOf, snapshot_id: str) -> SnapshotContents:
    snapshot = blobs.snapshot(snapshot_id)
    return {"id": snapshot.id, "files": snapshot.files}


@router.get("/blobs/{sha256}")
@needs(Permission.READ)
def get_blob(blobs: BlobsOf, sha256: str) -> FileResponse:
    if not blobs.has(sha256):
        raise NotFound(f"blob `{sha256[:12]}…` is not here")
    return served_files.attachment(blobs.path(sha256), is_named=False)


def _put_snapshot(blobs: Blobs, content: bytes) -> Snapshot:
    """
    Raises:
        LimitExceeded: it has too many files.
        InvalidInput: as `Blobs.put_snapshot`.
    """
    manifest = parse_manifest(content)
    if len(manifest["files"]) > _MOST_FILES:
        raise LimitExceeded(
            f"the snapshot has more than {_MOST_FILES:,} files",
            "leave files out in `.amlignore`, or make the folder a data asset",
        )
    return blobs.put_snapshot(manifest)


class _Frames:
    """`<sha256> <size>\n<bytes>`, again and again."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self._buffer = b""
        self._start = 0

    async def headers(self) -> AsyncIterator[tuple[str, int]]:
        """The hash and size of each file, which is read before the next.

        Raises:
            InvalidInput: what comes is not a header.
            LimitExceeded: the file is too large for a bundle.
        """
        while True:
            while (end := self._buffer.find(b"\n", self._start)) < 0:
                if len(self._buffer) - self._start > _HEADER_LIMIT:
                    raise InvalidInput("the bundle's frame has no header")
                if not await self._more():
                    if len(self._buffer) > self._start:
                        raise _cut_off()
                    return
            line, self._start = self._buffer[self._start : end], end + 1
            yield _header(line)

    async def content(self, size_bytes: int) -> bytes:
        """The file of that size, whole.

        Raises:
            InvalidInput: the bundle ends before.
        """
        pieces = [piece async for piece in self.pieces(size_bytes)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def pieces(self, size_bytes: int) -> AsyncIterator[bytes]:
        """The file of that size, as it comes.

        Raises:
            InvalidInput: the bundle ends before.
        """
        while size_bytes:
            if len(self._buffer) == self._start and not await self._more():
                raise _cut_off()
            piece = self._buffer[self._start : self._start + size_bytes]
            self._start += len(piece)
            size_bytes -= len(piece)
            yield piece

    async def _more(self) -> bool:
        chunk = await anext(self._stream, None)
        self._buffer, self._start = self._buffer[self._start :] + (chunk or b""), 0
        return chunk is not None


def _cut_off() -> InvalidInput:
    return InvalidInput("the bundle ended in the middle of a file", "send it again")


def _header(line: bytes) -> tuple[str, int]:
    sha256, _, size = line.decode("ascii", "replace").partition(" ")
    if not size.isdigit():
        raise InvalidInput("the bundle's frame header is not `<sha256> <size>`")
    if len(size) > 9 or int(size) > _FRAME_MOST_BYTES:
        raise LimitExceeded(
            f"a file of {size[:20]} bytes is too large for a bundle", "send it by itself"
        )
    return sha256, int(size)
