"""Uploads whose connection is cut, from another machine: what has come is not sent again."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cli.conftest import server, shared_server
from cli.served_workspace import ServedWorkspace
from torchyard import Client
from torchyard.base import blob_parts
from torchyard.base.blobs import Blobs
from torchyard.base.errors import Conflict, InvalidInput, TorchyardError, Unreachable
from torchyard.client.snapshots import large_files

__all__ = ["server", "shared_server"]  # fixtures
SIZE = 12 << 20


class Cutting:
    """What lies between two machines: it passes bytes on, and cuts connections.

    Attributes:
        limits: after how many bytes towards the server each of the next connections is cut.
        sent_bytes: towards the server.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (str(parts.hostname), int(parts.port or 0))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.limits: list[int] = []
        self.sent_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=[client], daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as upstream:
            back = threading.Thread(target=_copy, args=[upstream, client], daemon=True)
            back.start()
            with suppress(OSError):
                own_bytes = 0
                while block := client.recv(1 << 16):
                    upstream.sendall(block)
                    own_bytes += len(block)
                    self.sent_bytes += len(block)
                    if own_bytes > (1 << 20) and self.limits and own_bytes > self.limits[0]:
                        self.limits.pop(0)
                        break
            for end in (upstream, client):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while block := source.recv(1 << 16):
            target.sendall(block)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def line(server: ServedWorkspace) -> Iterator[Cutting]:
    cutting = Cutting(server.url)
    yield cutting
    cutting.close()


@pytest.fixture
def client(server: ServedWorkspace, line: Cutting) -> Iterator[Client]:
    with Client(url=line.url, token=server.token, workspace=server.name) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large.bin").write_bytes(os.urandom(SIZE))
    return tmp_path / "data"


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path / "blobs")


def drafts(server: ServedWorkspace) -> list[Path]:
    return [*server.services.home.glob(f"blobs/workspaces/{server.name}/**/*.part")]


def test_only_what_is_left_is_sent_again(
    server: ServedWorkspace, client: Client, line: Cutting, folder: Path, tmp_path: Path
) -> None:
    line.limits = [5 << 20, 4 << 20]
    told: list[tuple[int, int]] = []
    client.data.create({"name": "train", "path": str(folder)}, progress=lambda *a: told.append(a))
    client.data.download("train", "1", tmp_path / "back")
    came = (tmp_path / "back" / "train" / "large.bin").read_bytes()
    assert came == (folder / "large.bin").read_bytes()
    assert line.limits == [] and SIZE < line.sent_bytes < SIZE + (4 << 20)
    assert told[-1] == (SIZE, SIZE) and drafts(server) == []


def test_several_files_are_sent_at_once(
    server: ServedWorkspace, client: Client, line: Cutting, folder: Path, tmp_path: Path
) -> None:
    for number in range(6):
        (folder / f"{number}.bin").write_bytes(os.urandom(2 << 20))
    line.limits = [5 << 20, 1 << 20, 1 << 20]
    client.data.create({"name": "train", "path": str(folder)})
    client.data.download("train", "1", tmp_path / "back")
    for file in folder.iterdir():
        assert (tmp_path / "back" / "train" / file.name).read_bytes() == file.read_bytes()
    assert drafts(server) == []


def test_a_server_that_stays_away_is_told_of(
    client: Client, line: Cutting, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_files, "_PATIENCE_S", 0.5)
    line.limits = [1 << 20] * 200
    line.sent_bytes = 0

    original = line._pass

    def cut_for_good(connection: socket.socket) -> None:
        if line.sent_bytes > 1 << 20:
            connection.close()
            return
        original(connection)

    monkeypatch.setattr(line, "_pass", cut_for_good)
    with pytest.raises(Unreachable):
        client.data.create({"name": "train", "path": str(folder)})


def test_a_file_that_changes_between_two_tries_is_refused(
    server: ServedWorkspace, client: Client, line: Cutting, folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    line.limits = [5 << 20]
    original = large_files._came

    def change(*arguments: object) -> int | None:
        (folder / "large.bin").write_bytes(os.urandom(SIZE))
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(large_files, "_came", change)
    with pytest.raises(TorchyardError, match=r"changed|arrived as"):
        client.data.create({"name": "train", "path": str(folder)})
    assert drafts(server) == []


def test_bytes_that_somebody_put_there_before_cost_a_second_try(
    server: ServedWorkspace, client: Client, line: Cutting, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    line.limits = [5 << 20]
    original, planted = large_files._came, []

    def plant(*arguments: object) -> int | None:
        came = original(*arguments)  # type: ignore[arg-type]
        [part] = drafts(server)
        with open(part, "r+b") as file:
            planted.append(file.write(b"planted"))
        return came

    monkeypatch.setattr(large_files, "_came", plant)
    client.data.create({"name": "train", "path": str(folder)})
    client.data.download("train", "1", tmp_path / "back")
    came = (tmp_path / "back" / "train" / "large.bin").read_bytes()
    assert planted == [7] and came == (folder / "large.bin").read_bytes()


def test_a_part_is_written_by_one_at_a_time_and_resumed(blobs: Blobs) -> None:
    content = b"0123456789"
    sha256 = hashlib.sha256(content).hexdigest()
    folder = blobs.path(sha256).parent
    with pytest.raises(KeyboardInterrupt), blob_parts.arriving(blobs, sha256) as part:
        part.write(content[:6])
        assert blob_parts.size_bytes(blobs, sha256) is None
        with pytest.raises(KeyboardInterrupt), blob_parts.arriving(blobs, sha256) as other:
            with pytest.raises(Conflict):
                other.resume(6)
            other.write(b"other")
            raise KeyboardInterrupt
        raise KeyboardInterrupt
    assert blob_parts.size_bytes(blobs, sha256) == 6 and not blobs.has(sha256)
    assert len(list(folder.iterdir())) == 1
    with pytest.raises(Conflict), blob_parts.arriving(blobs, sha256) as part:
        part.resume(7)
    with blob_parts.arriving(blobs, sha256) as part:
        part.resume(4)
        part.write(content[4:])
    assert blobs.path(sha256).read_bytes() == content
    assert blob_parts.size_bytes(blobs, sha256) == 0
    with blob_parts.arriving(blobs, sha256) as part:
        part.write(content)
    assert [file.name for file in folder.iterdir()] == [sha256]


def test_two_requests_of_one_blob_both_succeed(blobs: Blobs) -> None:
    sha256 = hashlib.sha256(b"content").hexdigest()
    with blob_parts.arriving(blobs, sha256) as slow:
        slow.write(b"cont")
        with blob_parts.arriving(blobs, sha256) as quick:
            quick.write(b"content")
        assert blobs.has(sha256)
        slow.write(b"ent")
    assert [file.name for file in blobs.path(sha256).parent.iterdir()] == [sha256]


def test_a_part_with_other_bytes_is_removed(blobs: Blobs) -> None:
    """Such as one that a member of the workspace has begun in somebody's place."""
    sha256 = hashlib.sha256(b"right").hexdigest()
    with pytest.raises(InvalidInput), blob_parts.arriving(blobs, sha256) as part:
        part.write(b"wrong")
    assert blob_parts.size_bytes(blobs, sha256) == 0 and not blobs.has(sha256)
