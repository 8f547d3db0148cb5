"""A stand-in for PyPI: wheels of a folder, with sizes and metadata as PyPI has them."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serving(folder: Path, sizes: Mapping[str, int]) -> Iterator[str]:
    """Serve the folder's wheels; gives the index's URL.

    Args:
        sizes: what it says of packages in place of the true size in bytes.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            content, content_type = b"", "application/octet-stream"
            if kind == "simple":
                content_type = "application/vnd.pypi.simple.v1+json"
                content = _page(folder, name, sizes)
            elif name.endswith(".metadata"):
                content = _metadata(folder / name.removesuffix(".metadata"))
            elif (folder / name).is_file():
                content = (folder / name).read_bytes()
            self.send_response(200 if content else 404)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Tests read no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _page(folder: Path, package: str, sizes: Mapping[str, int]) -> bytes:
    """What PEP 691 says of a package; empty when there is none."""
    files = [
        {
            "filename": wheel.name,
            "url": f"/files/{wheel.name}",
            "size": sizes.get(package, wheel.stat().st_size),
            "core-metadata": True,
            "hashes": {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()},
        }
        for wheel in sorted(folder.glob(f"{package.replace('-', '_')}-*.whl"))
    ]
    page = {"meta": {"api-version": "1.1"}, "name": package, "files": files}
    return json.dumps(page).encode() if files else b""


def _metadata(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(names[0])
