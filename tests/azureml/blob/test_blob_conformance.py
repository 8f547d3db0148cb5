"""The same requests to Azurite, Microsoft's own emulator, and to us: the same responses.

Always: intended differences are in `DIFFERS`, with a reason.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import httpx2
import pytest
import uvicorn

from azureml.blob_site import ARM, STORE, block_id, block_list
from data import object_stores
from postgres_server import NewDatabase
from torchyard.app import application
from torchyard.azureml.common import containers
from workspaces.served import served

pytestmark = pytest.mark.object_store

BLOCK = {"x-ms-blob-type": "BlockBlob"}
COMPARED = (
    "content-length", "content-range", "content-md5", "x-ms-blob-type", "x-ms-lease-state",
    "x-ms-lease-status", "x-ms-meta-one", "x-ms-meta-two", "cache-control", "content-language",
    "content-encoding", "accept-ranges",
)  # fmt: skip
THERE = ("etag", "last-modified", "x-ms-request-id", "x-ms-version", "x-ms-creation-time")
EVERYTHING = ("*",)
# By the name of a request: the values that intentionally differ. Ours follow Azure's documentation
# unless a comment says otherwise.
DIFFERS = {
    # Azurite sends the blob with its metadata.
    "get of metadata": ("content-length", "body"),
    # Azurite answers a range after the end with an empty body and `bytes 10-9/10`.
    "range behind": EVERYTHING,
    "wrong md5": ("code",),
    "no type": ("code",),
    "no page": ("code",),
    "block": ("content-md5",),
    "second block": ("content-md5",),
    "third block": ("content-md5",),
    # A blob that does not exist yet has no ETag.
    "staged blocks": ("etag", "last-modified"),
    # As on Azure, the MD5 of a blob of blocks is not known.
    "get of listed": ("content-md5",),
    "get again": ("content-md5",),
    "get old and new": ("content-md5",),
    "get no blocks": ("content-md5",),
    # It has no meaning; ours is the framework's.
    "head of container": ("content-length",),
    # Azurite accepts a block without an id.
    "empty id": EVERYTHING,
}


@dataclass(frozen=True)
class Side:
    """`account` is the URL that a storage client gets."""

    account: str
    container: str
    sas: str


@dataclass(frozen=True)
class Ask:
    name: str
    method: str
    blob: str
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    etag_of: str = ""
    """A header whose value becomes the blob's ETag."""


def _commit(*ids: str, where: str = "Latest") -> bytes:
    return block_list(*ids, where=where)


def _blockid(number: int) -> str:
    return f"comp=block&blockid={quote(block_id(number))}"


