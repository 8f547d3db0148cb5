"""SFTP: several requests on their way at once, connections that break."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from torchyard.base.errors import Unreachable
from torchyard.data.remote import RemoteFiles

sftp_server = pytest.importorskip("data.sftp_server", reason="paramiko: `make test-object-store`")

pytestmark = [pytest.mark.object_store, pytest.mark.filterwarnings("ignore")]
_BIG = bytes(range(256)) * 40_000


@pytest.fixture
def lake(tmp_path: Path) -> Callable[[int], RemoteFiles]:
    (tmp_path / "lake").mkdir()

    def at(port: int) -> RemoteFiles:
        options = {
            "host": "127.0.0.1",
            "port": port,
            "username": sftp_server.USER,
            "password": sftp_server.PASSWORD,
        }
        return RemoteFiles("`lake`", "sftp", options, "/lake")

    return at


def _put(files: RemoteFiles, path: str, content: bytes) -> None:
    with files.writing(path) as writing:
        for start in range(0, len(content), 1 << 20):
            writing.write(content[start : start + (1 << 20)])


@pytest.mark.parametrize("start, limit", [(0, None), (4 << 20, None), (5, 5 << 20), (99, 1 << 40)])
def test_windows_make_the_whole_file(
    tmp_path: Path, lake: Callable[[int], RemoteFiles], start: int, limit: int | None
) -> None:
    with sftp_server.running(tmp_path) as port:
        _put(lake(port), "big.bin", _BIG)
        assert (tmp_path / "lake" / "big.bin").read_bytes() == _BIG
        end = None if limit is None else start + limit
        assert b"".join(lake(port).read("big.bin", start, limit)) == _BIG[start:end]


@pytest.mark.parametrize("free_bytes", [0, 100_000, len(_BIG) - 1])
def test_a_refused_write_is_an_error(
    tmp_path: Path, lake: Callable[[int], RemoteFiles], free_bytes: int
) -> None:
    with sftp_server.running(tmp_path, free_bytes=free_bytes) as port:
        files = lake(port)
        (tmp_path / "lake" / "big.bin").write_bytes(b"before")
        with pytest.raises(Unreachable, match="`lake` can't be used"):
            _put(files, "big.bin", _BIG)
        assert [path.name for path in (tmp_path / "lake").iterdir()] == ["big.bin"]
        assert b"".join(files.read("big.bin")) == b"before"


def test_an_interrupted_writer_leaves_the_old_file(
    tmp_path: Path, lake: Callable[[int], RemoteFiles]
) -> None:
    with sftp_server.running(tmp_path) as port:
        files = lake(port)
        _put(files, "deep/a.txt", b"before")
        with pytest.raises(ValueError, match="mine"), files.writing("deep/a.txt") as writing:
            writing.write(b"half")
            assert [entry.path for entry in files.walk("")] == ["deep/a.txt"]
            raise ValueError("mine")
        assert [path.name for path in (tmp_path / "lake" / "deep").iterdir()] == ["a.txt"]
        assert b"".join(files.read("deep/a.txt")) == b"before"


def test_a_restarted_server_is_connected_to_again(
    tmp_path: Path, lake: Callable[[int], RemoteFiles]
) -> None:
    with sftp_server.running(tmp_path) as port:
        files = lake(port)
        _put(files, "a.txt", b"one")
    with pytest.raises(Unreachable):
        files.entry("a.txt")
    with sftp_server.running(tmp_path, port=port):
        assert b"".join(files.read("a.txt")) == b"one"
