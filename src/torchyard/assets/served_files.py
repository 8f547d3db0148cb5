"""Responses with files that people and jobs have written.

Owns: their headers; the head of a file as text or as a table; which images are shown.
Leaves: which file, and who may read it, to the routes.
Always: no browser runs what is in such a file as a page of this server: files are downloads, and
what is shown in place is JSON, or an image of a kind that holds no script, told by its content.

Source: https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Content-Security-Policy/sandbox
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from typing_extensions import NotRequired, TypedDict

from torchyard.base import files
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.errors import Conflict
from torchyard.base.files import Readable

HEADERS = {
    "content-security-policy": "sandbox; default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
_HEAD_BYTES = 256 << 10
_MOST_ROWS, _MOST_COLUMNS, _MOST_CELL = 200, 200, 1000
_MOST_IMAGE_BYTES = 64 << 20
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


class Preview(TypedDict):
    """What a page shows of a file.

    A table has `columns` and `rows` of texts, a text its `text`; `truncated` says that there is
    more of either.
    """

    path: str
    size_bytes: int
    kind: Literal["text", "table", "image", "binary"]
    truncated: bool
    media_type: NotRequired[str]
    text: NotRequired[str]
    columns: NotRequired[list[str]]
    rows: NotRequired[list[list[str]]]


def attachment(file: Readable, is_named: bool = True) -> OpenFileResponse:
    """The file, to be saved under its name, else under the one that the link to it says."""
    name = quote(file.name, safe="")
    disposition = f"attachment; filename*=utf-8''{name}" if is_named else "attachment"
    headers = {**HEADERS, "content-disposition": disposition}
    return OpenFileResponse(file, media_type="application/octet-stream", headers=headers)


def image(file: Readable) -> OpenFileResponse:
    """The file, to be shown in a page.

    Raises:
        Conflict: it is not an image that is safe to show.
    """
    type = _image_type(file)
    if not type or files.size_bytes(file) > _MOST_IMAGE_BYTES:
        raise Conflict(
            "the file is not an image that is shown in a page",
            "PNG, JPEG, GIF, WebP, AVIF and BMP are, up to 64 MiB; download any other file",
            code="not_an_image",
        )
    return OpenFileResponse(file, media_type=type, headers={**HEADERS, "cache-control": "no-cache"})


def preview(file: Readable, path: str) -> Preview:
    size_bytes = files.size_bytes(file)
    body: Preview = {"path": path, "size_bytes": size_bytes, "kind": "binary", "truncated": False}
    type = _image_type(file)
    if type:
        return {**body, "kind": "image", "media_type": type}
    head = _head(file)
    text = _text_of(head, is_whole=size_bytes <= len(head))
    if text is None:
        return body
    is_cut = size_bytes > len(head)
    delimiter = _DELIMITERS.get(Path(file.name).suffix.lower())
    rows = _rows(text, delimiter, is_cut) if delimiter else []
    if rows:
        is_cut = is_cut or len(rows) > _MOST_ROWS
        return {
            **body,
            "kind": "table",
            "columns": rows[0],
            "rows": rows[1:],
            "truncated": is_cut,
        }
    return {**body, "kind": "text", "text": text, "truncated": is_cut}


def head_text(file: Readable) -> tuple[str | None, bool]:
    """The head of a file as text, None if it is binary; whether that is all of it."""
    head = _head(file)
    is_whole = files.size_bytes(file) <= len(head)
    return _text_of(head, is_whole), is_whole


def _head(file: Readable, size_bytes: int = _HEAD_BYTES) -> bytes:
    with files.reading(file) as opened:
        return opened.read(size_bytes)


def _text_of(head: bytes, is_whole: bool) -> str | None:
    """None where the bytes are not UTF-8 text."""
    if b"\0" in head:
        return None
    # A character may have been cut in two at the end.
    for cut in range(1 if is_whole else 4):
        try:
            return head[: len(head) - cut].decode()
        except UnicodeDecodeError:
            continue
    return None


def _rows(text: str, delimiter: str, is_cut: bool) -> list[list[str]]:
    """The first rows of a table, its columns before them; none where the text is not a table."""
    lines = text.rpartition("\n")[0] if is_cut else text
    rows: list[list[str]] = []
    try:
        for row in csv.reader(io.StringIO(lines, newline=""), delimiter=delimiter):
            if len(rows) > _MOST_ROWS:
                break
            rows.append([cell[:_MOST_CELL] for cell in row[:_MOST_COLUMNS]])
    except csv.Error:
        return []
    return rows


def _image_type(file: Readable) -> str:
    """Of an image whose kind holds no script, by its first bytes; else empty."""
    head = _head(file, 32)
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    if head[4:12] in (b"ftypavif", b"ftypavis"):
        return "image/avif"
    # Two letters alone are the beginning of many a text.
    if head.startswith(b"BM") and head[6:10] == b"\0\0\0\0":
        return "image/bmp"
    return ""
