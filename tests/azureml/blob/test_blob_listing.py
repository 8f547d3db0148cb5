"""Lists of blobs: prefixes, delimiters, pages; the same from a folder and from other stores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path
from xml.etree import ElementTree

import pytest

from azureml.blob_site import code, emptied, listed, put, sas, send
from postgres_server import NewDatabase
from torchyard.azureml.blob import listing
from torchyard.azureml.blob.listing import ListQuery
from torchyard.azureml.blob.places import Container
from torchyard.base.files import Writing
from torchyard.data.folders import FolderFiles
from torchyard.data.types import Datastore, Entry, Files
from workspaces.served import Served, served

ONE_DATABASE = True

NAMES = [
    "a", "a-b", "b/one", "b/two", "b.txt", "b/deep/er/x", "c/d/e", "c/d.txt", "c d/x", "é/ü", "z",
]  # fmt: skip
QUERIES = [
    ListQuery(),
    ListQuery("b"),
    ListQuery("b/"),
    ListQuery("b/", "/"),
    ListQuery("", "/"),
    ListQuery("c", "/"),
    ListQuery("c/d", "/"),
    ListQuery("b/deep/er/x", "/"),
    ListQuery("nothing/"),
    ListQuery("nothing/", "/"),
    ListQuery("", "d"),
    ListQuery("b/", "e"),
]


@pytest.fixture(scope="module")
def server(new_database: NewDatabase, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("listing")
    with served(home, new_database(home)) as created:
        yield created


@pytest.fixture
def site(server: Served) -> Iterator[Served]:
    yield server
    emptied(server)


@pytest.fixture(scope="module")
def key(server: Served) -> str:
    return sas(server)


class Elsewhere:
    """The same files, listed a folder at a time as a network store does."""

    def __init__(self, files: FolderFiles) -> None:
        self._files = files

    def entry(self, path: str) -> Entry | None:
        return self._files.entry(path)

    def is_folder(self, path: str) -> bool:
        return self._files.is_folder(path)

    def walk(self, prefix: str) -> Iterator[Entry]:
        return self._files.walk(prefix)

    def fetch(self, files: Sequence[tuple[str, Path]]) -> None:
        self._files.fetch(files)

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        return self._files.read(path, start, limit)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        return self._files.writing(path)

    def delete(self, path: str) -> None:
        self._files.delete(path)

    def local(self, path: str, person: str = "") -> Path | None:
        return None


def expected(query: ListQuery) -> list[str]:
    """Prefix and delimiter as in Azure's documentation, literally."""
    result = set()
    for name in NAMES:
        if name.startswith(query.prefix):
            remaining = name[len(query.prefix) :]
            if query.delimiter and query.delimiter in remaining:
                remaining = remaining[: remaining.index(query.delimiter) + len(query.delimiter)]
            result.add(query.prefix + remaining)
    return sorted(result)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["folder", "elsewhere"])
@pytest.mark.parametrize("limit", [1, 2, 5000])
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_pages_contain_every_blob_once(
    server: Served, tmp_path: Path, query: ListQuery, limit: int, elsewhere: bool
) -> None:
    folder = FolderFiles(tmp_path)
    for name in NAMES:
        with folder.writing(name) as writing:
            writing.write(b"x")
    (tmp_path / "empty/folder").mkdir(parents=True)
    (tmp_path / ".a.012345abcdef.part").write_bytes(b"half")
    (tmp_path / "b" / "link").symlink_to("/etc")
    files: Files = Elsewhere(folder) if elsewhere else folder
    store = Datastore("default", "x", "local", "file://x", datetime.now(timezone.utc))
    container = Container("azureml-x", "default", store, files)
    result: list[str] = []
    after = ""
    while True:
        request = ListQuery(query.prefix, query.delimiter, after, limit)
        page = listing.page(server.parts.services.db, container, request)
        assert len(page.items) <= limit
        result += [item if isinstance(item, str) else item.entry.path for item in page.items]
        if not page.next:
            break
        after = listing.read_query({"marker": page.next}).after
    assert result == expected(query)


def test_a_list_over_http(site: Served, key: str) -> None:
    for name in ("m/a.txt", "m/b.txt", "m/sub/c"):
        put(site, name, b"content", key, meta_name="said", blob_content_type="text/plain")
    query = f"restype=container&comp=list&prefix=m/&delimiter=/&include=metadata&maxresults=2&{key}"
    first = send(site, "GET", "", query)
    assert first.headers["content-type"] == "application/xml"
    blobs, prefixes, marker = listed(first)
    assert (blobs, prefixes) == (["m/a.txt", "m/b.txt"], []) and marker
    item = ElementTree.fromstring(first.content).find("Blobs/Blob")
    assert item is not None
    assert item.findtext("Properties/Content-Length") == "7"
    assert item.findtext("Properties/Content-Type") == "text/plain"
    assert item.findtext("Properties/BlobType") == "BlockBlob"
    assert item.findtext("Metadata/name") == "said"
    head = send(site, "HEAD", "m/a.txt", key)
    assert item.findtext("Properties/Etag") == head.headers["etag"].strip('"')
    assert item.findtext("Properties/Last-Modified") == head.headers["last-modified"]
    second = send(site, "GET", "", f"{query}&marker={marker}")
    assert listed(second) == ([], ["m/sub/"], "")


@pytest.mark.parametrize(
    "parameter", ["maxresults=0", "maxresults=-1", "maxresults=x", "maxresults=1e3", "marker=é"]
)
def test_invalid_pages_are_refused(site: Served, key: str, parameter: str) -> None:
    answer = send(site, "GET", "", f"restype=container&comp=list&{parameter}&{key}")
    assert code(answer) == (400, "OutOfRangeQueryParameterValue")


def test_prefixes_that_leave_the_container_list_nothing(site: Served, key: str) -> None:
    put(site, "a", b"x", key)
    for prefix in ("../", "/", "..", "a/../", "\\"):
        answer = send(site, "GET", "", f"restype=container&comp=list&prefix={prefix}&{key}")
        assert listed(answer) == ([], [], ""), prefix
