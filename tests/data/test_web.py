"""Public containers of Azure Blob, read without a package; the account is a server of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import pytest

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound, Unreachable
from torchyard.data import actions
from torchyard.data.datastores import Datastores
from torchyard.data.web import Container

BLOBS = {"mnist/a b.gz": b"images", "mnist/deep/c.gz": b"labels", "mnist/deep/": b"", "x": b"x"}


class _Account(BaseHTTPRequestHandler):
    """One container, `data`; a page of a listing has one blob."""

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        blob = unquote(parts.path).removeprefix("/data/")
        if parts.path == "/broken":
            self._send(b"<EnumerationResults>")
        elif query.get("comp") == "list":
            self._send(_page(query).encode())
        elif blob in BLOBS and not blob.endswith("/"):
            self._send(BLOBS[blob])
        else:
            self.send_error(404)

    do_HEAD = do_GET

    def _send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _page(query: dict[str, str]) -> str:
    names = sorted(name for name in BLOBS if name.startswith(query["prefix"]))
    names = [name for name in names if name > query.get("marker", "")]
    blobs = "".join(
        f"<Blob><Name>{escape(name)}</Name><Properties><Content-Length>{len(BLOBS[name])}"
        f"</Content-Length><Etag>e{len(name)}</Etag></Properties></Blob>"
        for name in names[:1]
    )
    marker = names[0] if len(names) > 1 else ""
    return (
        f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{escape(marker)}</NextMarker>"
        "</EnumerationResults>"
    )


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Account)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_folder_is_listed_page_by_page_and_copied(url: str, tmp_path: Path) -> None:
    container = Container(f"{url}/data", "sv=1")
    entries = list(container.walk("mnist"))
    assert [(entry.path, entry.size_bytes) for entry in entries] == [
        ("a b.gz", 6),
        ("deep/c.gz", 6),
    ]
    assert container.is_folder("mnist/deep") and not container.is_folder("mni")
    container.fetch([(f"mnist/{entry.path}", tmp_path / entry.mark) for entry in entries])
    assert {file.read_bytes() for file in tmp_path.iterdir()} == {b"images", b"labels"}


def test_a_file_is_told_from_a_folder(url: str) -> None:
    container = Container(f"{url}/data")
    entry = container.entry("mnist/a b.gz")
    assert entry is not None and entry.size_bytes == 6
    assert container.entry("mnist") is None and container.entry("") is None
    assert b"".join(container.read("mnist/a b.gz", 2, 3)) == b"age"


def test_nothing_is_written_there(url: str) -> None:
    with pytest.raises(InvalidInput, match="can't be changed"):
        Container(f"{url}/data").delete("x")


def test_a_signature_is_in_no_message(url: str) -> None:
    with pytest.raises(NotFound) as refusal:
        list(Container(f"{url}/data", "sig=SECRET").read("missing"))
    assert "SECRET" not in str(refusal.value)


def test_a_listing_that_is_not_xml_is_refused(url: str) -> None:
    with pytest.raises(Unreachable, match="did not list its files"):
        list(Container(f"{url}/broken").walk(""))


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("https://acc.blob.core.windows.net/data/a%20b/c.gz", "a b/c.gz"),
        ("https://acc.blob.core.windows.net/data/", ""),
        ("wasbs://data@acc.blob.core.windows.net/deep/c.gz", "deep/c.gz"),
        # As SDK v1 makes it of an `https` URL.
        ("wasbs://data@acc.blob.core.windows.net/a%20b/c.gz", "a b/c.gz"),
        ("abfss://data@acc.dfs.core.windows.net/deep/", "deep"),
    ],
)
def test_addresses_of_azure_need_no_package(
    db: Database, stores: Datastores, path: str, inner: str
) -> None:
    location = actions.locate(db, stores, "default", path)
    assert isinstance(location.files, Container) and location.path == inner
