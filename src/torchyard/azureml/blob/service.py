"""The operations on the blobs of one container, without HTTP.

Owns: finding a blob with its properties, writing a whole one, creating one from blocks, deleting.
Leaves: headers and XML to the other modules, files to datastores, blocks to data/blocks.py.
Always: a blob exists completely or not at all; conditions are checked before the first byte is
stored and again at the moment when the blob appears; nothing large is in memory as a whole.

Source: https://learn.microsoft.com/rest/api/storageservices/understanding-block-blobs--append-blobs--and-page-blobs
"""

from __future__ import annotations

import base64
import hashlib
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torchyard.azureml.blob.errors import BadRequest, NoBlob, name_conflict
from torchyard.azureml.blob.headers import (
    Blob,
    check_write,
    is_conditional,
    metadata_in,
    properties_in,
)
from torchyard.azureml.blob.places import Container, is_visible
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.base.files import Writing
from torchyard.data import file_properties
from torchyard.data.blocks import Blocks
from torchyard.data.file_properties import Block

MOST_BLOCKS = 50_000


@dataclass(frozen=True)
class BlobStorage:
    """The parts of the server that the operations use."""

    db: Database
    clock: Clock
    blocks: Blocks


# Blobs of one name appear one at a time; names share a fixed number of locks.
_LOCKS = [threading.Lock() for _ in range(64)]


def find(parts: BlobStorage, container: Container, path: str) -> Blob | None:
    store = container.datastore.name
    entry = container.files.entry(path) if is_visible(store, path) else None
    if entry is None:
        return None
    return Blob(entry, file_properties.of(parts.db, container.workspace, store, entry))


def get(parts: BlobStorage, container: Container, path: str) -> Blob:
    """
    Raises:
        NoBlob: there is none.
    """
    blob = find(parts, container, path)
    if blob is None:
        raise NoBlob(f"there is no blob `{path[:200]}` in datastore `{container.datastore.name}`")
    return blob


class Upload:
    """A blob that is being written. `write` takes bytes, `finish` makes it appear, `drop` discards
    it.

    Args:
        of_body: its bytes are the request's body, so their MD5 is checked and returned.

    Raises:
        Exists, ConditionNotMet: a condition of the request does not hold.
        Conflict: a folder has the blob's path, or a blob has the path of its folder.
    """

    def __init__(
        self,
        parts: BlobStorage,
        container: Container,
        path: str,
        headers: Mapping[str, str],
        of_body: bool = True,
    ) -> None:
        self._parts = parts
        self._container = container
        self._path = path
        self._headers = headers
        self._metadata = metadata_in(headers)
        _check_write(parts, container, path, headers)
        self._md5 = hashlib.md5(usedforsecurity=False) if of_body else None
        self._stack = ExitStack()
        try:
            self._writing: Writing = self._stack.enter_context(container.files.writing(path))
        except Conflict as error:
            raise name_conflict() from error

    def write(self, chunk: bytes) -> None:
        self._writing.write(chunk)
        if self._md5 is not None:
            self._md5.update(chunk)

    def finish(self) -> Blob:
        """
        Raises:
            BadRequest: the bytes don't have the MD5 that was sent.
        """
        assert self._md5 is not None
        md5 = base64.b64encode(self._md5.digest()).decode()
        for header in ("content-md5", "x-ms-blob-content-md5"):
            check_md5(self._headers.get(header, ""), md5)
        return self.appear({**properties_in(self._headers, of_body=True), "Content-MD5": md5})

    def appear(self, properties: Mapping[str, str], blocks: Sequence[Block] = ()) -> Blob:
        """The last step: make the blob appear with these properties."""
        files, store = self._container.files, self._container.datastore.name
        with _lock(self._container, self._path):
            _check_write(self._parts, self._container, self._path, self._headers)
            self._stack.close()
            entry = files.entry(self._path)
            if entry is None:
                raise Conflict("the blob was deleted as soon as it was there", "send it again")
            record = file_properties.record_written(
                self._parts.db, self._parts.clock, self._container.workspace, store, entry,
                self._writing.stored, properties, self._metadata, blocks,
            )  # fmt: skip
        return Blob(entry, record)

    def drop(self, error: BaseException) -> None:
        """Discard it; an existing blob stays."""
        self._stack.__exit__(type(error), error, error.__traceback__)


