"""A file behind an http(s) URL, with only the standard library."""

from __future__ import annotations

import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput, NotFound, Unreachable
from torchyard.base.files import Writing, chunks
from torchyard.data.types import Entry

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
                    raise Unreachable(f"`{self._url}` broke off: {error}", "try again") from error

    def read(self, path: str, start: int = 0, most: int | None = None) -> Iterator[bytes]:
        response = self._open("GET")
        while start > 0 and (skipped := response.read(min(start, _BLOCK))):
            start -= len(skipped)
        return chunks(response, most)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise InvalidInput(f"`{self._url}` can't be written to", "name a datastore")

    def delete(self, path: str) -> None:
        raise InvalidInput(f"`{self._url}` can't be deleted from", "name a datastore")

    def local(self, path: str) -> Path | None:
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
