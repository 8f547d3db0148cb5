"""The part of Azure Blob Storage's REST that Azure ML's clients speak.

Owns: which operation a request is, bodies and answers of each.
Leaves: who may to grants.py, what is done to service.py, addresses to common/paths.py.
Always: nothing of a body is read before the request was let in; one of more than a MiB goes to disk
as it comes, and an answer as it is read.

Source: https://learn.microsoft.com/rest/api/storageservices/blob-service-rest-api
"""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.blob import headers as blob_headers
from torchyard.azureml.blob import listing, places
from torchyard.azureml.blob import service as blob_service
from torchyard.azureml.blob.errors import BlobRoute, Refused, Unserved, standard
from torchyard.azureml.blob.grants import Grants
from torchyard.azureml.blob.headers import (
    Blob,
    check_read,
    check_write,
    metadata_in,
    properties_in,
    range_in,
    told,
    versions,
)
from torchyard.azureml.blob.places import Container
from torchyard.azureml.blob.service import Choice, Making, Parts, Staged, Upload
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import base_url
from torchyard.base.errors import Conflict, LimitExceeded
from torchyard.data.file_properties import Block

_ONE = "/azureml-blob/{container}"
_BLOB = _ONE + "/{path:path}"
_ALL = ["GET", "HEAD", "PUT", "DELETE", "POST"]
_LIST_MOST_BYTES = 8 << 20
_AT_ONCE_BYTES = 1 << 20
_ENCRYPTED = {"x-ms-request-server-encrypted": "false"}
_LISTS = {"Latest", "Committed", "Uncommitted"}
_T = TypeVar("_T")


def router(parts: Parts, grants: Grants) -> APIRouter:
    """Every operation of the service, below paths that common/paths.py makes."""
    routes = APIRouter(route_class=BlobRoute, include_in_schema=False)
    service = _Service(parts, grants)

    @routes.api_route(_ONE, methods=_ALL)
    async def of_container(request: Request, container: str) -> Response:
        return await run_in_threadpool(service.of_container, request, container)

    @routes.api_route(_BLOB, methods=_ALL)
    async def of_blob(request: Request, container: str, path: str) -> Response:
        name = unquote(path)
        if not name:
            return await run_in_threadpool(service.of_container, request, container)
        return await service.of_blob(request, container, name)

    return routes


class _Sink(Protocol):
    def write(self, chunk: bytes) -> None: ...

    def drop(self, error: BaseException) -> None: ...


