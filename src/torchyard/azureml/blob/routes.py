"""The part of Azure Blob Storage's REST that Azure ML's clients speak.

Owns: which operation a request is, the body and the response of each.
Leaves: permissions to grants.py, the operations to service.py, paths to common/paths.py.
Always: a body is read only after the request is permitted; a long one is written to disk while it
arrives, and a response is sent while it is read.

Source: https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Protocol, TypeVar
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from fastapi import Depends, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.blob import listing, places
from torchyard.azureml.blob import service as blob_service
from torchyard.azureml.blob.errors import BadRequest, BlobRoute, NotSupported, standard_headers
from torchyard.azureml.blob.grants import Grants
from torchyard.azureml.blob.headers import (
    Blob,
    blob_headers,
    check_read,
    check_write,
    http_date,
    metadata_in,
    properties_in,
    range_in,
    versions,
)
from torchyard.azureml.blob.places import Container, Containers
from torchyard.azureml.blob.service import BlobStorage, BlockChoice, Commits, StagedBlock, Upload
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import base_url
from torchyard.azureml.common.context import AzureContext, context_of
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.bodies.body_spool import in_body_thread
from torchyard.base.bodies.request_bodies import with_body
from torchyard.base.errors import Conflict
from torchyard.data.blocks import Blocks
from torchyard.data.file_properties import Block
from torchyard.jobs import owners
from torchyard.jobs.files import run_files
from torchyard.workspaces.guarded_routes import UNLIMITED, needs
from torchyard.workspaces.permissions import Permission

_BLOB = "/{path:path}"
_MAX_LIST_BYTES = 8 << 20
_AT_ONCE_BYTES = 1 << 20
_POUR_BYTES = 128 << 10
_ENCRYPTED = {"x-ms-request-server-encrypted": "false"}
_LIST_KINDS = {"Latest", "Committed", "Uncommitted"}
_T = TypeVar("_T")


routes = RouteTable("/azureml-blob/{container}", BlobRoute)


async def blob_operations(request: Request) -> BlobOperations:
    """The FastAPI dependency; one instance serves all requests."""
    context = context_of(request)
    return context.shared(BlobOperations, partial(_operations, context))


Operations = Annotated["BlobOperations", Depends(blob_operations)]


async def on_container(operations: Operations, request: Request, container: str) -> Response:
    return await run_in_threadpool(operations.on_container, request, container)


async def on_blob(operations: Operations, request: Request, container: str, path: str) -> Response:
    name = unquote(path)
    if not name:
        return await run_in_threadpool(operations.on_container, request, container)
    return await operations.on_blob(request, container, name)


def _declare(
    methods: list[str], path: str, endpoint: Callable[..., Any], permission: Permission
) -> None:
    # Requests may be signed, and an upload is written to disk while it arrives.
    declare = needs(permission, body_limit_bytes=UNLIMITED, signed=True)
    routes.add(methods, path, declare(partial(endpoint)))


_declare(["GET", "HEAD"], "", on_container, Permission.READ)
_declare(["PUT", "DELETE", "POST"], "", on_container, Permission.SETTINGS)
_declare(["GET", "HEAD"], _BLOB, on_blob, Permission.READ)
_declare(["PUT"], _BLOB, on_blob, Permission.UPLOAD)
_declare(["DELETE", "POST"], _BLOB, on_blob, Permission.WRITE)


def _operations(context: AzureContext) -> BlobOperations:
    services = context.services
    opened = partial(run_files.opened, services)
    containers_of = Containers(services.db, services.datastores, opened)
    storage = BlobStorage(services.db, services.clock, Blocks(services.home / "uploads"))
    owner_of = partial(owners.of_name, services.db)
    grants = Grants(
        context.signing_key, services.clock, containers_of, context.access.granted, owner_of
    )
    return BlobOperations(storage, grants)


class _Sink(Protocol):
    def write(self, chunk: bytes) -> None: ...

    def drop(self, error: BaseException) -> None: ...


class BlobOperations:
    """What a request does, by its method and its parameter `comp`."""

    def __init__(self, storage: BlobStorage, grants: Grants) -> None:
        self._storage = storage
        self._grants = grants
        self._commits = Commits()

    def on_container(self, request: Request, name: str) -> Response:
        query = request.query_params
        comp = query.get("comp", "").lower()
        if request.method in ("GET", "HEAD") and comp == "list":
            return self._list(request, name)
        if request.method in ("GET", "HEAD") and comp in ("", "metadata"):
            container = self._grants.admit(request, name, "", "rl")
            return _response(request, 200, _container_headers(container))
        container = self._grants.admit(request, name, "", "w")
        if request.method == "PUT" and not comp:
            raise Conflict(
                f"container `{name}` exists: it is datastore `{container.datastore.name}`",
                code="ContainerAlreadyExists",
            )
        raise NotSupported(
            "containers are datastores, and are created, changed and deleted as such",
            "see `yard datastore --help`, or `ml_client.datastores`",
        )

    def _list(self, request: Request, name: str) -> Response:
        query = listing.read_query(request.query_params)
        container = self._grants.admit(request, name, query.prefix, "l")
        page = listing.page(self._storage.db, container, query)
        account = f"{base_url(request)}/{containers.account(container.workspace)}"
        body = listing.to_xml(account, container, query, page)
        return _response(request, 200, {}, body, "application/xml")

    async def on_blob(self, request: Request, name: str, path: str) -> Response:
        comp = request.query_params.get("comp", "").lower()
        if request.method in ("GET", "HEAD"):
            return await run_in_threadpool(self._read, request, name, path, comp)
        if request.method == "DELETE" and not comp:
            return await run_in_threadpool(self._delete, request, name, path)
        puts = {"": self._put, "block": self._put_block, "blocklist": self._put_list}
        if request.method == "PUT" and comp in puts:
            return await puts[comp](request, name, path)
        if request.method == "PUT" and comp in ("metadata", "properties"):
            return await run_in_threadpool(self._change, request, name, path, comp)
        await run_in_threadpool(self._grants.admit, request, name, path, "w")
        raise NotSupported(
            f"torchyard does not serve {request.method} of a blob with `comp={comp[:40]}`",
            "it supports block blobs with metadata, but no leases, snapshots, tiers or tags",
        )

    def _read(self, request: Request, name: str, path: str, comp: str) -> Response:
        container = self._grants.admit(request, name, path, "r")
        if comp == "blocklist":
            return self._block_list(request, container, path)
        if comp not in ("", "metadata"):
            raise NotSupported(f"torchyard does not serve `{comp[:40]}` of a blob")
        blob = blob_service.get(self._storage, container, places.readable(path))
        check_read(request.headers, blob)
        headers = blob_headers(blob)
        if request.method == "HEAD" or comp:
            size = 0 if comp else blob.entry.size_bytes
            return _response(request, 200, {**headers, "Content-Length": str(size)})
        return self._content(request, container, blob, headers)

    def _content(
        self, request: Request, container: Container, blob: Blob, headers: dict[str, str]
    ) -> Response:
        entry = blob.entry
        byte_range = range_in(request.headers, entry.size_bytes)
        start, count = byte_range or (0, entry.size_bytes)
        status = 200
        headers["Content-Length"] = str(count)
        if byte_range is not None:
            status = 206
            headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{entry.size_bytes}"
            md5 = headers.pop("Content-MD5", "")
            if md5:
                headers["x-ms-blob-content-md5"] = md5
        chunks: Iterator[bytes] = iter(())
        if count:
            chunks = container.files.read(entry.path, start, count)
        return StreamingResponse(chunks, status, {**headers, **standard_headers(request)})

    def _block_list(self, request: Request, container: Container, path: str) -> Response:
        blob, committed, staged = blob_service.block_lists(
            self._storage, container, places.readable(path)
        )
        if blob is None and not staged:
            blob_service.get(self._storage, container, path)
        which = request.query_params.get("blocklisttype", "committed").lower()
        lists = {"Committed": committed, "Uncommitted": staged}
        body = "".join(
            f"<{name}Blocks>{''.join(_block(block) for block in blocks)}</{name}Blocks>"
            for name, blocks in lists.items()
            if which in ("all", name.lower())
        )
        headers = {}
        if blob is not None:
            headers = {**versions(blob), "x-ms-blob-content-length": str(blob.entry.size_bytes)}
        text = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{body}</BlockList>'
        return _response(request, 200, headers, text.encode(), "application/xml")

    def _delete(self, request: Request, name: str, path: str) -> Response:
        container = self._grants.admit(request, name, path, "d")
        path = places.readable(path)
        blob_service.delete(self._storage, container, path, request.headers)
        return _response(request, 202, {"x-ms-delete-type-permanent": "true"})

    def _change(self, request: Request, name: str, path: str, comp: str) -> Response:
        container = self._grants.admit(request, name, path, "w")
        blob = blob_service.get(self._storage, container, places.readable(path))
        check_write(request.headers, blob)
        headers = request.headers
        if comp == "metadata":
            metadata = metadata_in(headers)
            blob = blob_service.change(self._storage, container, blob, metadata=metadata)
            return _response(request, 200, {**versions(blob), **_ENCRYPTED})
        properties = properties_in(headers)
        blob = blob_service.change(self._storage, container, blob, properties=properties)
        return _response(request, 200, versions(blob))

    async def _put(self, request: Request, name: str, path: str) -> Response:
        container = await run_in_threadpool(self._grants.admit, request, name, path, "wc")
        path = places.writable(path)
        _check_kind(request.headers)
        if _is_folder_marker(request.headers):
            # Folders exist as long as they contain blobs.
            return _response(request, 201, _ENCRYPTED)
        start = partial(Upload, self._storage, container, path, _headers(request))
        if _is_small(request.headers):
            async with with_body(request, _AT_ONCE_BYTES, is_file=True) as request_body:
                blob = await run_in_threadpool(_write_all, start, await request_body.body())
            return _response(request, 201, _upload_headers(blob))
        upload = await run_in_threadpool(start)
        await _pour(request, upload)
        blob = await run_in_threadpool(_finish, upload, upload.finish)
        return _response(request, 201, _upload_headers(blob))

    async def _put_block(self, request: Request, name: str, path: str) -> Response:
        container = await run_in_threadpool(self._grants.admit, request, name, path, "wc")
        path = places.writable(path)
        block_id = _block_id(request.query_params.get("blockid", ""))
        staged: StagedBlock = await run_in_threadpool(
            blob_service.stage, self._storage, container, path, block_id
        )
        await _pour(request, staged)
        sent_md5 = request.headers.get("content-md5", "")
        md5 = await run_in_threadpool(_finish, staged, partial(staged.finish, sent_md5))
        return _response(request, 201, {"Content-MD5": md5, **_ENCRYPTED})

    async def _put_list(self, request: Request, name: str, path: str) -> Response:
        container = await run_in_threadpool(self._grants.admit, request, name, path, "wc")
        path = places.writable(path)
        async with with_body(request, _MAX_LIST_BYTES) as request_body:
            body = await request_body.body()
            choices = await run_in_threadpool(_choices, body)
        sent_md5 = request.headers.get("content-md5", "")
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        blob_service.check_md5(sent_md5, md5)
        headers = _headers(request)
        digest = hashlib.sha256(body + repr(sorted(metadata_in(headers).items())).encode())
        key = (container.name, path, digest.hexdigest())
        commit, is_first = self._commits.begin(key)
        if is_first:
            act = partial(blob_service.commit, self._storage, container, path, choices, headers)
            try:
                await run_in_threadpool(self._commits.run, key, act)
            except asyncio.CancelledError:
                if not commit.done():
                    self._commits.abandon(key)
                raise
        # The client may disconnect before a large blob is complete; it is completed nevertheless.
        blob = await asyncio.shield(asyncio.wrap_future(commit))
        # The MD5 of the list, as in Azure; that of the blob is not known.
        return _response(request, 201, {**versions(blob), "Content-MD5": md5, **_ENCRYPTED})


def _response(
    request: Request,
    status: int,
    headers: Mapping[str, str],
    body: bytes = b"",
    media_type: str | None = None,
) -> Response:
    all_headers = {**headers, **standard_headers(request)}
    return Response(b"" if request.method == "HEAD" else body, status, all_headers, media_type)


def _container_headers(container: Container) -> dict[str, str]:
    tag = hashlib.sha256(container.name.encode()).hexdigest()[:15].upper()
    created = http_date(container.datastore.created_at)
    return {
        "ETag": f'"0x{tag}"',
        "Last-Modified": created,
        "x-ms-has-immutability-policy": "false",
        "x-ms-has-legal-hold": "false",
        "x-ms-lease-state": "available",
        "x-ms-lease-status": "unlocked",
    }


def _upload_headers(blob: Blob) -> dict[str, str]:
    return {**versions(blob), "Content-MD5": blob.properties.get("Content-MD5", ""), **_ENCRYPTED}


def _headers(request: Request) -> dict[str, str]:
    return dict(request.headers)


def _check_kind(headers: Mapping[str, str]) -> None:
    if "x-ms-copy-source" in headers:
        raise NotSupported(
            "torchyard does not copy a blob from a URL", "download it, and upload it here"
        )
    kind = headers.get("x-ms-blob-type", "")
    if not kind:
        raise BadRequest(
            "the request has no header `x-ms-blob-type`",
            "send `x-ms-blob-type: BlockBlob`",
            code="MissingRequiredHeader",
        )
    if kind != "BlockBlob":
        raise NotSupported(
            f"torchyard does not support blobs of type `{kind[:40]}`", "upload it as a BlockBlob"
        )


def _is_folder_marker(headers: Mapping[str, str]) -> bool:
    """Some clients upload an empty blob in place of a folder."""
    is_empty = headers.get("content-length") == "0"
    return is_empty and headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true"


def _is_small(headers: Mapping[str, str]) -> bool:
    """Whether the body is read at once: thousands of small files each need one thread only once."""
    length = headers.get("content-length", "")
    return length.isascii() and length.isdecimal() and int(length[:9]) <= _AT_ONCE_BYTES


def _write_all(start: Callable[[], Upload], body: bytes) -> Blob:
    upload = start()

    def write() -> Blob:
        upload.write(body)
        return upload.finish()

    return _finish(upload, write)


async def _pour(request: Request, sink: _Sink) -> None:
    """Write the request's body while it arrives; nothing is left of an interrupted one."""
    buffer = bytearray()
    try:
        async for chunk in request.stream():
            buffer += chunk
            if len(buffer) >= _POUR_BYTES:
                await in_body_thread(sink.write, bytes(buffer))
                buffer.clear()
        if buffer:
            await in_body_thread(sink.write, bytes(buffer))
    except BaseException as error:
        await asyncio.shield(run_in_threadpool(sink.drop, error))
        raise


