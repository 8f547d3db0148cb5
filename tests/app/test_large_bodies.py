"""Large request bodies at a real server: its memory, and what a kill leaves."""

from __future__ import annotations

import gzip
import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from app.started_server import started_server
from eventually import eventually

pytestmark = pytest.mark.slow
_SNAPSHOTS = "/v1/workspaces/default/snapshots"
_SIZE_BYTES = 30 << 20
_MOST_GROWTH_MB = 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, int, int]]:
    """Home, port and pid."""
    with started_server(tmp_path / "home") as (port, pid):
        yield tmp_path / "home", port, pid


def _begin(home: Path, port: int, token: str = "") -> socket.socket:
    """A request most of whose body is sent."""
    token = token or (home / "token").read_text().strip()
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    connection.sendall(
        f"PUT {_SNAPSHOTS} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {_SIZE_BYTES}\r\n\r\n".encode()
    )
    connection.sendall(b" " * (_SIZE_BYTES - 1000))
    return connection


def _memory_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def _spooled_bytes(home: Path, pid: int) -> int:
    """Of the files without a name that the server has open in `spool/`."""
    total = 0
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if str(home / "spool") in os.readlink(descriptor):
                total += descriptor.stat().st_size
        except FileNotFoundError:
            continue
    return total


@pytest.mark.parametrize("token", ["", "x"], ids=["good", "wrong"])
def test_bodies_that_do_not_end_do_not_fill_the_memory(
    server: tuple[Path, int, int], token: str
) -> None:
    home, port, pid = server
    before_mb = _memory_mb(pid)
    with ExitStack() as stack:
        for _ in range(25):
            stack.enter_context(_begin(home, port, token))
        if not token:
            eventually(
                lambda: _spooled_bytes(home, pid) >= 24 * (_SIZE_BYTES - (2 << 20)),
                "the bodies to be spooled",
            )
        assert _memory_mb(pid) - before_mb < _MOST_GROWTH_MB
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/health")
        assert connection.getresponse().status == 200
        connection.close()
    eventually(lambda: not _spooled_bytes(home, pid), "the spooled bodies to be removed")


def test_a_killed_server_leaves_no_body(server: tuple[Path, int, int]) -> None:
    home, port, pid = server
    with _begin(home, port):
        eventually(lambda: _spooled_bytes(home, pid), "a body to be spooled")
        assert (home / "spool").stat().st_mode & 0o777 == 0o700
        os.kill(pid, signal.SIGKILL)
        while _is_listening(port):
            time.sleep(0.05)
    assert list((home / "spool").iterdir()) == []


def _is_listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
    except OSError:
        return False
    return True


def test_a_compressed_body_is_not_expanded(server: tuple[Path, int, int]) -> None:
    home, port, pid = server
    before_mb = _memory_mb(pid)
    bomb = gzip.compress(b"[" + b" " * (200 << 20) + b"]")
    token = (home / "token").read_text().strip()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Encoding": "gzip",
        "Content-Type": "application/json",
    }
    for path in (_SNAPSHOTS, "/mlflow/default/api/2.0/mlflow/runs/create"):
        method = "PUT" if path == _SNAPSHOTS else "POST"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(method, path, bomb, headers)
        assert connection.getresponse().status == 400
        connection.close()
    assert _memory_mb(pid) - before_mb < _MOST_GROWTH_MB
