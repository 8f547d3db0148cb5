"""Files that a program of this machine hands over, and is handed, at the server's socket."""

from __future__ import annotations

import errno
import hashlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import server, shared_server
from cli.served_workspace import ServedWorkspace
from ordinary_user import as_nobody, python_of_nobody
from torchyard import Client
from torchyard.base.blobs import Arriving
from torchyard.base.errors import InvalidInput, NotAuthenticated, TorchyardError
from torchyard.base.files import OpenFile
from torchyard.base.http import Transport
from torchyard.client import handing
from torchyard.data import handed_files
from torchyard.jobs.http import bundle_routes
from torchyard.shared import descriptors, unix_sockets

__all__ = ["server", "shared_server"]  # fixtures
SMALL = ("POST /blobs", "POST /bundle")
LARGE = b"0123456789abcdef" * (1 << 17) + b"end"


@pytest.fixture
def path(server: ServedWorkspace, tmp_path: Path) -> Iterator[Path]:
    """The server's socket."""
    handover = server.server.app.state.handover
    handover.listen(tmp_path / "sockets" / "files")
    yield tmp_path / "sockets" / "files"
    handover.close()


@pytest.fixture
def client(server: ServedWorkspace, path: Path) -> Iterator[Client]:
    with server.client() as made:
        made.transport.files_socket = str(path)
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir()
    (made / "large.bin").write_bytes(LARGE)
    (made / "small.txt").write_text("small")
    return made