def _finish(sink: Upload | StagedBlock, finish: Callable[[], _T]) -> _T:
    try:
        return finish()
    except BaseException as error:
        sink.drop(error)
        raise


def _choices(body: bytes) -> list[BlockChoice]:
    """
    Raises:
        BadRequest: the body is not a list of blocks.
    """
    invalid = BadRequest("the request's body is not a list of blocks", code="InvalidXmlDocument")
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise invalid
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise invalid from error
    if root.tag != "BlockList" or any(item.tag not in _LIST_KINDS for item in root):
        raise invalid
    if len(root) > blob_service.MOST_BLOCKS:
        raise BadRequest(
            f"the list has more than {blob_service.MOST_BLOCKS:,} blocks",
            "send larger ones",
            code="BlockListTooLong",
        )
    return [BlockChoice(item.tag, _block_id((item.text or "").strip())) for item in root]


def _block_id(text: str) -> str:
    """
    Raises:
        BadRequest: it is not base64 of 1 to 64 bytes.
    """
    try:
        decoded = base64.b64decode(text.encode(), validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if not 0 < len(decoded) <= 64:
        raise BadRequest(
            f"`{text[:100]}` is not a valid block id",
            "it is base64 of 1 to 64 bytes",
            code="InvalidQueryParameterValue",
        )
    return text


def _block(block: Block) -> str:
    return f"<Block><Name>{escape(block.id)}</Name><Size>{block.size_bytes}</Size></Block>"
