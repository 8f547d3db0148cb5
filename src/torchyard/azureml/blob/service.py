"""What can be done with the blobs of one container, before any HTTP.

Owns: finding a blob with all that is said of it, writing one whole, making one of blocks, deleting.
Leaves: headers and XML to the modules beside, files to their places, blocks to data/blocks.py.
Always: a blob is there whole or not at all; conditions are looked at before the first byte is kept
and again in the moment in which the blob appears; nothing large is held whole in memory.

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

from torchyard.azureml.blob.errors import NoBlob, Refused, in_the_way
from torchyard.azureml.blob.headers import (
    Blob,
    check_write,
    is_conditional,
    metadata_in,
    properties_in,
)
from torchyard.azureml.blob.places import Container, shown
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.base.files import Writing
from torchyard.data import file_properties
from torchyard.data.blocks import Blocks
from torchyard.data.file_properties import Block

MOST_BLOCKS = 50_000


@dataclass(frozen=True)
class Parts:
    """What the service is made of."""

    db: Database
    clock: Clock
    blocks: Blocks


# The moment in which a blob appears is one at a time for each name, as far as these go round.
_LOCKS = [threading.Lock() for _ in range(64)]


def find(parts: Parts, container: Container, path: str) -> Blob | None:
    store = container.datastore.name
    entry = container.files.entry(path) if shown(store, path) else None
    if entry is None:
        return None
    return Blob(entry, file_properties.of(parts.db, container.workspace, store, entry))


def get(parts: Parts, container: Container, path: str) -> Blob:
    """
    Raises:
        NoBlob: there is none.
    """
    found = find(parts, container, path)
    if found is None:
        raise NoBlob(f"there is no blob `{path[:200]}` in datastore `{container.datastore.name}`")
    return found


class Upload:
    """A blob on its way. `write` takes bytes, `finish` makes it appear, `drop` forgets it.

    Args:
        of_body: its bytes are the request's body, so their MD5 is told and checked.

    Raises:
        Exists, NotMet: a condition of the request does not hold.
        Conflict: a folder is where the blob would be, or a blob where its folder would be.
    """

    def __init__(
        self,
        parts: Parts,
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
            raise in_the_way() from error

    def write(self, chunk: bytes) -> None:
        self._writing.write(chunk)
        if self._md5 is not None:
            self._md5.update(chunk)

    def finish(self) -> Blob:
        """
        Raises:
            Refused: the bytes are not those whose MD5 was sent.
        """
        assert self._md5 is not None
        md5 = base64.b64encode(self._md5.digest()).decode()
        for header in ("content-md5", "x-ms-blob-content-md5"):
            check_md5(self._headers.get(header, ""), md5)
        return self.appear({**properties_in(self._headers, of_body=True), "Content-MD5": md5})

    def appear(self, properties: Mapping[str, str], blocks: Sequence[Block] = ()) -> Blob:
        """The last step, with what is to be said of the blob."""
        files, store = self._container.files, self._container.datastore.name
        with _lock(self._container, self._path):
            _check_write(self._parts, self._container, self._path, self._headers)
            self._stack.close()
            entry = files.entry(self._path)
            if entry is None:
                raise Conflict("the blob was deleted as soon as it was there", "send it again")
            said = file_properties.record_written(
                self._parts.db, self._parts.clock, self._container.workspace, store, entry,
                self._writing.stored, properties, self._metadata, blocks,
            )  # fmt: skip
        return Blob(entry, said)

    def drop(self, error: BaseException) -> None:
        """Leave nothing of it; what was there before stays."""
        self._stack.__exit__(type(error), error, error.__traceback__)


def stage(parts: Parts, container: Container, path: str, block_id: str) -> Staged:
    return Staged(parts.blocks, _file(container, path), block_id)


class Staged:
    """A block on its way."""

    def __init__(self, blocks: Blocks, file: str, block_id: str) -> None:
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._stack = ExitStack()
        self._writing = self._stack.enter_context(blocks.writing(file, block_id))

    def write(self, chunk: bytes) -> None:
        self._writing.write(chunk)
        self._md5.update(chunk)

    def finish(self, md5: str) -> str:
        """The MD5 of what came.

        Args:
            md5: what the client says it is; empty when it does not.
        """
        found = base64.b64encode(self._md5.digest()).decode()
        check_md5(md5, found)
        self._stack.close()
        return found

    def drop(self, error: BaseException) -> None:
        self._stack.__exit__(type(error), error, error.__traceback__)


@dataclass(frozen=True)
class Choice:
    """A block in a list that makes a blob; `where` is Latest, Committed or Uncommitted."""

    where: str
    id: str


def commit(
    parts: Parts,
    container: Container,
    path: str,
    chosen: Sequence[Choice],
    headers: Mapping[str, str],
) -> Blob:
    """Make a blob of blocks, in that order.

    A list that is sent again, because its answer was lost, finds the blob as it wants it.

    Raises:
        Refused: a block is not there.
        Exists, NotMet: a condition of the request does not hold.
    """
    file = _file(container, path)
    staged = parts.blocks.list(file)
    before = find(parts, container, path)
    sources = _sources(parts, container, before, staged, chosen)
    if before is not None and not staged and _is_whole(parts, container, before, chosen):
        return _repeated(parts, container, before, headers)
    upload = Upload(parts, container, path, headers, of_body=False)
    try:
        for source in sources:
            for chunk in source.read(parts.blocks, container, file, path):
                upload.write(chunk)
        blocks = [source.block for source in sources]
        made = upload.appear(properties_in(headers), blocks)
    except BaseException as error:
        upload.drop(error)
        raise
    parts.blocks.drop(file)
    return made


class Making:
    """The blobs that are being made of blocks: a list that is sent again meanwhile waits for the
    first. For several threads and event loops.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[object, Future[Blob]] = {}

    def begun(self, key: object) -> tuple[Future[Blob], bool]:
        """(what the blob comes in, whether the caller is the one to `make` it)"""
        with self._lock:
            running = self._running.get(key)
            if running is not None:
                return running, False
            made: Future[Blob] = Future()
            made.set_running_or_notify_cancel()
            self._running[key] = made
            return made, True

    def make(self, key: object, act: Callable[[], Blob]) -> None:
        future = self._running[key]
        try:
            made = act()
        except BaseException as error:
            self._over(key)
            future.set_exception(error)
        else:
            self._over(key)
            future.set_result(made)

    def drop(self, key: object) -> None:
        """When `make` could not even begin."""
        future = self._running[key]
        self._over(key)
        future.set_exception(Conflict("the server ends", "send the list again"))

    def _over(self, key: object) -> None:
        with self._lock:
            del self._running[key]


