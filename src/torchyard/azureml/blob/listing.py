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
    most = query.get("maxresults", "")
    if most and not (most.isascii() and most.isdigit() and 0 < len(most) < 10 and int(most)):
        raise BadRequest(
            f"`maxresults` is `{most[:20]}`",
            "a number from 1 up",
            code="OutOfRangeQueryParameterValue",
        )
    return Wanted(
        query.get("prefix", ""),
        query.get("delimiter", ""),
        _name_in(query.get("marker", "")),
        min(int(most), _MOST) if most else _MOST,
        "metadata" in query.get("include", "").lower().split(","),
    )


def page(db: Database, container: Container, wanted: Wanted) -> Listed:
    """Some of what there is."""
    names = _items(container, wanted)
    found = list(islice(names, wanted.most + 1))
    items, more = found[: wanted.most], len(found) > wanted.most
    entries = [one for one in items if isinstance(one, Entry)]
    said = file_properties.of_all(db, container.workspace, container.datastore.name, entries)
    last = _name(items[-1]) if more else ""
    if more and isinstance(items[-1], str):
        last += _LAST
    listed = [Blob(one, said.get(one.path)) if isinstance(one, Entry) else one for one in items]
    return Listed(listed, _marker(last) if last else "")


def to_xml(account_url: str, container: Container, wanted: Wanted, listed: Listed) -> bytes:
    parts = [
        '<?xml version="1.0" encoding="utf-8"?>'
        f"<EnumerationResults ServiceEndpoint={quoteattr(account_url)} "
        f"ContainerName={quoteattr(container.name)}>",
        _element("Prefix", wanted.prefix),
        _element("Marker", _marker(wanted.after) if wanted.after else ""),
        _element("MaxResults", str(wanted.most)),
        _element("Delimiter", wanted.delimiter) if wanted.delimiter else "",
        "<Blobs>",
        *(_item(one, wanted.metadata) for one in listed.items),
        "</Blobs>",
        _element("NextMarker", listed.next),
        "</EnumerationResults>",
    ]
    return "".join(parts).encode("utf-8", "replace")


def _items(container: Container, wanted: Wanted) -> Iterator[Entry | str]:
    """Of the page and behind it; what begins several once."""
    found: Iterator[Entry | str]
    if isinstance(container.files, InOrder):
        found = container.files.ordered(wanted.prefix, wanted.after, wanted.delimiter == "/")
    else:
        found = _walked(container.files, wanted.prefix)
    folded = ""
    for one in found:
        name = _name(one)
        if name <= wanted.after or not _is_text(name) or not shown(container.datastore.name, name):
            continue
        if isinstance(one, Entry) and wanted.delimiter:
            head, separator, _ = name[len(wanted.prefix) :].partition(wanted.delimiter)
            if separator:
                name = wanted.prefix + head + separator
                if name == folded or name <= wanted.after:
                    continue
                folded, one = name, name
        yield one


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


def _item(one: Blob | str, metadata: bool) -> str:
    if isinstance(one, str):
        return f"<BlobPrefix>{_named(one)}</BlobPrefix>"
    properties = {
        "Creation-Time": http_date(one.created_at),
        "Last-Modified": http_date(one.modified_at),
        "Etag": one.etag.strip('"'),
        "Content-Length": str(one.entry.size_bytes),
        **one.properties,
        "BlobType": "BlockBlob",
        "AccessTier": "Hot",
        "AccessTierInferred": "true",
        "LeaseStatus": "unlocked",
        "LeaseState": "available",
        "ServerEncrypted": "false",
    }
    inside = "".join(_element(name, value) for name, value in properties.items())
    said = ""
    # Clients take an empty element for no answer, and none for no metadata.
    if metadata and one.metadata:
        pairs = "".join(_element(name, value) for name, value in one.metadata.items())
        said = f"<Metadata>{pairs}</Metadata>"
    return f"<Blob>{_named(one.entry.path)}<Properties>{inside}</Properties>{said}</Blob>"


def _named(name: str) -> str:
    if printable(name) != name or "\r" in name:
        return f'<Name Encoded="true">{quote(name)}</Name>'
    return _element("Name", name)


def _element(name: str, text: str) -> str:
    return f"<{name}>{escape(printable(text))}</{name}>"


def _name(one: Entry | str) -> str:
    return one.path if isinstance(one, Entry) else one


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