def stage(parts: BlobStorage, container: Container, path: str, block_id: str) -> StagedBlock:
    return StagedBlock(parts.blocks, _file(container, path), block_id)


class StagedBlock:
    """A block that is being written."""

    def __init__(self, blocks: Blocks, file: str, block_id: str) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._stack = ExitStack()
        self._writing = self._stack.enter_context(blocks.writing(file, block_id))

    def write(self, chunk: bytes) -> None:
        self._writing.write(chunk)
        self._md5.update(chunk)

    def finish(self, sent_md5: str) -> str:
        """The MD5 of the received bytes.

        Args:
            sent_md5: from the client; empty if it sent none.
        """
        actual_md5 = base64.b64encode(self._md5.digest()).decode()
        check_md5(sent_md5, actual_md5)
        self._stack.close()
        return actual_md5

    def drop(self, error: BaseException) -> None:
        self._stack.__exit__(type(error), error, error.__traceback__)


@dataclass(frozen=True)
class BlockChoice:
    """A block in the list of a blob; `where` is Latest, Committed or Uncommitted."""

    where: str
    id: str


def commit(
    parts: BlobStorage,
    container: Container,
    path: str,
    choices: Sequence[BlockChoice],
    headers: Mapping[str, str],
) -> Blob:
    """Create a blob from blocks, in that order.

    When a list is sent again, after a lost response, the blob exists already.

    Raises:
        BadRequest: a block does not exist.
        Exists, NotMet: a condition of the request does not hold.
    """
    file = _file(container, path)
    staged = parts.blocks.list(file)
    before = find(parts, container, path)
    sources = _sources(parts, container, before, staged, choices)
    if before is not None and not staged and _is_whole(parts, container, before, choices):
        return _repeated(parts, container, before, headers)
    upload = Upload(parts, container, path, headers, of_body=False)
    try:
        for source in sources:
            for chunk in source.read(parts.blocks, container, file, path):
                upload.write(chunk)
        blocks = [source.block for source in sources]
        blob = upload.appear(properties_in(headers), blocks)
    except BaseException as error:
        upload.drop(error)
        raise
    parts.blocks.drop(file)
    return blob


