"""A proxy that serves files in place of sites that can't be reached, for run_notebooks.py.

Owns: CONNECT requests of one notebook; HTTPS for the sites in its folder, with a certificate of its
    own authority; which files it served, and the addresses that could not be reached.
Leaves: what the files hold to the caller, signing in to stand_in_sign_in.py.
Always: listens on loopback; a site that isn't in the folder gets a plain tunnel; only GET and HEAD
    are answered, and POST for signing in. A folder `HOST/CONTAINER` answers as a public container
    of Azure's Blob storage.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import socketserver
import ssl
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

import stand_in_sign_in
from torchyard.base import certificates

_CONNECT_LIMIT_S = 20


class StandInProxy(socketserver.ThreadingTCPServer):
    """The sites below `folder`, and a tunnel to every other."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, folder: Path, certificate_folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        children = folder.iterdir() if folder.is_dir() else ()
        self.hosts = {child.name for child in children if "." in child.name}
        self.unreachable: set[str] = set()
        self.served: set[str] = set()
        self.sign_in: stand_in_sign_in.SignIn | None = None
        issued = certificates.ensure(
            certificate_folder, {*self.hosts, stand_in_sign_in.HOST}, datetime.now(timezone.utc)
        )
        self.authority = certificates.authority(certificate_folder)
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(issued.file)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print it, unless the client has left before its response."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def serves(self, host: str) -> bool:
        """Whether requests of this host are answered here."""
        return host in self.hosts or (host == stand_in_sign_in.HOST and self.sign_in is not None)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextlib.contextmanager
def running(folder: Path, certificate_folder: Path) -> Iterator[StandInProxy]:
    """A proxy that answers until the block ends."""
    with StandInProxy(folder, certificate_folder) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: StandInProxy
    host = ""

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        host, _, port = self.path.rpartition(":")
        if not self.server.serves(host):
            self._tunnel(host, int(port))
            return
        self.send_response(200)
        self.end_headers()
        self.host = host
        try:
            self.connection = self.server.tls.wrap_socket(self.connection, server_side=True)
        except OSError:
            self.close_connection = True
            return
        self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb")
        self.close_connection = False

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        host = self.host or (parts.hostname or "")
        if host == stand_in_sign_in.HOST and self.server.sign_in is not None:
            self._answer_json(self.server.sign_in.get(self.path))
            return
        if host not in self.server.hosts:
            self.server.unreachable.add(self.path)
            self._answer(502, b"", "text/plain")
            return
        query = parse_qs(parts.query)
        top = self.server.folder / host
        file = (top / unquote(parts.path).lstrip("/")).resolve()
        if not file.is_relative_to(top.resolve()):
            self._answer(404, b"", "text/plain")
        elif query.get("comp") == ["list"] and file.is_dir():
            prefix, delimiter = (query.get(key, [""])[0] for key in ("prefix", "delimiter"))
            self._answer(200, _blob_list(file, prefix, delimiter), "application/xml")
        elif query.get("restype") == ["container"] and file.is_dir():
            # Clients ask for its metadata to learn whether everybody may read it.
            self._answer(200, b"", "application/xml", {"x-ms-blob-public-access": "container"})
        elif file.is_file():
            self.server.served.add(f"{host}{unquote(parts.path)}")
            self._answer_file(file)
        else:
            self._answer(404, b"", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        sign_in = self.server.sign_in if self.host == stand_in_sign_in.HOST else None
        self._answer_json(sign_in.post(self.path, body) if sign_in is not None else None)

    def _answer_json(self, document: dict[str, object] | None) -> None:
        if document is None:
            self._answer(404, b"{}", "application/json")
            return
        self.server.served.add(self.host)
        self._answer(200, json.dumps(document).encode(), "application/json")

    def _answer_file(self, file: Path) -> None:
        content = file.read_bytes()
        first, last = 0, len(content) - 1
        byte_range = self.headers.get("x-ms-range") or self.headers.get("Range") or ""
        if byte_range.startswith("bytes=") and content:
            start, _, end = byte_range[len("bytes=") :].partition("-")
            first, last = int(start or 0), min(int(end or last), last)
            status = 206
        else:
            status = 200
        extra = {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if status == 206 else {}
        extra["Last-Modified"] = formatdate(file.stat().st_mtime, usegmt=True)
        extra["ETag"] = f'"{md5(content).hexdigest()}"'
        extra |= {"x-ms-blob-type": "BlockBlob", "Accept-Ranges": "bytes"}
        self._answer(status, content[first : last + 1], "application/octet-stream", extra)

    def _answer(
        self, status: int, content: bytes, kind: str, extra: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(content)), **(extra or {})}
        for name, text in headers.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def _tunnel(self, host: str, port: int) -> None:
        try:
            upstream = socket.create_connection((host, port), _CONNECT_LIMIT_S)
        except OSError:
            self.server.unreachable.add(f"{host}:{port}")
            self.send_error(502)
            return
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        ends = {self.connection: upstream, upstream: self.connection}
        with upstream, contextlib.suppress(OSError):
            while True:
                for ready in select.select(list(ends), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    ends[ready].sendall(data)


def _blob_list(container: Path, prefix: str, delimiter: str) -> bytes:
    """One page of the names below `prefix`; with a delimiter, folders stand for what is in them."""
    names = sorted(path.relative_to(container).as_posix() for path in _files(container))
    below = [name for name in names if name.startswith(prefix)]
    folders = set()
    if delimiter:
        ends = {name: name.find(delimiter, len(prefix)) + 1 for name in below}
        folders = {name[: ends[name]] for name in below if ends[name]}
        below = [name for name in below if not ends[name]]
    blobs = "".join(_blob(container, name) for name in below)
    prefixes = "".join(
        f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>" for folder in sorted(folders)
    )
    return (
        '<?xml version="1.0" encoding="utf-8"?>'
        f'<EnumerationResults ContainerName="{container.name}"><Prefix>{escape(prefix)}</Prefix>'
        f"<Blobs>{blobs}{prefixes}</Blobs><NextMarker/></EnumerationResults>"
    ).encode()


def _files(container: Path) -> Iterator[Path]:
    return (path for path in container.rglob("*") if path.is_file())


def _blob(container: Path, name: str) -> str:
    file = container / name
    return (
        f"<Blob><Name>{escape(name)}</Name><Properties>"
        f"<Last-Modified>{formatdate(file.stat().st_mtime, usegmt=True)}</Last-Modified>"
        f'<Etag>"{md5(name.encode()).hexdigest()}"</Etag>'
        f"<Content-Length>{file.stat().st_size}</Content-Length>"
        "<Content-Type>application/octet-stream</Content-Type><BlobType>BlockBlob</BlobType>"
        "</Properties></Blob>"
    )