ONE_TWO = {"x-ms-meta-one": "1", "x-ms-meta-two": "zwei", **BLOCK}
TYPED = {
    "x-ms-blob-content-type": "text/plain", "x-ms-blob-cache-control": "no-cache",
    "x-ms-blob-content-language": "de", **BLOCK,
}  # fmt: skip
TEN = b"0123456789"
MD5 = base64.b64encode(hashlib.md5(TEN).digest()).decode()
ASKS = [
    Ask("head of none", "HEAD", "none"),
    Ask("get of none", "GET", "none"),
    Ask("delete of none", "DELETE", "none"),
    Ask("metadata of none", "PUT", "none", "comp=metadata", {"x-ms-meta-one": "1"}),
    Ask("put", "PUT", "dir/ten", "", ONE_TWO, TEN),
    Ask("head", "HEAD", "dir/ten"),
    Ask("get", "GET", "dir/ten"),
    Ask("get of metadata", "GET", "dir/ten", "comp=metadata"),
    Ask("range", "GET", "dir/ten", "", {"x-ms-range": "bytes=2-4"}),
    Ask("plain range", "GET", "dir/ten", "", {"range": "bytes=2-4"}),
    Ask("range beyond", "GET", "dir/ten", "", {"x-ms-range": "bytes=5-99"}),
    Ask("range behind", "GET", "dir/ten", "", {"x-ms-range": "bytes=10-12"}),
    Ask("open range", "GET", "dir/ten", "", {"x-ms-range": "bytes=7-"}),
    Ask("empty", "PUT", "empty", "", BLOCK, b""),
    Ask("get of empty", "GET", "empty"),
    Ask("range of empty", "GET", "empty", "", {"x-ms-range": "bytes=0-99"}),
    Ask("not again", "PUT", "dir/ten", "", {"if-none-match": "*", **BLOCK}, b"x"),
    Ask("other etag", "PUT", "dir/ten", "", {"if-match": '"0x123"', **BLOCK}, b"x"),
    Ask("get other etag", "GET", "dir/ten", "", {"if-match": '"0x123"'}),
    Ask("head other etag", "HEAD", "dir/ten", "", {"if-match": '"0x123"'}),
    Ask("get known", "GET", "dir/ten", etag_of="if-none-match"),
    Ask("get this one", "GET", "dir/ten", etag_of="if-match"),
    Ask("put over this one", "PUT", "dir/ten", "", ONE_TWO, TEN, etag_of="if-match"),
    Ask("typed", "PUT", "typed", "", TYPED, b"x"),
    Ask("get typed", "GET", "typed"),
    Ask("set properties", "PUT", "typed", "comp=properties", {"x-ms-blob-content-type": "a/b"}),
    Ask("get properties set", "HEAD", "typed"),
    Ask("set metadata", "PUT", "typed", "comp=metadata", {"x-ms-meta-one": "neu"}),
    Ask("get metadata set", "HEAD", "typed"),
    Ask("good md5", "PUT", "md5", "", {"content-md5": MD5, **BLOCK}, TEN),
    Ask("wrong md5", "PUT", "md5-2", "", {"content-md5": MD5, **BLOCK}, b"x"),
    Ask("no type", "PUT", "untyped", "", {}, b"x"),
    Ask("block", "PUT", "big", _blockid(1), {}, b"1" * 100),
    Ask("second block", "PUT", "big", _blockid(2), {}, b"2" * 100),
    Ask("get of staged", "GET", "big"),
    Ask("staged blocks", "GET", "big", "comp=blocklist&blocklisttype=all"),
    Ask("wrong list", "PUT", "big", "comp=blocklist", {}, _commit(block_id(9))),
    Ask("list", "PUT", "big", "comp=blocklist", {}, _commit(block_id(2), block_id(1))),
    Ask("get of listed", "GET", "big"),
    Ask("committed blocks", "GET", "big", "comp=blocklist&blocklisttype=all"),
    Ask("list again", "PUT", "big", "comp=blocklist", {}, _commit(block_id(2), block_id(1))),
    Ask("get again", "GET", "big"),
    Ask("third block", "PUT", "big", _blockid(3), {}, b"3" * 100),
    Ask("old and new", "PUT", "big", "comp=blocklist", {}, _commit(block_id(3), block_id(1))),
    Ask("get old and new", "GET", "big"),
    Ask("list not again", "PUT", "big", "comp=blocklist", {"if-none-match": "*"}, _commit()),
    Ask("no blocks", "PUT", "nothing", "comp=blocklist", {}, _commit()),
    Ask("get no blocks", "GET", "nothing"),
    Ask("unicode", "PUT", "ü/日本 a+b%20c.txt", "", BLOCK, b"x"),
    Ask("get unicode", "GET", "ü/日本 a+b%20c.txt"),
    Ask("all", "GET", "", "restype=container&comp=list"),
    Ask("all with metadata", "GET", "", "restype=container&comp=list&include=metadata"),
    Ask("a prefix", "GET", "", "restype=container&comp=list&prefix=dir/t"),
    Ask("no such prefix", "GET", "", "restype=container&comp=list&prefix=zz"),
    Ask("a delimiter", "GET", "", "restype=container&comp=list&delimiter=/"),
    Ask("below a folder", "GET", "", "restype=container&comp=list&delimiter=/&prefix=dir/"),
    Ask("a page", "GET", "", "restype=container&comp=list&maxresults=2"),
    Ask("no page", "GET", "", "restype=container&comp=list&maxresults=0"),
    Ask("container", "GET", "", "restype=container"),
    Ask("head of container", "HEAD", "", "restype=container"),
    Ask("container again", "PUT", "", "restype=container"),
    Ask("delete", "DELETE", "dir/ten"),
    Ask("delete again", "DELETE", "dir/ten"),
    Ask("get deleted", "GET", "dir/ten"),
    Ask("empty id", "PUT", "big", "comp=block&blockid=", {}, b"x"),
]


