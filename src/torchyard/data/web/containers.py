"""Public containers of Azure Blob, read over plain HTTPS with only the standard library.

Owns: the listing of a container, its blobs' addresses.
Leaves: requests and their errors to urls.py; containers that need credentials to datastores.py.
Always: a listing is read page by page, and a page's length is bounded.

Source: https://learn.microsoft.com/rest/api/storageservices/list-blobs
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from torchyard.base.errors import InvalidInput, NotFound, Unreachable
from torchyard.base.files import Writing
from torchyard.data.types import Entry
from torchyard.data.web.urls import WebFiles, opened

HOSTS = (".blob.core.windows.net", ".dfs.core.windows.net")
_PAGE_BYTES = 64 << 20


class Container:
    """`Files` of a container that everybody may read.

    Args:
        url: the container's, as `url_of` gives it.
        query: of the URL that names it, such as a shared access signature.
    """

    def __init__(self, url: str, query: str = "") -> None:
        self._url = url
        self._query = query

    def entry(self, path: str) -> Entry | None:
        if not path.strip("/"):
            return None
        try:
            found = self._blob(path).entry("")
        except NotFound:
            return None
        assert found is not None
        return Entry(path, found.size_bytes, found.mark)

    def is_folder(self, path: str) -> bool:
        return next(self._pages(path, most=1), None) is not None

    def walk(self, prefix: str) -> Iterator[Entry]:
        start = len(_folder(prefix))
        entries = (
            Entry(entry.path[start:], entry.size_bytes, entry.mark)
            for entry in self._pages(prefix)
            # Data Lake's folders are empty blobs.
            if not entry.path.endswith("/")
        )
        return iter(sorted(entries, key=lambda entry: entry.path))

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        for path, target in pairs:
            self._blob(path).fetch([("", target)])

    def read(self, path: str, start: int = 0, most: int | None = None) -> Iterator[bytes]:
        return self._blob(path).read("", start, most)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise self._read_only()

    def delete(self, path: str) -> None:
        raise self._read_only()

    def local(self, path: str) -> Path | None:
        return None

    def _read_only(self) -> InvalidInput:
        return InvalidInput(f"`{self._url}` can't be changed", "name a datastore")

    def _blob(self, path: str) -> WebFiles:
        query = f"?{self._query}" if self._query else ""
        return WebFiles(f"{self._url}/{quote(path.strip('/'))}{query}")

    def _pages(self, prefix: str, most: int = 5000) -> Iterator[Entry]:
        marker = ""
        while True:
            parameters = {
                "restype": "container",
                "comp": "list",
                "prefix": _folder(prefix),
                "maxresults": str(most),
                **({"marker": marker} if marker else {}),
            }
            query = "&".join(filter(None, (urlencode(parameters), self._query)))
            with opened(f"{self._url}?{query}", "GET") as response:
                page = response.read(_PAGE_BYTES)
            try:
                root = ElementTree.fromstring(page)
            except ElementTree.ParseError as error:
                raise Unreachable(
                    f"`{self._url}` did not list its files: {error}", "check the URL"
                ) from error
            yield from (_entry(blob) for blob in root.iter("Blob"))
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return


def url_of(account: str, container: str) -> str:
    return f"https://{account}{HOSTS[0]}/{container}"


def _folder(path: str) -> str:
    return f"{path.strip('/')}/" if path.strip("/") else ""


def _entry(blob: ElementTree.Element) -> Entry:
    size = blob.findtext("Properties/Content-Length") or "0"
    mark = (blob.findtext("Properties/Etag") or "").strip('"')
    return Entry(blob.findtext("Name") or "", int(size) if size.isdigit() else 0, mark)