@dataclass(frozen=True)
class _Source:
    """Where a block's bytes are: staged, or in the blob that is there, from `start` on."""

    block: Block
    start: int | None = None

    def read(self, blocks: Blocks, container: Container, file: str, path: str) -> Iterator[bytes]:
        if self.start is None:
            return blocks.read(file, self.block.id)
        return container.files.read(path, self.start, self.block.size_bytes)


def _sources(
    parts: Parts,
    container: Container,
    before: Blob | None,
    staged: Mapping[str, Block],
    chosen: Sequence[Choice],
) -> list[_Source]:
    kept: dict[str, _Source] = {}
    if any(one.where == "Committed" or one.id not in staged for one in chosen):
        start = 0
        for block in _blocks_of(parts, container, before):
            kept.setdefault(block.id, _Source(block, start))
            start += block.size_bytes
    found = []
    for one in chosen:
        source = _Source(staged[one.id]) if one.id in staged else None
        if one.where == "Committed" or (source is None and one.where == "Latest"):
            source = kept.get(one.id)
        if source is None:
            raise Refused(
                f"the list names the block `{one.id[:64]}`, which did not come",
                "send the blocks again; those to which nothing came for a day are dropped",
                code="InvalidBlockList",
            )
        found.append(source)
    return found


def _is_whole(parts: Parts, container: Container, blob: Blob, chosen: Sequence[Choice]) -> bool:
    ids = [block.id for block in _blocks_of(parts, container, blob)]
    return bool(ids) and ids == [one.id for one in chosen]


def _repeated(parts: Parts, container: Container, blob: Blob, headers: Mapping[str, str]) -> Blob:
    if headers.get("if-none-match", "").strip() != "*":
        check_write(headers, blob)
    return change(parts, container, blob, properties_in(headers), metadata_in(headers))


def change(
    parts: Parts,
    container: Container,
    blob: Blob,
    properties: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Blob:
    """Say something else of a blob; None leaves what was said."""
    store = container.datastore.name
    said = file_properties.change(
        parts.db, parts.clock, container.workspace, store, blob.entry,
        properties=properties, metadata=metadata,
    )  # fmt: skip
    return Blob(blob.entry, said)


def delete(parts: Parts, container: Container, path: str, headers: Mapping[str, str]) -> None:
    """
    Raises:
        NoBlob: there is none.
        NotMet: a condition of the request does not hold.
    """
    with _lock(container, path):
        check_write(headers, get(parts, container, path))
        container.files.delete(path)
        file_properties.delete(parts.db, container.workspace, container.datastore.name, path)


def block_lists(
    parts: Parts, container: Container, path: str
) -> tuple[Blob | None, list[Block], list[Block]]:
    """(the blob, the blocks that it was made of, those that came since)."""
    blob = find(parts, container, path)
    staged = list(parts.blocks.list(_file(container, path)).values())
    return blob, _blocks_of(parts, container, blob), staged


def check_md5(said: str, found: str) -> None:
    """
    Raises:
        Refused: what came is not what was sent.
    """
    if said and said != found:
        raise Refused(
            "the bytes that came have another MD5 than the one that was sent with them",
            "send them again",
            code="Md5Mismatch",
        )


def _check_write(parts: Parts, container: Container, path: str, headers: Mapping[str, str]) -> None:
    """As check_write, of the blob that is there; who sets no condition asks for no look at it."""
    if is_conditional(headers):
        check_write(headers, find(parts, container, path))


def _blocks_of(parts: Parts, container: Container, blob: Blob | None) -> list[Block]:
    if blob is None or blob.said is None:
        return []
    store = container.datastore.name
    return file_properties.blocks_of(parts.db, container.workspace, store, blob.entry)


def _file(container: Container, path: str) -> str:
    return f"{container.name}/{path}"


def _lock(container: Container, path: str) -> Any:
    return _LOCKS[zlib.crc32(_file(container, path).encode("utf-8", "surrogatepass")) % 64]
