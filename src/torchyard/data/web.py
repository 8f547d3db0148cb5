"""Files behind http(s) URLs, and public containers of Azure Blob, with only the standard library.

Owns: requests and their errors, the listing of a container, its blobs' addresses.
Leaves: containers that need credentials to datastores.py.
Always: a listing is read page by page, and a page's length is bounded.

Source: https://learn.microsoft.com/rest/api/storageservices/list-blobs
"""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

from torchyard.base.errors import InvalidInput, NotFound, Unreachable
from torchyard.base.files import Writing, chunks
from torchyard.data.types import Entry

HOSTS = (".blob.core.windows.net", ".dfs.core.windows.net")
_PAGE_BYTES = 64 << 20
_TIMEOUT_S = 60.0
_BLOCK = 1 << 20
# What a URL consists of; people write spaces and letters of their language besides.
_SAFE = "%/:=&?~#+!$,;'@()*[]"


class WebFiles:
    """`Files` of one URL: one file, whose path is empty. HTTP lists no folders."""

    def __init__(self, url: str) -> None:
        self._url = url

    def entry(self, path: str) -> Entry | None:
        try:
            with self._open("HEAD") as response:
                return _entry(response)
        except _NoHead:
            with self._open("GET") as response:
                return _entry(response)

    def is_folder(self, path: str) -> bool:
        return False

    def walk(self, prefix: str) -> Iterator[Entry]:
        raise InvalidInput(
            f"`{self._url}` can't be read as a folder: HTTP lists no files",
            "name one file with `type: uri_file`, or map the URL to a datastore: "
            "`yard workspace map-url --help`",
        )

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        for _, target in pairs:
            with self._open("GET") as response, open(target, "wb") as file:
                try:
                    shutil.copyfileobj(response, file, _BLOCK)
                except OSError as error:
                    raise Unreachable(
                        f"`{self._url}` was interrupted: {error}", "try again"
                    ) from error

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        response = self._open("GET")
        while start > 0 and (skipped := response.read(min(start, _BLOCK))):
            start -= len(skipped)
        return chunks(response, limit)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise InvalidInput(f"`{self._url}` can't be written to", "name a datastore")

    def delete(self, path: str) -> None:
        raise InvalidInput(f"`{self._url}` can't be deleted from", "name a datastore")

    def local(self, path: str, person: str = "") -> Path | None:
        return None

    def _open(self, method: str) -> Any:
        return opened(self._url, method)


def opened(url: str, method: str) -> Any:
    """The response to a request without a body.

    Raises:
        NotFound: the server says that there is nothing.
        Unreachable: it refuses, or does not answer.
    """
    request = urllib.request.Request(quote(url, safe=_SAFE), method=method)
    # A query may hold a signature, which belongs into no message.
    url = url.partition("?")[0]
    request.add_header("User-Agent", "torchyard")
    try:
        return urllib.request.urlopen(request, timeout=_TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (404, 410):
            raise NotFound(
                f"`{url}` does not exist (the server answers {error.code})",
                "check the URL",
            ) from error
        if method == "HEAD" and error.code in (403, 405, 501):
            raise _NoHead from error  # signed URLs are valid for one method
        raise Unreachable(
            f"`{url}` answers {error.code} {error.reason}", "check the URL"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise Unreachable(
            f"`{url}` can't be read: {reason}",
            "a site without internet can map URLs to a datastore: `yard workspace map-url --help`",
        ) from error


class _NoHead(Exception):
    """The web server answers GET only."""


def _entry(response: Any) -> Entry:
    size = response.headers.get("Content-Length") or "0"
    mark = response.headers.get("ETag") or response.headers.get("Last-Modified") or ""
    return Entry("", int(size) if size.isdigit() else 0, mark.strip('"'))


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
            entry = self._blob(path).entry("")
        except NotFound:
            return None
        assert entry is not None
        return Entry(path, entry.size_bytes, entry.mark)

    def is_folder(self, path: str) -> bool:
        return next(self._pages(path, page_size=1), None) is not None

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

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        return self._blob(path).read("", start, limit)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise self._read_only()

    def delete(self, path: str) -> None:
        raise self._read_only()

    def local(self, path: str, person: str = "") -> Path | None:
        return None

    def _read_only(self) -> InvalidInput:
        return InvalidInput(f"`{self._url}` can't be changed", "name a datastore")

    def _blob(self, path: str) -> WebFiles:
        query = f"?{self._query}" if self._query else ""
        return WebFiles(f"{self._url}/{quote(path.strip('/'))}{query}")

    def _pages(self, prefix: str, page_size: int = 5000) -> Iterator[Entry]:
        marker = ""
        while True:
            parameters = {
                "restype": "container",
                "comp": "list",
                "prefix": _folder(prefix),
                "maxresults": str(page_size),
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
            yield from (_blob_entry(blob) for blob in root.iter("Blob"))
            marker = root.findtext("NextMarker") or ""
            if not marker:
                return


def url_of(account: str, container: str) -> str:
    return f"https://{account}{HOSTS[0]}/{container}"


def _folder(path: str) -> str:
    return f"{path.strip('/')}/" if path.strip("/") else ""


def _blob_entry(blob: ElementTree.Element) -> Entry:
    size = blob.findtext("Properties/Content-Length") or "0"
    mark = (blob.findtext("Properties/Etag") or "").strip('"')
    return Entry(blob.findtext("Name") or "", int(size) if size.isdigit() else 0, mark)