@contextmanager
def _served(home: Path, database_url: str) -> Iterator[Side]:
    """The real server process's app behind a real socket."""
    with served(home, database_url) as site, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        created: Any = application.create_app(site.parts)
        server = uvicorn.Server(uvicorn.Config(created, lifespan="off", log_level="error"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            # Signatures that may create containers, as the emulator's account key may.
            result = site.ok("carl", "POST", f"{ARM}/datastores/workspaceblobstore/listSecrets", {})
            address = f"http://127.0.0.1:{port}"
            _wait(lambda: urllib.request.urlopen(f"{address}/health").status == 200)
            account = containers.account("default")
            yield Side(f"{address}/{account}", STORE, result["sasToken"])
        finally:
            server.should_exit = True
            thread.join(60)


def _wait(ready: Callable[[], bool]) -> None:
    for _ in range(300):
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError("the server does not answer")


@contextmanager
def _azurite(folder: Path) -> Iterator[Side]:
    with object_stores.azure_blob(folder) as document:
        from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

        query = generate_account_sas(
            document["account_name"],
            document["credentials"]["account_key"],
            ResourceTypes(service=True, container=True, object=True),
            AccountSasPermissions(
                read=True, write=True, delete=True, list=True, add=True, create=True
            ),
            datetime.now(timezone.utc) + timedelta(hours=1),
        )
        yield Side(document["endpoint"], document["container_name"], query)


@pytest.fixture(scope="module")
def sides(
    new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    home = tmp_path_factory.mktemp("ours")
    azurite = tmp_path_factory.mktemp("azurite")
    with _azurite(azurite) as azure_value, _served(home, new_database(home)) as native:
        yield azure_value, native


def seen(side: Side, ask: Ask, client: httpx2.Client) -> dict[str, Any]:
    """The parts of a response that a client uses."""
    top = f"{side.account}/{side.container}"
    path = f"{top}/{quote(ask.blob)}" if ask.blob else top
    headers = {"x-ms-version": "2021-12-02", **ask.headers}
    if ask.etag_of:
        head: Any = client.head(f"{path}?{side.sas}", headers={"x-ms-version": "2021-12-02"})
        headers[ask.etag_of] = head.headers["etag"]
    query = "&".join(part for part in (ask.query, side.sas) if part)
    answer: Any = client.request(
        ask.method, f"{path}?{query}", headers=headers, content=ask.content
    )
    result: dict[str, Any] = {"status": answer.status_code}
    result["code"] = answer.headers.get("x-ms-error-code")
    is_xml = "xml" in answer.headers.get("content-type", "")
    if answer.status_code < 300:
        names = [name for name in COMPARED if not (is_xml and name == "content-length")]
        result |= {name: answer.headers.get(name) for name in names}
        result |= {name: name in answer.headers for name in THERE}
        if ask.blob and ask.method in ("GET", "HEAD") and not is_xml:
            result["type"] = answer.headers.get("content-type")
    if is_xml and ask.method == "GET" and answer.status_code < 300:
        result["body"] = _entries_of(ElementTree.fromstring(answer.content))
    elif answer.status_code < 300:
        result["body"] = answer.content
    return result


def _entries_of(root: ElementTree.Element) -> Any:
    """A list of blobs or blocks, without times and URLs."""
    if root.tag == "BlockList":
        return [
            (kind.tag, [(item.findtext("Name"), item.findtext("Size")) for item in kind])
            for kind in root
        ]
    blobs = [
        (
            item.findtext("Name"),
            item.findtext("Properties/Content-Length"),
            item.findtext("Properties/Content-Type"),
            item.findtext("Properties/BlobType"),
            sorted((pair.tag, pair.text) for pair in item.iterfind("Metadata/*")),
        )
        for item in root.iterfind("Blobs/Blob")
    ]
    prefixes = [item.findtext("Name") for item in root.iterfind("Blobs/BlobPrefix")]
    return blobs, prefixes, bool(root.findtext("NextMarker")), root.findtext("Prefix") or ""


def test_responses_equal_azures(sides: tuple[Side, Side]) -> None:
    """In one sequence: each request depends on those before it."""
    differ = {}
    with httpx2.Client(timeout=60) as client:
        for ask in ASKS:
            azure_value, native = (seen(side, ask, client) for side in sides)
            meant = DIFFERS.get(ask.name, ())
            result = {
                key: {"azurite": azure_value.get(key), "ours": native.get(key)}
                for key in {*azure_value, *native}
                if azure_value.get(key) != native.get(key)
                and key not in meant
                and meant != EVERYTHING
            }
            if result:
                differ[ask.name] = result
    assert not differ, json.dumps(differ, indent=1, default=str)


def by_sdk(side: Side) -> list[Any]:
    """What azure-storage-blob, which azure-ai-ml uses, reads of a container."""
    from azure.core.exceptions import AzureError
    from azure.storage.blob import BlobBlock, ContainerClient, ContentSettings

    result: list[Any] = []
    client = ContainerClient(
        side.account,
        side.container,
        credential=side.sas,
        max_single_put_size=1 << 20,
        max_block_size=256 << 10,
        max_single_get_size=1 << 20,
        max_chunk_get_size=256 << 10,
        api_version="2021-12-02",
        retry_total=0,
    )

    def note(step: str, ask: Callable[[], Any]) -> None:
        try:
            result.append((step, ask()))
        except AzureError as error:
            status = getattr(error, "status_code", None)
            result.append((step, type(error).__name__, status, getattr(error, "error_code", None)))

    large = bytes(range(256)) * 20_000  # 5 MB, in 20 blocks
    name = "sdk/a b/\u00fc large.bin"
    blob = client.get_blob_client(name)
    note("exists", blob.exists)
    note("properties of none", blob.get_blob_properties)
    note("large", lambda: bool(blob.upload_blob(large, max_concurrency=8, metadata={"one": "1"})))
    note("again", lambda: bool(blob.upload_blob(large)))
    note("overwrite", lambda: bool(blob.upload_blob(large, overwrite=True, max_concurrency=4)))
    note("exists now", blob.exists)
    note(
        "down", lambda: hashlib.sha256(blob.download_blob(max_concurrency=8).readall()).hexdigest()
    )
    note("part", lambda: blob.download_blob(offset=1_000_000, length=7).readall())
    note("blocks", lambda: [len(item) for item in blob.get_block_list("all")])
    note("set", lambda: bool(blob.set_blob_metadata({"upload_status": "completed", "name": "x"})))
    note("get", lambda: dict(blob.get_blob_properties().metadata))
    settings = ContentSettings(content_type="text/plain", cache_control="no-store")
    note("headers", lambda: bool(blob.set_http_headers(settings)))

    def upload(target: Any, content: bytes) -> bool:
        return bool(target.upload_blob(iter([content])))

    def download(source: Any) -> int:
        return len(source.download_blob().readall())

    def properties() -> Any:
        observed = blob.get_blob_properties()
        kind = observed.content_settings.content_type, observed.content_settings.cache_control
        return observed.name, observed.size, str(observed.blob_type), *kind

    note("properties", properties)
    for number, content in enumerate((b"", b"x", b"y" * (1 << 20), b"z" * ((1 << 20) + 1))):
        small = client.get_blob_client(f"sdk/small/{number}")
        note(f"up {number}", partial(upload, small, content))
        note(f"down {number}", partial(download, small))
    staged = client.get_blob_client("sdk/staged")
    note("stage", lambda: bool(staged.stage_block("one", b"1")))
    note("and another", lambda: bool(staged.stage_block("two", b"2")))
    note("commit", lambda: bool(staged.commit_block_list([BlobBlock("two"), BlobBlock("one")])))
    note("committed", lambda: staged.download_blob().readall())
    note("no such block", lambda: bool(staged.commit_block_list([BlobBlock("six")])))
    etag = staged.get_blob_properties().etag
    note("of this", lambda: staged.download_blob(etag=etag, match_condition=_not(False)).readall())
    note("of other", lambda: staged.download_blob(etag=etag, match_condition=_not(True)).readall())
    note("list", lambda: [(item.name, item.size) for item in client.list_blobs("sdk/")])
    note("pages", lambda: [item.name for item in client.list_blobs("sdk/", results_per_page=2)])
    note("walk", lambda: [item.name for item in client.walk_blobs("sdk/", delimiter="/")])
    note(
        "said", lambda: [item.metadata for item in client.list_blobs("sdk/", include=["metadata"])]
    )
    note("delete", blob.delete_blob)
    note("delete again", blob.delete_blob)
    note("container", client.exists)
    return result


def _not(modified: bool) -> Any:
    from azure.core import MatchConditions

    return MatchConditions.IfModified if modified else MatchConditions.IfNotModified


def test_the_sdk_gets_the_same_responses(sides: tuple[Side, Side]) -> None:
    azure_value, native = (by_sdk(side) for side in sides)
    assert [item for item in zip(azure_value, native, strict=True) if item[0] != item[1]] == []
    assert native[6][1] == hashlib.sha256(bytes(range(256)) * 20_000).hexdigest()


def test_an_interrupted_upload_leaves_nothing(sides: tuple[Side, Side]) -> None:
    """The connection ends in the middle of a body: the blob does not exist, and the next upload
    succeeds.
    """
    side = sides[1]
    host = side.account.removeprefix("http://").partition("/")[0]
    name, _, port = host.partition(":")
    path = f"/{side.container}/cut/off?{side.sas}"
    for headers in ("Content-Length: 5000000", "Transfer-Encoding: chunked"):
        with socket.create_connection((name, int(port)), timeout=60) as connection:
            head = f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nx-ms-blob-type: BlockBlob\r\n{headers}"
            connection.sendall(f"{head}\r\n\r\n".encode())
            part = b"x" * 2_000_000
            chunked = b"%x\r\n%s\r\n" % (len(part), part)
            connection.sendall(chunked if "chunked" in headers else part)
    url = f"{side.account}/{side.container}/cut/off?{side.sas}"
    with httpx2.Client(timeout=60) as client:
        request = f"restype=container&comp=list&prefix=cut&{side.sas}"
        assert client.head(url).status_code == 404
        page = client.get(f"{side.account}/{side.container}?{request}").content
        assert ElementTree.fromstring(page).find("Blobs/Blob") is None
        assert client.put(url, content=b"whole", headers=BLOCK).status_code == 201
        assert client.get(url).content == b"whole"
