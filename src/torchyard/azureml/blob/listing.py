"""What is in a container, a page at a time, in Azure Storage's XML.

Owns: prefixes, delimiters, markers, the XML of a page.
Leaves: the order of files to their places, which tell them sorted.
Always: a page goes on behind the last name of the one before, so a blob that stays is in exactly
one, whatever comes and goes meanwhile.

Source: https://learn.microsoft.com/rest/api/storageservices/list-blobs
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, runtime_checkable
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from torchyard.azureml.blob.errors import BadRequest, printable
from torchyard.azureml.blob.headers import Blob, http_date
from torchyard.azureml.blob.places import Container, shown
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.data import file_properties
from torchyard.data.types import Entry, Files

_MOST = 5000
# Behind every name that begins with what stands before it.
_LAST = "\U0010ffff"


@runtime_checkable
class InOrder(Protocol):
    """Files that can be told from any name on; see data/folders.py."""

    def ordered(
        self, prefix: str, after: str = "", fold: bool = False
    ) -> Iterator[Entry | str]: ...


@dataclass(frozen=True)
class Wanted:
    """Which page; `after` is the last name of the one before."""

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    most: int = _MOST
    metadata: bool = False


@dataclass(frozen=True)
class Listed:
    """A page: blobs and, ending with the delimiter, what begins several. `next` is the marker of
    the page behind it, empty at the end.
    """

    items: Sequence[Blob | str]
    next: str = ""


def read_query(query: Mapping[str, str]) -> Wanted:
    """
    Raises:
        Refused: `maxresults` is no number from 1 up, or a marker is not ours.
    """
    limit = query.get("maxresults", "")
    if limit and not (limit.isascii() and limit.isdigit() and 0 < len(limit) < 10 and int(limit)):
        raise BadRequest(
            f"`maxresults` is `{limit[:20]}`",
            "a number from 1 up",
            code="OutOfRangeQueryParameterValue",
        )
    return Wanted(
        query.get("prefix", ""),
        query.get("delimiter", ""),
        _name_in(query.get("marker", "")),
        min(int(limit), _MOST) if limit else _MOST,
        "metadata" in query.get("include", "").lower().split(","),
    )


def page(db: Database, container: Container, query: Wanted) -> Listed:
    """Some of what there is."""
    names = _items(container, query)
    names_found = list(islice(names, query.most + 1))
    items, has_more = names_found[: query.most], len(names_found) > query.most
    entries = [item for item in items if isinstance(item, Entry)]
    records = file_properties.of_all(db, container.workspace, container.datastore.name, entries)
    last = _name(items[-1]) if has_more else ""
    if has_more and isinstance(items[-1], str):
        last += _LAST
    blobs = [Blob(item, records.get(item.path)) if isinstance(item, Entry) else item for item in items]
    return Listed(blobs, _marker(last) if last else "")


def to_xml(account_url: str, container: Container, query: Wanted, page: Listed) -> bytes:
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>'
        f"<EnumerationResults ServiceEndpoint={quoteattr(account_url)} "
        f"ContainerName={quoteattr(container.name)}>",
        _element("Prefix", query.prefix),
        _element("Marker", _marker(query.after) if query.after else ""),
        _element("MaxResults", str(query.most)),
        _element("Delimiter", query.delimiter) if query.delimiter else "",
        "<Blobs>",
        *(_item(item, query.metadata) for item in page.items),
        "</Blobs>",
        _element("NextMarker", page.next),
        "</EnumerationResults>",
    ]
    return "".join(parts).encode("utf-8", "replace")


def _items(container: Container, query: Wanted) -> Iterator[Entry | str]:
    """Of the page and behind it; what begins several once."""
    paths: Iterator[Entry | str]
    if isinstance(container.files, InOrder):
        paths = container.files.ordered(query.prefix, query.after, query.delimiter == "/")
    else:
        paths = _walked(container.files, query.prefix)
    folded = ""
    for item in paths:
        name = _name(item)
        if name <= query.after or not _is_text(name) or not shown(container.datastore.name, name):
            continue
        if isinstance(item, Entry) and query.delimiter:
            head, separator, _ = name[len(query.prefix) :].partition(query.delimiter)
            if separator:
                name = query.prefix + head + separator
                if name == folded or name <= query.after:
                    continue
                folded, item = name, name
        yield item


def _walked(files: Files, prefix: str) -> Iterator[Entry]:
    """From a place that tells a folder at a time, all of it."""
    folder = prefix.rpartition("/")[0]
    top = f"{folder}/" if folder else ""
    try:
        for entry in files.walk(folder):
            path = top + entry.path
            if path.startswith(prefix):
                yield Entry(path, entry.size_bytes, entry.mark, entry.modified_at)
    except NotFound:
        return


def _item(item: Blob | str, metadata: bool) -> str:
    if isinstance(item, str):
        return f"<BlobPrefix>{_named(item)}</BlobPrefix>"
    properties = {
        "Creation-Time": http_date(item.created_at),
        "Last-Modified": http_date(item.modified_at),
        "Etag": item.etag.strip('"'),
        "Content-Length": str(item.entry.size_bytes),
        **item.properties,
        "BlobType": "BlockBlob",
        "AccessTier": "Hot",
        "AccessTierInferred": "true",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "false",
    }
    inside = "".join(_element(name, value) for name, value in properties.items())
    metadata_xml = ""
    # Clients take an empty element for no answer, and none for no metadata.
    if metadata and item.metadata:
        pairs = "".join(_element(name, value) for name, value in item.metadata.items())
        metadata_xml = f"<Metadata>{pairs}</Metadata>"
    return f"<Blob>{_named(item.entry.path)}<Properties>{inside}</Properties>{metadata_xml}</Blob>"


def _named(name: str) -> str:
    if printable(name) != name or "\r" in name:
        return f'<Name Encoded="true">{quote(name)}</Name>'
    return _element("Name", name)


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(printable(text))}</{name}>"


def _name(item: Entry | str) -> str:
    return item.path if isinstance(item, Entry) else item


def _is_text(name: str) -> bool:
    """A disk may hold names that are none."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _marker(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_in(marker: str) -> str:
    try:
        return base64.b64decode(marker.encode(), altchars=b"-_", validate=True).decode()
    except (ValueError, binascii.Error) as error:
        raise BadRequest(
            "the marker is none of this server's",
            "begin the list again",
            code="OutOfRangeQueryParameterValue",
        ) from error