class _Service:
    def __init__(self, parts: Parts, grants: Grants) -> None:
        self._parts = parts
        self._grants = grants
        self._making = Making()

    def of_container(self, request: Request, name: str) -> Response:
        query = request.query_params
        comp = query.get("comp", "").lower()
        if request.method in ("GET", "HEAD") and comp == "list":
            return self._list(request, name)
        if request.method in ("GET", "HEAD") and comp in ("", "metadata"):
            container = self._grants.admit(request, name, "", "rl")
            return _answer(request, 200, _of_container(container))
        container = self._grants.admit(request, name, "", "w")
        if request.method == "PUT" and not comp:
            raise Conflict(
                f"container `{name}` is there: it is datastore `{container.datastore.name}`",
                code="ContainerAlreadyExists",
            )
        raise Unserved(
            "containers are datastores, and are made, changed and deleted as such",
            "see `yard datastore --help`, or `ml_client.datastores`",
        )

    def _list(self, request: Request, name: str) -> Response:
        wanted = listing.wanted_in(request.query_params)
        container = self._grants.admit(request, name, wanted.prefix, "l")
        listed = listing.page(self._parts.db, container, wanted)
        account = f"{base_url(request)}/{containers.account(container.workspace)}"
        body = listing.to_xml(account, container, wanted, listed)
        return _answer(request, 200, {}, body, "application/xml")

    async def of_blob(self, request: Request, name: str, path: str) -> Response:
        comp = request.query_params.get("comp", "").lower()
        if request.method in ("GET", "HEAD"):
            return await run_in_threadpool(self._read, request, name, path, comp)
        if request.method == "DELETE" and not comp:
            return await run_in_threadpool(self._delete, request, name, path)
        takes = {"": self._put, "block": self._put_block, "blocklist": self._put_list}
        if request.method == "PUT" and comp in takes:
            return await takes[comp](request, name, path)
        if request.method == "PUT" and comp in ("metadata", "properties"):
            return await run_in_threadpool(self._change, request, name, path, comp)
        await run_in_threadpool(self._grants.admit, request, name, path, "w")
        raise Unserved(
            f"torchyard does not serve {request.method} of a blob with `comp={comp[:40]}`",
            "it keeps block blobs with their metadata, and no leases, snapshots, tiers or tags",
        )

    def _read(self, request: Request, name: str, path: str, comp: str) -> Response:
        container = self._grants.admit(request, name, path, "r")
        if comp == "blocklist":
            return self._block_list(request, container, path)
        if comp not in ("", "metadata"):
            raise Unserved(f"torchyard does not tell `{comp[:40]}` of a blob")
        blob = blob_service.get(self._parts, container, places.readable(path))
        check_read(request.headers, blob)
        headers = told(blob)
        if request.method == "HEAD" or comp:
            size = 0 if comp else blob.entry.size_bytes
            return _answer(request, 200, {**headers, "Content-Length": str(size)})
        return self._sent(request, container, blob, headers)

    def _sent(
        self, request: Request, container: Container, blob: Blob, headers: dict[str, str]
    ) -> Response:
        entry = blob.entry
        part = range_in(request.headers, entry.size_bytes)
        start, count = part or (0, entry.size_bytes)
        status = 200
        headers["Content-Length"] = str(count)
        if part is not None:
            status = 206
            headers["Content-Range"] = f"bytes {start}-{start + count - 1}/{entry.size_bytes}"
            md5 = headers.pop("Content-MD5", "")
            if md5:
                headers["x-ms-blob-content-md5"] = md5
        chunks: Iterator[bytes] = iter(())
        if count:
            chunks = container.files.read(entry.path, start, count)
        return StreamingResponse(chunks, status, {**headers, **standard(request)})

    def _block_list(self, request: Request, container: Container, path: str) -> Response:
        blob, committed, staged = blob_service.block_lists(
            self._parts, container, places.readable(path)
        )
        if blob is None and not staged:
            blob_service.get(self._parts, container, path)
        which = request.query_params.get("blocklisttype", "committed").lower()
        lists = {"Committed": committed, "Uncommitted": staged}
        shown = {name: found for name, found in lists.items() if which in ("all", name.lower())}
        body = "".join(
            f"<{name}Blocks>{''.join(_block(one) for one in found)}</{name}Blocks>"
            for name, found in shown.items()
        )
        headers = {}
        if blob is not None:
            headers = {**versions(blob), "x-ms-blob-content-length": str(blob.entry.size_bytes)}
        whole = f'<?xml version="1.0" encoding="utf-8"?><BlockList>{body}</BlockList>'
        return _answer(request, 200, headers, whole.encode(), "application/xml")

    def _delete(self, request: Request, name: str, path: str) -> Response:
        container = self._grants.admit(request, name, path, "d")
        clean = places.readable(path)
        blob_service.delete(self._parts, container, clean, request.headers)
        return _answer(request, 202, {"x-ms-delete-type-permanent": "true"})

    def _change(self, request: Request, name: str, path: str, comp: str) -> Response:
        container = self._grants.admit(request, name, path, "w")
        blob = blob_service.get(self._parts, container, places.readable(path))
        check_write(request.headers, blob)
        headers = request.headers
        if comp == "metadata":
            said = metadata_in(headers)
            blob = blob_service.change(self._parts, container, blob, metadata=said)
            return _answer(request, 200, {**versions(blob), **_ENCRYPTED})
        properties = properties_in(headers)
        blob = blob_service.change(self._parts, container, blob, properties=properties)
        return _answer(request, 200, versions(blob))

    async def _put(self, request: Request, name: str, path: str) -> Response:
        container = await run_in_threadpool(self._grants.admit, request, name, path, "wc")
        clean = places.writable(path)
        _check_kind(request.headers)
        if _is_folder_mark(request.headers):
            # Folders come and go with what is in them.
            return _answer(request, 201, _ENCRYPTED)
        make = partial(Upload, self._parts, container, clean, _headers(request))
        if _is_small(request.headers):
            body = await _whole_body(request, _AT_ONCE_BYTES)
            return _answer(request, 201, _written(await run_in_threadpool(_at_once, make, body)))
        upload = await run_in_threadpool(make)
        await _pour(request, upload)
        blob = await run_in_threadpool(_finished, upload, upload.finish)
        return _answer(request, 201, _written(blob))

    async def _put_block(self, request: Request, name: str, path: str) -> Response:
        container = await run_in_threadpool(self._grants.admit, request, name, path, "wc")
        clean = places.writable(path)
        block_id = _block_id(request.query_params.get("blockid", ""))
        staged: Staged = await run_in_threadpool(
            blob_service.stage, self._parts, container, clean, block_id
        )
        await _pour(request, staged)
        said = request.headers.get("content-md5", "")
        md5 = await run_in_threadpool(_finished, staged, partial(staged.finish, said))
        return _answer(request, 201, {"Content-MD5": md5, **_ENCRYPTED})

    async def _put_list(self, request: Request, name: str, path: str) -> Response:
        container = await run_in_threadpool(self._grants.admit, request, name, path, "wc")
        clean = places.writable(path)
        body = await _whole_body(request, _LIST_MOST_BYTES)
        said = request.headers.get("content-md5", "")
        md5 = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        blob_service.check_md5(said, md5)
        chosen = await run_in_threadpool(_choices, body)
        headers = _headers(request)
        asked = hashlib.sha256(body + repr(sorted(metadata_in(headers).items())).encode())
        key = (container.name, clean, asked.hexdigest())
        made, mine = self._making.begun(key)
        if mine:
            act = partial(blob_service.commit, self._parts, container, clean, chosen, headers)
            try:
                await run_in_threadpool(self._making.make, key, act)
            except asyncio.CancelledError:
                if not made.done():
                    self._making.drop(key)
                raise
        # Who asked may be gone before a large blob is made; it is made nevertheless.
        blob = await asyncio.shield(asyncio.wrap_future(made))
        # Of the list, as Azure says it; nobody knows the blob's own.
        return _answer(request, 201, {**versions(blob), "Content-MD5": md5, **_ENCRYPTED})


