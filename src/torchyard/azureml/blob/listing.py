"""The blobs of a container, a page at a time, in Azure Storage's XML.

Owns: prefixes, delimiters, markers, the XML of a page.
Leaves: sorting files to datastores.
Always: a page continues after the last name of the one before, so a blob that stays is in exactly
one page, whatever else is added and deleted meanwhile.

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
from torchyard.azureml.blob.places import Container, is_visible
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.data import file_properties
from torchyard.data.types import Entry, Files

_MOST = 5000
# Sorts after every name that begins with the text before it.
_LAST = "\U0010ffff"


@runtime_checkable
class SortedFiles(Protocol):
    """Files that can be listed from any name on; see data/folders.py."""

    def ordered(
        self, prefix: str, after: str = "", fold: bool = False
    ) -> Iterator[Entry | str]: ...


@dataclass(frozen=True)
class ListQuery:
    """A requested page; `after` is the last name of the one before."""

    prefix: str = ""
    delimiter: str = ""
    after: str = ""
    limit: int = _MOST
    metadata: bool = False


@dataclass(frozen=True)
class ListPage:
    """A page: blobs, and prefixes that end with the delimiter. `next` is the marker of the
    following page, empty at the end.
    """

    items: Sequence[Blob | str]
    next: str = ""


def read_query(query: Mapping[str, str]) -> ListQuery:
    """
    Raises:
        BadRequest: `maxresults` is not a positive integer, or a marker is not ours.
    """
    limit = query.get("maxresults", "")
    if limit and not (limit.isascii() and limit.isdigit() and 0 < len(limit) < 10 and int(limit)):
        raise BadRequest(
            f"`maxresults` is `{limit[:20]}`",
            "it must be a positive integer",
            code="OutOfRangeQueryParameterValue",
        )
    return ListQuery(
        query.get("prefix", ""),
        query.get("delimiter", ""),
        _name_in(query.get("marker", "")),
        min(int(limit), _MOST) if limit else _MOST,
        "metadata" in query.get("include", "").lower().split(","),
    )


def page(db: Database, container: Container, query: ListQuery) -> ListPage:
    """One page of blobs and prefixes."""
    names = _items(container, query)
    names_found = list(islice(names, query.limit + 1))
    items, has_more = names_found[: query.limit], len(names_found) > query.limit
    entries = [item for item in items if isinstance(item, Entry)]
    records = file_properties.of_all(db, container.workspace, container.datastore.name, entries)
    last = _name(items[-1]) if has_more else ""
    if has_more and isinstance(items[-1], str):
        last += _LAST
    blobs = [
        Blob(item, records.get(item.path)) if isinstance(item, Entry) else item for item in items
    ]
    return ListPage(blobs, _marker(last) if last else "")


def to_xml(account_url: str, container: Container, query: ListQuery, page: ListPage) -> bytes:
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>'
        f"<EnumerationResults ServiceEndpoint={quoteattr(account_url)} "
        f"ContainerName={quoteattr(container.name)}>",
        _element("Prefix", query.prefix),
        _element("Marker", _marker(query.after) if query.after else ""),
        _element("MaxResults", str(query.limit)),
        _element("Delimiter", query.delimiter) if query.delimiter else "",
        "<Blobs>",
        *(_item(item, query.metadata) for item in page.items),
        "</Blobs>",
        _element("NextMarker", page.next),
        "</EnumerationResults>",
    ]
    return "".join(parts).encode("utf-8", "replace")


def _items(container: Container, query: ListQuery) -> Iterator[Entry | str]:
    """The entries from the page on; each prefix once."""
    paths: Iterator[Entry | str]
    if isinstance(container.files, SortedFiles):
        paths = container.files.ordered(query.prefix, query.after, query.delimiter == "/")
    else:
        paths = _walked(container.files, query.prefix)
    folded = ""
    for item in paths:
        name = _name(item)
        if (
            name <= query.after
            or not _is_text(name)
            or not is_visible(container.datastore.name, name)
        ):
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
    """All files of a datastore that lists one folder at a time."""
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
        return f"<BlobPrefix>{_name_element(item)}</BlobPrefix>"
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
    # Clients read an empty element as an error, and a missing one as no metadata.
    if metadata and item.metadata:
        pairs = "".join(_element(name, value) for name, value in item.metadata.items())
        metadata_xml = f"<Metadata>{pairs}</Metadata>"
    name_xml = _name_element(item.entry.path)
    return f"<Blob>{name_xml}<Properties>{inside}</Properties>{metadata_xml}</Blob>"


def _name_element(name: str) -> str:
    if printable(name) != name or "\r" in name:
        return f'<Name Encoded="true">{quote(name)}</Name>'
    return _element("Name", name)


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(printable(text))}</{name}>"


def _name(item: Entry | str) -> str:
    return item.path if isinstance(item, Entry) else item


def _is_text(name: str) -> bool:
    """A disk may have file names that are not valid text."""
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
            "the marker is not from this server",
            "start the list again",
            code="OutOfRangeQueryParameterValue",
        ) from error