class Commits:
    """The commits of block lists in progress: a list that is sent again waits for the first one.

    For several threads and event loops.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[object, Future[Blob]] = {}

    def begin(self, key: object) -> tuple[Future[Blob], bool]:
        """(the future blob, whether the caller has to `run` the commit)"""
        with self._lock:
            running = self._running.get(key)
            if running is not None:
                return running, False
            future: Future[Blob] = Future()
            future.set_running_or_notify_cancel()
            self._running[key] = future
            return future, True

    def run(self, key: object, commit: Callable[[], Blob]) -> None:
        future = self._running[key]
        try:
            blob = commit()
        except BaseException as error:
            self._remove(key)
            future.set_exception(error)
        else:
            self._remove(key)
            future.set_result(blob)

    def abandon(self, key: object) -> None:
        """End a commit that could not be run."""
        future = self._running[key]
        self._remove(key)
        future.set_exception(Conflict("the server ends", "send the list again"))

    def _remove(self, key: object) -> None:
        with self._lock:
            del self._running[key]


@dataclass(frozen=True)
class _Source:
    """The bytes of a block: staged, or in the existing blob, from `start` on."""

    block: Block
    start: int | None = None

    def read(self, blocks: Blocks, container: Container, file: str, path: str) -> Iterator[bytes]:
        if self.start is None:
            return blocks.read(file, self.block.id)
        return container.files.read(path, self.start, self.block.size_bytes)


def _sources(
    parts: BlobStorage,
    container: Container,
    before: Blob | None,
    staged: Mapping[str, Block],
    choices: Sequence[BlockChoice],
) -> list[_Source]:
    committed: dict[str, _Source] = {}
    if any(choice.where == "Committed" or choice.id not in staged for choice in choices):
        start = 0
        for block in _blocks_of(parts, container, before):
            committed.setdefault(block.id, _Source(block, start))
            start += block.size_bytes
    sources = []
    for choice in choices:
        source = _Source(staged[choice.id]) if choice.id in staged else None
        if choice.where == "Committed" or (source is None and choice.where == "Latest"):
            source = committed.get(choice.id)
        if source is None:
            raise BadRequest(
                f"the list names the block `{choice.id[:64]}`, which did not come",
                "send the blocks again; those to which nothing came for a day are dropped",
                code="InvalidBlockList",
            )
        sources.append(source)
    return sources


def _is_whole(
    parts: BlobStorage, container: Container, blob: Blob, choices: Sequence[BlockChoice]
) -> bool:
    ids = [block.id for block in _blocks_of(parts, container, blob)]
    return bool(ids) and ids == [choice.id for choice in choices]


def _repeated(
    parts: BlobStorage, container: Container, blob: Blob, headers: Mapping[str, str]
) -> Blob:
    if headers.get("if-none-match", "").strip() != "*":
        check_write(headers, blob)
    return change(parts, container, blob, properties_in(headers), metadata_in(headers))


def change(
    parts: BlobStorage,
    container: Container,
    blob: Blob,
    properties: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Blob:
    """Change the properties or metadata of a blob; None leaves them."""
    store = container.datastore.name
    record = file_properties.change(
        parts.db, parts.clock, container.workspace, store, blob.entry,
        properties=properties, metadata=metadata,
    )  # fmt: skip
    return Blob(blob.entry, record)


def delete(parts: BlobStorage, container: Container, path: str, headers: Mapping[str, str]) -> None:
    """
    Raises:
        NoBlob: there is none.
        ConditionNotMet: a condition of the request does not hold.
    """
    with _lock(container, path):
        check_write(headers, get(parts, container, path))
        container.files.delete(path)
        file_properties.delete(parts.db, container.workspace, container.datastore.name, path)


def block_lists(
    parts: BlobStorage, container: Container, path: str
) -> tuple[Blob | None, list[Block], list[Block]]:
    """(the blob, the blocks that it was created from, the blocks staged since then)."""
    blob = find(parts, container, path)
    staged = list(parts.blocks.list(_file(container, path)).values())
    return blob, _blocks_of(parts, container, blob), staged


def check_md5(sent: str, actual: str) -> None:
    """
    Raises:
        BadRequest: the received bytes are not those that were sent.
    """
    if sent and sent != actual:
        raise BadRequest(
            "the bytes that came have another MD5 than the one that was sent with them",
            "send them again",
            code="Md5Mismatch",
        )


def _check_write(
    parts: BlobStorage, container: Container, path: str, headers: Mapping[str, str]
) -> None:
    """Run check_write on the existing blob, unless the request has no condition."""
    if is_conditional(headers):
        check_write(headers, find(parts, container, path))


def _blocks_of(parts: BlobStorage, container: Container, blob: Blob | None) -> list[Block]:
    if blob is None or blob.record is None:
        return []
    store = container.datastore.name
    return file_properties.blocks_of(parts.db, container.workspace, store, blob.entry)


def _file(container: Container, path: str) -> str:
    return f"{container.name}/{path}"


def _lock(container: Container, path: str) -> Any:
    return _LOCKS[zlib.crc32(_file(container, path).encode("utf-8", "surrogatepass")) % 64]
