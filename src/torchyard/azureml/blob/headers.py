"""A blob's properties, as headers carry them in both directions.

Owns: reading what a client says of a blob, telling what is known of one, ETags, conditions, ranges.
Leaves: keeping what was said to data/file_properties.py.
Always: an ETag changes with the bytes and with what is said of them, and is the same in every
answer until then.

Source: https://learn.microsoft.com/rest/api/storageservices/get-blob-properties,
https://learn.microsoft.com/rest/api/storageservices/specifying-conditional-headers-for-blob-service-operations
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import format_datetime, parsedate_to_datetime

from torchyard.azureml.blob.errors import BadRange, Exists, NotMet, NotModified, Refused
from torchyard.data.file_properties import FileProperties
from torchyard.data.types import Entry

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BINARY = "application/octet-stream"
_META = "x-ms-meta-"
_META_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_META_MOST_BYTES = 8 << 10
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
# What a client says in a header of the first name is answered in one of the second.
PROPERTIES = {
    "x-ms-blob-content-type": "Content-Type",
    "x-ms-blob-content-encoding": "Content-Encoding",
    "x-ms-blob-content-language": "Content-Language",
    "x-ms-blob-content-disposition": "Content-Disposition",
    "x-ms-blob-cache-control": "Cache-Control",
    "x-ms-blob-content-md5": "Content-MD5",
}


@dataclass(frozen=True)
class Blob:
    """One that is there. `said` is None where nobody said anything of it."""

    entry: Entry
    said: FileProperties | None = None

    @property
    def etag(self) -> str:
        changed = self.said.changed_at.isoformat() if self.said else ""
        seen = f"{self.entry.mark}\n{self.entry.size_bytes}\n{changed}".encode()
        return f'"0x{hashlib.sha256(seen).hexdigest()[:15].upper()}"'

    @property
    def modified_at(self) -> datetime:
        return self.said.changed_at if self.said else self.entry.modified_at or _EPOCH

    @property
    def created_at(self) -> datetime:
        return self.said.created_at if self.said else self.entry.modified_at or _EPOCH

    @property
    def properties(self) -> dict[str, str]:
        """By the name of the header that answers them; the content type is always known."""
        return {"Content-Type": _BINARY, **(self.said.properties if self.said else {})}

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.said.metadata) if self.said else {}


def versions(blob: Blob) -> dict[str, str]:
    """ETag and Last-Modified, which most answers carry."""
    return {"ETag": blob.etag, "Last-Modified": http_date(blob.modified_at)}


def told(blob: Blob) -> dict[str, str]:
    """Everything that is answered of a blob, but its length."""
    return {
        **versions(blob),
        **{name: latin(value) for name, value in blob.properties.items() if value},
        **{f"{_META}{name}": latin(value) for name, value in blob.metadata.items()},
        "Accept-Ranges": "bytes",
        "x-ms-blob-type": "BlockBlob",
        "x-ms-creation-time": http_date(blob.created_at),
        "x-ms-lease-state": "available",
        "x-ms-lease-status": "unlocked",
        "x-ms-server-encrypted": "false",
        # A page that somebody stored runs no script with our web page's rights.
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
    }


def properties_in(headers: Mapping[str, str], of_body: bool = False) -> dict[str, str]:
    """What a request says of a blob.

    Args:
        of_body: the request's body is the blob, so its plain headers count, too.
    """
    found = {}
    for name, plain in PROPERTIES.items():
        value = headers.get(name) or (headers.get(plain.lower()) if of_body else None)
        if value:
            found[plain] = _text(value)[:1024]
    return found


def metadata_in(headers: Mapping[str, str]) -> dict[str, str]:
    """
    Raises:
        Refused: a name that Azure does not take, or too much of it.
    """
    found = {
        name[len(_META) :]: _text(value)
        for name, value in headers.items()
        if name.lower().startswith(_META)
    }
    for name in found:
        if not _META_NAME.fullmatch(name):
            raise Refused(
                f"`{name[:80]}` is no name for metadata",
                "letters, digits and `_`, and no digit at the beginning",
                code="InvalidMetadata",
            )
    if sum(len(name) + len(value.encode()) for name, value in found.items()) > _META_MOST_BYTES:
        raise Refused("the metadata is longer than 8 KiB", code="MetadataTooLarge")
    return found


def is_conditional(headers: Mapping[str, str]) -> bool:
    """Whether a request says for which blob it is meant, or for which not."""
    return any(name in headers for name in _CONDITIONS)


def check_write(headers: Mapping[str, str], blob: Blob | None) -> None:
    """Whether the conditions of a request that changes a blob hold.

    Raises:
        Exists: it asks that there be none.
        NotMet: another one does not hold.
    """
    if blob is not None and headers.get("if-none-match", "").strip() == "*":
        raise Exists("the blob is there already", "overwrite it, or choose another name")
    try:
        check_read(headers, blob)
    except NotModified as error:
        raise NotMet(error.message) from error


def check_read(headers: Mapping[str, str], blob: Blob | None) -> None:
    """
    Raises:
        NotModified: the client has it already.
        NotMet: the blob is not the one that is meant.
    """
    wanted = headers.get("if-match")
    if wanted is not None and (blob is None or not _among(blob.etag, wanted)):
        raise NotMet("the blob is not the one that `If-Match` names: it was changed meanwhile")
    if blob is None:
        return
    since = _moment(headers.get("if-unmodified-since"))
    if since is not None and blob.modified_at.replace(microsecond=0) > since:
        raise NotMet("the blob was changed after the time that is named")
    known = headers.get("if-none-match")
    if known is not None and _among(blob.etag, known):
        raise NotModified("the blob is the one that `If-None-Match` names")
    since = _moment(headers.get("if-modified-since"))
    if known is None and since is not None and blob.modified_at.replace(microsecond=0) <= since:
        raise NotModified("the blob was not changed after the time that is named")


def range_in(headers: Mapping[str, str], size_bytes: int) -> tuple[int, int] | None:
    """(first byte, number of bytes) that a request asks for; None for the whole blob.

    Raises:
        BadRange: it begins behind the end.
    """
    found = _RANGE.fullmatch((headers.get("x-ms-range") or headers.get("range") or "").strip())
    if found is None:
        return None
    start = int(found[1])
    end = int(found[2]) if found[2] else size_bytes - 1
    if start >= size_bytes:
        raise BadRange(f"the range begins at byte {start}, and the blob has {size_bytes}")
    if end < start:
        return None
    return start, min(end, size_bytes - 1) - start + 1


def http_date(moment: datetime) -> str:
    return format_datetime(moment.astimezone(timezone.utc), usegmt=True)


def latin(text: str) -> str:
    """As a header can carry it: UTF-8, of which each byte stands as a character."""
    return text.encode().decode("latin-1").replace("\r", " ").replace("\n", " ")


def _text(value: str) -> str:
    """What a header carries, which Starlette reads as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        return value


def _among(etag: str, listed: str) -> bool:
    plain = [one.strip().removeprefix("W/").strip('"') for one in listed.split(",")]
    return "*" in plain or etag.strip('"') in plain


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        found = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)
