"""A registry in the test's own process that keeps to the distribution specification's letter.

Owns: blobs, uploads and manifests in memory, logins, and the faults that a test asks for.
Leaves: what is pushed to the tests.
Always: an upload goes on only at its own place, a blob is taken only with its own digest, and a
manifest only when all that it names is there.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_BLOB = re.compile(r"/v2/(?P<name>.+)/blobs/(?P<digest>sha256:[0-9a-f]{64})")
_BEGIN = re.compile(r"/v2/(?P<name>.+)/blobs/uploads/")
_UPLOAD = re.compile(r"/uploads/(?P<id>\d+)")
_MANIFEST = re.compile(r"/v2/(?P<name>.+)/manifests/(?P<tag>[\w.-]+)")


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    authorization: str
    size_bytes: int


@dataclass
class Registry:
    """`fault` is called for each request; an answer of its own, (status, headers, body), wins.

    `login` is `basic`, `bearer` or empty; `realm` the token service that it names.
    """

    login: str = ""
    user: tuple[str, str] = ("me", "secret")
    realm: str = ""
    fault: Callable[[Seen], tuple[int, dict[str, str], bytes] | None] = lambda seen: None
    seen: list[Seen] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, bytearray] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        registry = self

        class Handler(_Handler):
            state = registry

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def requests(self, method: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.method == method]


class _Handler(BaseHTTPRequestHandler):
    state: Registry
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:
        pass

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        authorization = self.headers.get("Authorization", "")
        seen = Seen(self.command, self.path, authorization, len(body))
        self.state.seen.append(seen)
        answer = self.state.fault(seen)
        if answer is None:
            answer = self._token() if self.path.startswith("/token") else self._refused()
        if answer is None:
            answer = self._answer(body)
        status, headers, content = answer
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_POST = do_PATCH = do_PUT = _any

    def _token(self) -> tuple[int, dict[str, str], bytes]:
        if not self._is_user():
            return 401, {}, b""
        return 200, {}, json.dumps({"token": "t0ken"}).encode()

    def _is_user(self) -> bool:
        pair = base64.b64encode(":".join(self.state.user).encode()).decode()
        return self.headers.get("Authorization") == f"Basic {pair}"

    def _refused(self) -> tuple[int, dict[str, str], bytes] | None:
        if self.state.login == "basic" and not self._is_user():
            return 401, {"WWW-Authenticate": 'Basic realm="here"'}, b""
        if self.state.login == "bearer" and self.headers.get("Authorization") != "Bearer t0ken":
            realm = self.state.realm or f"http://{self.state.host}/token"
            return 401, {"WWW-Authenticate": f'Bearer realm="{realm}",service="tests"'}, b""
        return None

    def _answer(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(self.path)
        if parts.path == "/v2/":
            return 200, {}, b"{}"
        if match := _BLOB.fullmatch(parts.path):
            return self._blob(match["digest"])
        if _BEGIN.fullmatch(parts.path) and self.command == "POST":
            id = str(len(self.state.uploads) + 1)
            self.state.uploads[id] = bytearray()
            return 202, {"Location": f"/uploads/{id}", "Range": "0-0"}, b""
        if match := _UPLOAD.fullmatch(parts.path):
            return self._upload(match["id"], body, parse_qs(parts.query))
        if match := _MANIFEST.fullmatch(parts.path):
            return self._manifest(match["tag"], body)
        return 404, {}, b""

    def _blob(self, digest: str) -> tuple[int, dict[str, str], bytes]:
        content = self.state.blobs.get(digest)
        if content is None:
            return _error(404, "BLOB_UNKNOWN")
        return 200, {"Docker-Content-Digest": digest, "Content-Length": str(len(content))}, content

    def _upload(
        self, id: str, body: bytes, query: dict[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        upload = self.state.uploads.get(id)
        if upload is None:
            return _error(404, "BLOB_UPLOAD_UNKNOWN")
        headers = {"Location": f"/uploads/{id}"}
        if self.command == "GET":
            return 204, {**headers, "Range": f"0-{max(0, len(upload) - 1)}"}, b""
        start = self.headers.get("Content-Range", f"{len(upload)}-").partition("-")[0]
        if start != str(len(upload)):
            return 416, {**headers, "Range": f"0-{max(0, len(upload) - 1)}"}, b""
        upload += body
        if self.command == "PATCH":
            return 202, {**headers, "Range": f"0-{len(upload) - 1}"}, b""
        digest = f"sha256:{hashlib.sha256(upload).hexdigest()}"
        if query.get("digest") != [digest]:
            return _error(400, "DIGEST_INVALID")
        self.state.blobs[digest] = bytes(self.state.uploads.pop(id))
        return 201, {"Docker-Content-Digest": digest}, b""

    def _manifest(self, tag: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        if self.command == "GET":
            content = self.state.manifests.get(tag)
            return (200, {}, content) if content is not None else _error(404, "MANIFEST_UNKNOWN")
        document = json.loads(body)
        descriptors = [document["config"], *document["layers"]]
        if any(len(self.state.blobs.get(row["digest"], b"")) != row["size"] for row in descriptors):
            return _error(400, "MANIFEST_BLOB_UNKNOWN")
        self.state.manifests[tag] = body
        return 201, {"Docker-Content-Digest": f"sha256:{hashlib.sha256(body).hexdigest()}"}, b""


def _error(status: int, code: str) -> tuple[int, dict[str, str], bytes]:
    return status, {}, json.dumps({"errors": [{"code": code, "message": code.lower()}]}).encode()
