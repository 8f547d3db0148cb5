"""HTTP: the files of the web page.

Owns: /ui/…, their headers.
Leaves: what is in them to ui/, which builds the folder assets/; data to the native API.
Always: every response has the page's Content-Security-Policy, and no file outside of assets/ is
served; a file whose name holds its hash may be kept for ever, the page itself is asked for again.

Source: https://www.w3.org/TR/CSP3/, https://web.dev/articles/strict-csp
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response

from torchyard.base.errors import NotFound
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

ASSETS = Path(__file__).with_name("assets")
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; worker-src 'self'; object-src 'none'; "
    "frame-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
_PAGE = "index.html"
# The build writes these below its folder of hashed names.
_HASHED = "assets/"
_FOR_EVER = "public, max-age=31536000, immutable"
_ASKED_AGAIN = "no-cache"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_COMPRESSED = frozenset({".css", ".html", ".js", ".json", ".svg", ".txt"})
_LEAST_COMPRESSED_BYTES = 512

router = APIRouter(tags=["page"], route_class=GuardedRoute, include_in_schema=False)


@dataclass(frozen=True)
class _File:
    """A file of the page in memory; `compressed` is empty where it isn't worth it."""

    content: bytes
    compressed: bytes
    type: str
    etag: str
    lasting: bool


@router.get("/ui")
@needs(Permission.OPEN)
async def without_slash() -> Response:
    return RedirectResponse("/ui/", 308, headers=HEADERS)


@router.api_route("/ui/{path:path}", methods=["GET", "HEAD"])
@needs(Permission.OPEN)
async def file(request: Request, path: str) -> Response:
    """A file of the page; the page itself for every address that it reads itself."""
    served = _files().get(path)
    if served is None:
        if path.startswith(_HASHED):
            return _missing("the page has no such file", "load the page again")
        served = _files().get(_PAGE)
    if served is None:
        return _missing("this installation has no web page", "build it with `make ui`")
    headers = {
        **HEADERS,
        "etag": served.etag,
        "cache-control": _FOR_EVER if served.lasting else _ASKED_AGAIN,
        "vary": "accept-encoding",
    }
    if request.headers.get("if-none-match") == served.etag:
        return Response(None, 304, headers=headers)
    content = served.content
    if served.compressed and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers["content-encoding"] = served.compressed, "gzip"
    return Response(content, headers=headers, media_type=served.type)


def _missing(message: str, hint: str) -> Response:
    body = NotFound(message, hint).to_json()
    return JSONResponse(body, 404, headers={**HEADERS, "cache-control": "no-store"})


@cache
def _files() -> dict[str, _File]:
    """By path below /ui/; they are less than a megabyte, and stay in memory."""
    files = {}
    for file in sorted(ASSETS.rglob("*")):
        if file.is_file() and file.suffix in _TYPES:
            path = file.relative_to(ASSETS).as_posix()
            files[path] = _read(file, lasting=path.startswith(_HASHED))
    return files


def _read(file: Path, lasting: bool) -> _File:
    content = file.read_bytes()
    compressed = b""
    if file.suffix in _COMPRESSED and len(content) >= _LEAST_COMPRESSED_BYTES:
        compressed = gzip.compress(content, 9, mtime=0)
    etag = f'"{hashlib.sha256(content).hexdigest()[:24]}"'
    return _File(content, compressed, _TYPES[file.suffix], etag, lasting)