@contextmanager
def connected(path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(30)
        unix_sockets.connect(connection, str(path))
        yield (
            connection,
            connection.recv(descriptors.TICKET_CHARACTERS, socket.MSG_WAITALL).decode(),
        )


def handed(server: ServedWorkspace, path: Path, descriptor: int) -> str:
    """The sha256 that the server stored the file under.

    Raises:
        TorchyardError: what it was refused with.
    """
    with connected(path) as (connection, ticket):
        descriptors.send(connection, descriptor)
        return _stored(Transport(server.url, server.token), server.name, ticket)


def _stored(transport: Transport, workspace: str, ticket: str) -> str:
    try:
        return handing._stored(
            transport, f"/v1/workspaces/{workspace}/blobs/handed", ticket, lambda size_bytes: None
        )
    finally:
        transport.close()


def blobs_of(server: ServedWorkspace) -> list[Path]:
    top = server.services.blobs.of(server.name).folder
    return [file for file in top.rglob("*") if file.is_file()]


def sent(server: ServedWorkspace) -> list[str]:
    """The requests that carried contents of files, either way."""
    start = len(f"/v1/workspaces/{server.name}")
    asked = [f"{method} {path[start:]}" for method, path in server.requests]
    routes = ("PUT /blobs/", "GET /data/train/versions/1/files/")
    return [each for each in asked if each.startswith(routes) or each in SMALL]


def up_and_down(client: Client, folder: Path, to: Path) -> None:
    client.data.create({"name": "train", "path": str(folder)})
    client.data.download("train", "1", to)
    for file in folder.rglob("*"):
        if file.is_file():
            assert (to / "train" / file.relative_to(folder)).read_bytes() == file.read_bytes()


def test_no_large_file_goes_through_requests(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path
) -> None:
    (folder / "small.txt").unlink()
    server.requests.clear()
    up_and_down(client, folder, tmp_path / "back")
    assert sent(server) == []
    stored = [file for file in blobs_of(server) if file.stat().st_size == len(LARGE)]
    assert [file.name for file in stored] == [hashlib.sha256(LARGE).hexdigest()]
    assert stat.S_IMODE(stored[0].stat().st_mode) == 0o444


def test_small_files_are_sent_beside_large_ones(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path
) -> None:
    for number in range(3):
        (folder / f"large-{number}").write_bytes(LARGE + b"%d" % number)
    (folder / "empty").touch()
    up_and_down(client, folder, tmp_path / "back")
    asked = sent(server)
    assert "POST /blobs" in asked
    assert not [each for each in asked if each.startswith("PUT /blobs/")]


def test_one_file_is_an_asset_of_its_own(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path
) -> None:
    server.requests.clear()
    client.data.create({"name": "train", "path": str(folder / "large.bin"), "type": "uri_file"})
    client.data.download("train", "1", tmp_path / "back")
    assert (tmp_path / "back" / "train" / "large.bin").read_bytes() == LARGE
    assert sent(server) == []


def _turn_away(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


@pytest.mark.parametrize("lack", ["no socket", "nobody answers", "something else answers"])
def test_where_nothing_can_be_handed_over_files_are_sent(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path, lack: str
) -> None:
    """As from a container, from another machine that shares the home, or after an upgrade."""
    other = tmp_path / "other"
    if lack == "nobody answers":
        with socket.socket(socket.AF_UNIX) as closed:
            closed.bind(str(other))
    listener = unix_sockets.listen(tmp_path / "else" / "files")
    assert listener is not None
    if lack == "something else answers":
        other = tmp_path / "else" / "files"
        threading.Thread(target=_turn_away, args=(listener,), daemon=True).start()
    client.transport.files_socket = str(other)
    with listener:
        up_and_down(client, folder, tmp_path / "back")
        listener.shutdown(socket.SHUT_RDWR)
    assert [each for each in sent(server) if each.startswith("PUT /blobs/")]


def test_a_file_that_no_disk_has_is_sent(
    server: ServedWorkspace, client: Client, tmp_path: Path
) -> None:
    """As one of a network file system or of one that a program serves, which may never answer."""
    with open("/proc/self/environ", "rb") as file:
        assert handing.store(client.transport, f"/v1/workspaces/{server.name}", file.fileno(),
                             lambda size_bytes: None) is None  # fmt: skip


def test_large_inputs_of_jobs_are_handed_over(
    server: ServedWorkspace, client: Client, folder: Path
) -> None:
    inputs = {"data": {"type": "uri_folder", "path": str(folder)}}
    job = {"command": "ls ${{inputs.data}}", "environment": "python", "inputs": inputs}
    server.requests.clear()
    client.jobs.create(job)
    assert sent(server) == ["POST /blobs"]


@pytest.mark.parametrize("size", [0, 1, 1000, 4096, 12345])
def test_the_same_bytes_arrive(
    server: ServedWorkspace, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(handed_files, "_PIECE_BYTES", 1000)
    content = os.urandom(size)
    (tmp_path / "file").write_bytes(content)
    with open(tmp_path / "file", "rb") as file:
        file.read(10)  # where it is read from does not matter
        sha256 = handed(server, path, file.fileno())
    assert sha256 == hashlib.sha256(content).hexdigest()
    (tmp_path / "file").write_bytes(b"another")
    assert server.services.blobs.of(server.name).path(sha256).read_bytes() == content


def test_holes_arrive_as_the_zeros_that_they_are(
    server: ServedWorkspace, path: Path, tmp_path: Path
) -> None:
    with open(tmp_path / "sparse", "w+b") as file:
        file.truncate(40 << 20)
        file.seek(20 << 20)
        file.write(b"in between")
        file.flush()
        sha256 = handed(server, path, file.fileno())
    assert sha256 == hashlib.sha256((tmp_path / "sparse").read_bytes()).hexdigest()


def test_two_names_of_a_file_are_two_files(client: Client, folder: Path, tmp_path: Path) -> None:
    os.link(folder / "large.bin", folder / "again.bin")
    up_and_down(client, folder, tmp_path / "back")
    back = tmp_path / "back" / "train"
    assert not os.path.samefile(back / "large.bin", back / "again.bin")


def test_what_is_downloaded_can_be_changed_without_harm(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path
) -> None:
    up_and_down(client, folder, tmp_path / "back")
    with open(tmp_path / "back" / "train" / "large.bin", "r+b") as file:
        file.write(b"changed")
    client.data.download("train", "1", tmp_path / "again")
    assert (tmp_path / "again" / "train" / "large.bin").read_bytes() == LARGE


@pytest.mark.parametrize("change", ["grows", "shrinks", "is written"])
def test_a_file_that_changes_meanwhile_is_refused(
    server: ServedWorkspace, client: Client, folder: Path,
    monkeypatch: pytest.MonkeyPatch, change: str,
) -> None:  # fmt: skip
    original = Arriving.copy

    def copy(arriving: Arriving, source: OpenFile, size_bytes: int) -> None:
        with open(folder / "large.bin", "r+b") as file:
            if change == "shrinks":
                file.truncate(1 << 20)
            elif change == "grows":
                file.seek(0, os.SEEK_END)
            file.write(b"changed")
        original(arriving, source, size_bytes)

    monkeypatch.setattr(Arriving, "copy", copy)
    with pytest.raises(InvalidInput, match=r"`large\.bin` changed while it was read"):
        client.data.create({"name": "train", "path": str(folder)})
    assert blobs_of(server) == []


def test_where_a_handed_file_finds_no_space_the_hash_shows_what_is_there(
    server: ServedWorkspace, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.data.create({"name": "train", "path": str(folder)})
    os.utime(folder / "large.bin", (1, 1))  # the same bytes, which are read anew
    kept = blobs_of(server)

    def fill(*args: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "copy_file_range", fill)
    server.requests.clear()
    assert client.data.create({"name": "train", "path": str(folder)}).version == "2"
    assert not [path for method, path in server.requests if method == "PUT" and "blobs" in path]
    assert blobs_of(server) == kept


def test_a_file_that_can_not_be_stored_so_is_sent(
    server: ServedWorkspace, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(*_: Any) -> int:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))

    monkeypatch.setattr(Arriving, "copy", copy)
    client.data.create({"name": "train", "path": str(folder)})
    assert any(method == "PUT" and "blobs" in path for method, path in server.requests)


@pytest.mark.parametrize("way", ["absent", "says 0", "clones"])
def test_bytes_are_the_same_whichever_way_the_kernel_copies(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path, way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    original = os.copy_file_range
    if way == "absent":
        monkeypatch.delattr(os, "copy_file_range")
    elif way == "says 0":
        monkeypatch.setattr(os, "copy_file_range", lambda *_: 0)
    else:
        monkeypatch.setattr(
            descriptors, "clone", lambda source, target: bool(original(source, target, 1 << 30))
        )
    client.data.create({"name": "train", "path": str(folder)})
    client.data.download("train", "1", tmp_path / "back")
    assert (tmp_path / "back" / "large.bin").read_bytes() == (folder / "large.bin").read_bytes()


def test_a_clone_is_hashed_piece_by_piece(
    server: ServedWorkspace, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, pieces = os.copy_file_range, []
    monkeypatch.setattr(handed_files, "_PIECE_BYTES", 1 << 20)
    monkeypatch.setattr(
        descriptors, "clone", lambda source, target: bool(original(source, target, 1 << 30))
    )
    hash = Arriving.hash

    def hash_piece(arriving: Arriving, end: int) -> None:
        pieces.append(end - arriving.hashed_bytes)
        hash(arriving, end)

    monkeypatch.setattr(Arriving, "hash", hash_piece)
    client.data.create({"name": "train", "path": str(folder)})
    assert max(pieces) == 1 << 20 and sum(pieces) == (folder / "large.bin").stat().st_size


def test_a_file_that_shrinks_before_it_is_cloned_is_fetched_again(
    server: ServedWorkspace, client: Client, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    client.data.create({"name": "train", "path": str(folder)})
    original = os.copy_file_range
    monkeypatch.setattr(
        descriptors, "clone", lambda source, target: bool(original(source, target, 10))
    )
    client.data.download("train", "1", tmp_path / "back")
    assert (tmp_path / "back" / "large.bin").read_bytes() == (folder / "large.bin").read_bytes()


def test_a_disk_without_hard_links_gets_copies(
    server: ServedWorkspace, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    assert client.data.create({"name": "train", "path": str(folder)}).version == "1"


def test_the_socket_outlives_a_moment_without_descriptors(
    server: ServedWorkspace, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, failed = socket.socket.accept, []

    def accept(listener: socket.socket) -> Any:
        if threading.current_thread().name == "handover" and not failed:
            failed.append(True)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return original(listener)

    monkeypatch.setattr(socket.socket, "accept", accept)
    for _ in range(2):  # the first one ends the call that already waits
        with connected(path) as (_, ticket):
            assert len(ticket) == descriptors.TICKET_CHARACTERS
    assert failed


def test_one_folder_of_many_names_is_open_once_at_a_time(
    server: ServedWorkspace, client: Client, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.data.create({"name": "train-of-a-long", "path": str(folder)})
    names = [
        "".join(f"%{ord(each):02X}" if number >> place & 1 else each
                for place, each in enumerate("train-of-a-long"))
        for number in range(200)
    ]  # fmt: skip
    counts, content = [], bundle_routes._content

    def counted(file: Any) -> Any:
        counts.append(len(os.listdir("/proc/self/fd")))
        return content(file)

    monkeypatch.setattr(bundle_routes, "_content", counted)
    sources = [f"data/{name}/versions/1/files/small.txt" for name in names]
    body = {"sources": sources}
    with client.transport.stream(f"/v1/workspaces/{server.name}/bundle", body=body) as answer:
        answer.read()
    assert len(counts) == len(names) and max(counts) - min(counts) < 20


def test_the_token_of_any_request_is_demanded(
    server: ServedWorkspace, path: Path, folder: Path
) -> None:
    with connected(path) as (connection, ticket), open(folder / "large.bin", "rb") as file:
        descriptors.send(connection, file.fileno())
        with pytest.raises(NotAuthenticated):
            _stored(Transport(server.url, "yard_p_wrong"), server.name, ticket)
        assert blobs_of(server) == []
        _stored(Transport(server.url, server.token), server.name, ticket)


def test_a_ticket_that_the_server_did_not_give_names_nothing(
    server: ServedWorkspace, path: Path
) -> None:
    with pytest.raises(InvalidInput) as raised:
        _stored(Transport(server.url, server.token), server.name, "0" * 32)
    assert raised.value.code == "not_handed"


def test_a_pipe_is_refused_and_holds_nobody_up(server: ServedWorkspace, path: Path) -> None:
    reading, writing = os.pipe()
    try:
        with pytest.raises(InvalidInput) as raised:
            handed(server, path, reading)
        assert raised.value.code == "not_handed"
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_that_is_not_there_is_not_handed_out(
    server: ServedWorkspace, path: Path, client: Client, folder: Path
) -> None:
    client.data.create({"name": "train", "path": str(folder)})
    with connected(path) as (_, ticket), pytest.raises(TorchyardError) as raised:
        client.transport.post(
            f"/v1/workspaces/{server.name}/bundle/handed",
            {"ticket": ticket, "source": "data/train/versions/1/files/absent"},
        )
    assert raised.value.code == "not_found"


def test_connections_are_limited_and_come_back_when_they_end(path: Path) -> None:
    opened = []
    try:
        for _ in range(64):
            connection = socket.socket(socket.AF_UNIX)
            opened.append(connection)
            unix_sockets.connect(connection, str(path))
            assert len(connection.recv(32, socket.MSG_WAITALL)) == 32
        with connected(path) as (_, ticket):
            assert ticket == ""
    finally:
        for connection in opened:
            connection.close()
    with connected(path) as (_, ticket):
        assert len(ticket) == 32


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_turned_away(path: Path) -> None:
    """Also where the folder would let them in, which it does not."""
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
        "print(len(s.recv(32, socket.MSG_WAITALL)))"
    )
    for part in (path, *path.parents[:-2]):
        part.chmod(0o777)
    ran = as_nobody([python_of_nobody(), "-c", script, str(path)])
    assert (ran.stdout, ran.stderr) == ("0\n", "")