def _answer(
    request: Request,
    status: int,
    headers: Mapping[str, str],
    body: bytes = b"",
    media_type: str | None = None,
) -> Response:
    kept = {**headers, **standard(request)}
    return Response(b"" if request.method == "HEAD" else body, status, kept, media_type)


def _of_container(container: Container) -> dict[str, str]:
    tag = hashlib.sha256(container.name.encode()).hexdigest()[:15].upper()
    made = blob_headers.http_date(container.datastore.created_at)
    return {
        "ETag": f'"0x{tag}"',
        "Last-Modified": made,
        "x-ms-has-immutability-policy": "false",
        "x-ms-has-legal-hold": "false",
        "x-ms-lease-state": "available",
        "x-ms-lease-status": "unlocked",
    }


def _written(blob: Blob) -> dict[str, str]:
    return {**versions(blob), "Content-MD5": blob.properties.get("Content-MD5", ""), **_ENCRYPTED}


def _headers(request: Request) -> dict[str, str]:
    return dict(request.headers)


def _check_kind(headers: Mapping[str, str]) -> None:
    if "x-ms-copy-source" in headers:
        raise Unserved(
            "torchyard does not copy a blob from an address", "download it, and upload it here"
        )
    kind = headers.get("x-ms-blob-type", "")
    if not kind:
        raise Refused(
            "the request has no header `x-ms-blob-type`",
            "send `x-ms-blob-type: BlockBlob`",
            code="MissingRequiredHeader",
        )
    if kind != "BlockBlob":
        raise Unserved(f"torchyard keeps no `{kind[:40]}`", "upload it as a BlockBlob")


def _is_folder_mark(headers: Mapping[str, str]) -> bool:
    """Some clients upload an empty blob where a folder is to be."""
    is_empty = headers.get("content-length") == "0"
    return is_empty and headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true"


def _is_small(headers: Mapping[str, str]) -> bool:
    """Whether the body comes at once: thousands of small files each cost one way to a thread."""
    length = headers.get("content-length", "")
    return length.isascii() and length.isdecimal() and int(length[:9]) <= _AT_ONCE_BYTES


def _at_once(make: Callable[[], Upload], body: bytes) -> Blob:
    upload = make()

    def whole() -> Blob:
        upload.write(body)
        return upload.finish()

    return _finished(upload, whole)


async def _pour(request: Request, sink: _Sink) -> None:
    """The request's body, a MiB at a time; whatever breaks it off leaves nothing."""
    held = bytearray()
    try:
        async for chunk in request.stream():
            held += chunk
            if len(held) >= _AT_ONCE_BYTES:
                await run_in_threadpool(sink.write, bytes(held))
                held.clear()
        if held:
            await run_in_threadpool(sink.write, bytes(held))
    except BaseException as error:
        await asyncio.shield(run_in_threadpool(sink.drop, error))
        raise


def _finished(sink: Upload | Staged, finish: Callable[[], _T]) -> _T:
    try:
        return finish()
    except BaseException as error:
        sink.drop(error)
        raise


async def _whole_body(request: Request, most_bytes: int) -> bytes:
    parts = bytearray()
    async for chunk in request.stream():
        parts += chunk
        if len(parts) > most_bytes:
            raise LimitExceeded(f"the request's body is longer than {most_bytes >> 20} MiB")
    return bytes(parts)


def _choices(body: bytes) -> list[Choice]:
    """
    Raises:
        Refused: the body is no list of blocks.
    """
    wrong = Refused("the request's body is no list of blocks", code="InvalidXmlDocument")
    if b"<!DOCTYPE" in body or b"<!ENTITY" in body:
        raise wrong
    try:
        root = ElementTree.fromstring(body)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise wrong from error
    if root.tag != "BlockList" or any(one.tag not in _LISTS for one in root):
        raise wrong
    if len(root) > blob_service.MOST_BLOCKS:
        raise Refused(
            f"the list has more than {blob_service.MOST_BLOCKS:,} blocks",
            "send larger ones",
            code="BlockListTooLong",
        )
    return [Choice(one.tag, _block_id((one.text or "").strip())) for one in root]


def _block_id(text: str) -> str:
    """
    Raises:
        Refused: it is not what Azure takes, base64 of 1 to 64 bytes.
    """
    try:
        decoded = base64.b64decode(text.encode(), validate=True)
    except (ValueError, binascii.Error):
        decoded = b""
    if not 0 < len(decoded) <= 64:
        raise Refused(
            f"`{text[:100]}` is no id for a block",
            "base64 of 1 to 64 bytes",
            code="InvalidQueryParameterValue",
        )
    return text


def _block(one: Block) -> str:
    return f"<Block><Name>{escape(one.id)}</Name><Size>{one.size_bytes}</Size></Block>"
