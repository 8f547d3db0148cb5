"""A blob's properties as headers, in both directions.

Owns: reading a blob's properties from a request, writing them to a response, ETags, conditions,
ranges.
Leaves: storing properties to data/file_properties.py.
Always: an ETag changes when the content or the properties change, and only then.

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

from torchyard.azureml.blob.errors import BadRange, BadRequest, ConditionNotMet, Exists, NotModified
from torchyard.data.file_properties import FileProperties
from torchyard.data.types import Entry

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_BINARY = "application/octet-stream"
_META = "x-ms-meta-"
_META_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_META_BYTES = 8 << 10
_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{0,18})")
_CONDITIONS = ("if-match", "if-none-match", "if-modified-since", "if-unmodified-since")
# A request has the first header for what a response has in the second.
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
    """A blob that exists. `record` is None if no client has set properties of it."""

    entry: Entry
    record: FileProperties | None = None

    @property
    def etag(self) -> str:
        changed = self.record.changed_at.isoformat() if self.record else ""
        version = f"{self.entry.mark}\n{self.entry.size_bytes}\n{changed}".encode()
        return f'"0x{hashlib.sha256(version).hexdigest()[:15].upper()}"'

    @property
    def modified_at(self) -> datetime:
        return self.record.changed_at if self.record else self.entry.modified_at or _EPOCH

    @property
    def created_at(self) -> datetime:
        return self.record.created_at if self.record else self.entry.modified_at or _EPOCH

    @property
    def properties(self) -> dict[str, str]:
        """By the name of the response header; there is always a content type."""
        return {"Content-Type": _BINARY, **(self.record.properties if self.record else {})}

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self.record.metadata) if self.record else {}


def versions(blob: Blob) -> dict[str, str]:
    """ETag and Last-Modified, which most responses have."""
    return {"ETag": blob.etag, "Last-Modified": http_date(blob.modified_at)}


def blob_headers(blob: Blob) -> dict[str, str]:
    """All headers of a blob, except its length."""
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
        # A stored page must not run scripts with the permissions of our web page.
        "Content-Security-Policy": "sandbox",
        "X-Content-Type-Options": "nosniff",
    }


def properties_in(headers: Mapping[str, str], of_body: bool = False) -> dict[str, str]:
    """The properties of a blob in a request.

    Args:
        of_body: the request's body is the blob, so its plain headers count, too.
    """
    properties = {}
    for name, plain in PROPERTIES.items():
        value = headers.get(name) or (headers.get(plain.lower()) if of_body else None)
        if value:
            properties[plain] = _text(value)[:1024]
    return properties


def metadata_in(headers: Mapping[str, str]) -> dict[str, str]:
    """
    Raises:
        BadRequest: a name that Azure does not accept, or too much metadata.
    """
    metadata = {
        name[len(_META) :]: _text(value)
        for name, value in headers.items()
        if name.lower().startswith(_META)
    }
    for name in metadata:
        if not _META_NAME.fullmatch(name):
            raise BadRequest(
                f"`{name[:80]}` is not a valid name for metadata",
                "use letters, digits and `_`, and no digit at the start",
                code="InvalidMetadata",
            )
    if sum(len(name) + len(value.encode()) for name, value in metadata.items()) > _MAX_META_BYTES:
        raise BadRequest("the metadata is longer than 8 KiB", code="MetadataTooLarge")
    return metadata


def is_conditional(headers: Mapping[str, str]) -> bool:
    """Whether a request depends on the state of the blob."""
    return any(name in headers for name in _CONDITIONS)


def check_write(headers: Mapping[str, str], blob: Blob | None) -> None:
    """Check the conditions of a request that changes a blob.

    Raises:
        Exists: the request requires that there be no blob.
        ConditionNotMet: another condition does not hold.
    """
    if blob is not None and headers.get("if-none-match", "").strip() == "*":
        raise Exists("the blob exists already", "overwrite it, or choose another name")
    try:
        check_read(headers, blob)
    except NotModified as error:
        raise ConditionNotMet(error.message) from error


def check_read(headers: Mapping[str, str], blob: Blob | None) -> None:
    """
    Raises:
        NotModified: the client has it already.
        ConditionNotMet: it is another version of the blob.
    """
    if_match = headers.get("if-match")
    if if_match is not None and (blob is None or not _among(blob.etag, if_match)):
        raise ConditionNotMet("the blob does not match `If-Match`: it was changed meanwhile")
    if blob is None:
        return
    since = _moment(headers.get("if-unmodified-since"))
    if since is not None and blob.modified_at.replace(microsecond=0) > since:
        raise ConditionNotMet("the blob was changed after the time in the condition")
    if_none_match = headers.get("if-none-match")
    if if_none_match is not None and _among(blob.etag, if_none_match):
        raise NotModified("the blob matches `If-None-Match`")
    since = _moment(headers.get("if-modified-since"))
    if (
        if_none_match is None
        and since is not None
        and blob.modified_at.replace(microsecond=0) <= since
    ):
        raise NotModified("the blob was not changed after the time in the condition")


def range_in(headers: Mapping[str, str], size_bytes: int) -> tuple[int, int] | None:
    """(first byte, number of bytes) that a request selects; None for the whole blob.

    Raises:
        BadRange: it starts after the end.
    """
    match = _RANGE.fullmatch((headers.get("x-ms-range") or headers.get("range") or "").strip())
    if match is None:
        return None
    start = int(match[1])
    end = int(match[2]) if match[2] else size_bytes - 1
    if start >= size_bytes:
        raise BadRange(f"the range starts at byte {start}, but the blob has {size_bytes} bytes")
    if end < start:
        return None
    return start, min(end, size_bytes - 1) - start + 1


def http_date(moment: datetime) -> str:
    return format_datetime(moment.astimezone(timezone.utc), usegmt=True)


def latin(text: str) -> str:
    """As a header can contain it: UTF-8, with each byte as a character."""
    return text.encode().decode("latin-1").replace("\r", " ").replace("\n", " ")


def _text(value: str) -> str:
    """The text of a header, which Starlette reads as Latin-1."""
    try:
        return value.encode("latin-1").decode()
    except (UnicodeDecodeError, UnicodeEncodeError):
        return value


def _among(etag: str, listed: str) -> bool:
    plain = [etag.strip().removeprefix("W/").strip('"') for etag in listed.split(",")]
    return "*" in plain or etag.strip('"') in plain


def _moment(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
