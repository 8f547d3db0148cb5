"""A download that is interrupted goes on where it was, if the file is still the same."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torchyard.base.errors import Unreachable
from torchyard.base.http import Transport
from torchyard.client.downloads import RequestedFile, download_all

OLD, NEW = b"old" * 400_000, b"new" * 400_000


class _Handler(BaseHTTPRequestHandler):
    """Answers as RFC 9110 says, and ends each connection after the bytes that the test wants."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Cutting)
        content, mark = server.content, f'"{server.content[:3].decode()}"'
        wanted, start = self.headers.get("Range", ""), 0
        server.ranges.append(wanted)
        if wanted and self.headers.get("If-Range") == mark:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        if server.is_marked:
            self.send_header("ETag", mark)
        self.end_headers()
        self.wfile.write(content[start:][: server.cuts.pop(0) if server.cuts else None])
        self.close_connection = True
        server.content = server.next_content

    def log_message(self, format: str, *args: object) -> None:
        pass


class Cutting(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.cuts: list[int] = []
        self.ranges: list[str] = []
        self.content = self.next_content = OLD
        self.is_marked = True


@pytest.fixture
def cutting() -> Iterator[Cutting]:
    with Cutting() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


class Count:
    def __init__(self) -> None:
        self.came, self.left = 0, 0

    def total(self, size_bytes: int) -> None:
        self.left = size_bytes

    def add(self, size_bytes: int) -> None:
        self.came += max(size_bytes, 0)
        self.left -= size_bytes


def download(server: Cutting, folder: Path) -> tuple[bytes, Count]:
    count = Count()
    transport = Transport(f"http://127.0.0.1:{server.server_port}", "token")
    file = RequestedFile("/file", folder / "file", len(OLD))
    [path] = download_all(transport, [file], count)
    transport.close()
    return path.read_bytes(), count


def test_only_the_rest_is_sent_again(cutting: Cutting, tmp_path: Path) -> None:
    cutting.cuts = [500_000, 300_000]
    content, count = download(cutting, tmp_path)
    assert content == OLD
    assert cutting.ranges == ["", "bytes=500000-", "bytes=800000-"]
    assert (count.came, count.left) == (len(OLD), 0)


def test_a_file_that_was_replaced_meanwhile_comes_whole(cutting: Cutting, tmp_path: Path) -> None:
    cutting.cuts, cutting.next_content = [500_000], NEW
    content, count = download(cutting, tmp_path)
    assert content == NEW
    assert count.left == 0


def test_an_answer_that_tells_no_file_from_another_is_not_gone_on_with(
    cutting: Cutting, tmp_path: Path
) -> None:
    cutting.cuts, cutting.is_marked = [500_000], False
    assert download(cutting, tmp_path)[0] == OLD
    assert cutting.ranges == ["", ""]


def test_one_that_is_interrupted_again_and_again_leaves_nothing(
    cutting: Cutting, tmp_path: Path
) -> None:
    cutting.cuts = [1000, 1000, 1000]
    with pytest.raises(Unreachable, match="interrupted 3 times"):
        download(cutting, tmp_path)
    assert list(tmp_path.iterdir()) == []
