"""Uploads of outputs: a file that can't be read or is refused does not affect the others."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ordinary_user import as_an_ordinary_user
from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.files import node_folders
from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.files.uploads import files_below, upload_folder
from torchyard.worker.system import temporary
from worker.bench import Bench
from worker.stub_server import StubServer, running


@pytest.fixture
def stub() -> Iterator[StubServer]:
    with running() as created:
        yield created


@pytest.fixture
def link(stub: StubServer) -> Iterator[Connection]:
    connection = Connection.of_attempt(ServerAddress(stub.url), "yard_a_test", "a1")
    yield connection
    connection.close()


def _write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def test_a_refused_file_does_not_affect_the_others(
    stub: StubServer, link: Connection, tmp_path: Path
) -> None:
    _write(tmp_path, "a", "b", "c")

    def refuse(method: str, path: str) -> tuple[int, dict[str, Any]] | None:
        body = {"error": {"message": "no such name", "hint": "rename it"}}
        return (400, body) if path.endswith("/b") else None

    stub.refuse = refuse
    with pytest.raises(Failure) as caught:
        upload_folder(link, tmp_path, "/files/outputs", lambda: False)
    assert caught.value.code == "upload_refused"
    assert caught.value.message == "the server refused output `b`: no such name"
    assert sorted(stub.files) == ["outputs/a", "outputs/c"]


def test_a_failing_disk_is_not_mistaken_for_an_unreachable_server(
    stub: StubServer, link: Connection, tmp_path: Path
) -> None:
    _write(tmp_path, "a", "z")
    (tmp_path / "m").symlink_to("/proc/self/mem")  # opens well, and reading it is an EIO
    with pytest.raises(Failure) as caught:
        upload_folder(link, tmp_path, "/files/outputs", lambda: False)
    assert caught.value.code == "disk_failed"
    assert caught.value.message == "output `m` can't be read: Input/output error"
    assert sorted(stub.files) == ["outputs/a", "outputs/z"]


def test_a_file_without_read_permission_is_reported(stub: StubServer, link: Connection) -> None:
    with as_an_ordinary_user() as folder:
        _write(folder, "a", "closed/b", "secret", "z")
        os.chmod(folder / "secret", 0)
        os.chmod(folder / "closed", 0)
        with pytest.raises(Failure) as caught:
            upload_folder(link, folder, "/files/outputs", lambda: False)
        os.chmod(folder / "closed", 0o700)
    assert caught.value.code == "output_unreadable"
    assert caught.value.message == "output `closed` can't be read: Permission denied"
    assert sorted(stub.files) == ["outputs/a", "outputs/z"]


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder whose contents may be too deep for Python to remove."""
    yield tmp_path / "deep"
    subprocess.run(["rm", "-rf", str(tmp_path / "deep")], check=True)


@pytest.mark.slow
def test_a_path_that_is_too_long_is_reported_but_a_deep_folder_is_not(deep: Path) -> None:
    folder = os.getcwd()
    try:
        for depth, name in ((1100, "d"), (17, "n" * 250)):
            top = deep / f"of-{depth}"
            top.mkdir(parents=True)
            os.chdir(top)
            for _ in range(depth):
                os.mkdir(name)
                os.chdir(name)
            Path("f").write_text("deep")
    finally:
        os.chdir(folder)
    (file,) = files_below(deep / "of-1100")
    assert file.read_text() == "deep"
    errors: list[str] = []
    assert not [*files_below(deep / "of-17", lambda _, error: errors.append(str(error)))]
    assert len(errors) == 1 and "File name too long" in errors[0]
    node_folders.clean(NodeFolders(deep))
    os.chdir(folder)
    assert not [*deep.iterdir()]


def test_folders_without_permissions_are_cleaned_up() -> None:
    with as_an_ordinary_user() as folder:
        elsewhere = folder / "elsewhere"
        _write(folder, "node-0/work/closed/inner/file", "elsewhere/file")
        work = folder / "node-0" / "work"
        (work / "link").symlink_to(elsewhere)
        for name, mode in (("closed/inner", 0), ("closed", 0o300)):
            os.chmod(work / name, mode)
        os.chmod(elsewhere, 0o500)
        here = os.getcwd()
        node_folders.clean(NodeFolders(folder / "node-0"))
        os.chdir(here)
        assert not [*(folder / "node-0").iterdir()]
        # What a link leads to is not the node's.
        assert elsewhere.stat().st_mode & 0o777 == 0o500
        os.chmod(elsewhere, 0o700)


def test_files_left_in_shared_memory_do_not_fail_the_node(tmp_path: Path) -> None:
    memory = temporary.shared_memory(tmp_path)
    _write(memory, "folder/segment")
    temporary.forget(tmp_path)
    assert not memory.exists()


def test_a_refusal_before_the_end_of_the_upload_is_read(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def refuse() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 15\r\n\r\n"
                connection.sendall(answer + b'{"text": "big"}')

        thread = threading.Thread(target=refuse)
        thread.start()
        link = Connection.of_attempt(
            ServerAddress(f"http://127.0.0.1:{listener.getsockname()[1]}"), "token", "a"
        )
        blocks = (b"x" * (1 << 20) for _ in range(64))
        with pytest.raises(Refused, match=r"413.*big"):
            link.send("PUT", "/files/outputs/large", blocks)
        thread.join()
        link.close()


def test_names_that_are_not_utf8_stay_distinct(bench: Bench) -> None:
    command = "for n in 376 377; do for at in outputs logs; do\n"
    command += 'printf $n > "$(printf "$at/n\\\\$n")"; done; done'
    bench.run(bench.plan(command))
    assert bench.exit()["error"] is None
    assert bench.server.files == {"outputs/n%FF": b"377", "outputs/n%FE": b"376"}
    assert bench.server.logs == {"logs/n%FF": b"377", "logs/n%FE": b"376"}


def test_a_refused_log_is_reported_by_name(bench: Bench) -> None:
    real = bench.server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if query.get("path") == "logs/odd":
            return 409, {"error": {"message": "a folder is there", "hint": "rename it"}}
        return real(method, path, query, body)

    bench.server.answer = answer  # type: ignore[method-assign]
    bench.run(bench.plan("echo x > logs/odd; echo y > logs/plain; echo z > outputs/z"))
    assert bench.exit()["error"] == {
        "code": "upload_refused",
        "message": "the server refused log `logs/odd`: a folder is there",
        "hint": "rename it",
    }
    assert bench.server.logs == {"logs/plain": b"y\n"}
    assert bench.server.files == {"outputs/z": b"z\n"}
