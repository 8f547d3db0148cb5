"""Logs reach the server completely, in order and once, whatever fails on the way."""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult

import pytest

from eventually import eventually
from torchyard.shared.connection import AttemptOver, Connection
from torchyard.shared.failures import Failure
from torchyard.shared.server_address import ServerAddress
from torchyard.worker.files.logs import LogShipper
from worker.stub_server import StubServer, running

TOKEN = b"yard_r_" + b"k" * 43


@pytest.fixture
def server() -> Iterator[StubServer]:
    with running() as stub:
        yield stub


class TidyConnection(Connection):
    """A link whose connections are closed, since the threads that use them have ended."""

    def __init__(self, url: str) -> None:
        super().__init__(ServerAddress(url), "yard_a_test", "/v1/attempts/a1")
        self.connections: list[http.client.HTTPConnection] = []

    def _reuse_connection(self, parts: SplitResult, timeout_s: float) -> http.client.HTTPConnection:
        connection = super()._reuse_connection(parts, timeout_s)
        self.connections.append(connection)
        return connection


@pytest.fixture
def shipper(server: StubServer, tmp_path: Path) -> Iterator[LogShipper]:
    link = TidyConnection(server.url)
    yield LogShipper(link, tmp_path)
    for connection in link.connections:
        connection.close()


def until(true: Callable[[], bool]) -> None:
    eventually(true, "what the shipper is to come to")


def append(file: Path, content: bytes) -> None:
    with open(file, "ab") as opened:
        opened.write(content)


def test_a_file_is_followed_and_finished(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    log = tmp_path / "std_log.txt"
    shipper.watch(log, "user_logs/std_log.txt")
    shipper.start()
    append(log, b"one \xff\n")
    until(lambda: server.logs.get("user_logs/std_log.txt") == b"one \xff\n")
    append(log, b"two, without an end")
    assert shipper.finish(60)
    assert server.logs["user_logs/std_log.txt"] == b"one \xff\ntwo, without an end"


def test_a_shipper_without_files_finishes(shipper: LogShipper, tmp_path: Path) -> None:
    shipper.watch(tmp_path / "never", "user_logs/never.txt")
    shipper.watch_folder(tmp_path / "logs", "logs")
    assert shipper.finish(60)


def test_new_files_in_a_folder_are_followed(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    folder = tmp_path / "logs"
    shipper.watch_folder(folder, "logs/")
    shipper.start()
    (folder / "deep").mkdir(parents=True)
    append(folder / "deep" / "a.txt", b"A")
    until(lambda: server.logs.get("logs/deep/a.txt") == b"A")
    append(folder / os.fsdecode(b"odd \xe4.txt"), b"B")
    (folder / "link").symlink_to("/etc/passwd")
    assert shipper.finish(60)
    assert {name: server.logs[name] for name in sorted(server.logs)} == {
        "logs/deep/a.txt": b"A",
        "logs/odd %E4.txt": b"B",
    }


def test_a_hundred_megabytes_from_eight_files_are_shipped(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    """Completely, within seconds, in constant memory, with arbitrary bytes and long lines."""
    size = 100 * 1_000_000 // 8
    block = (os.urandom(300) + b"\n\xff") * 40 + b"x" * 1_000_000 + b"\n" + TOKEN
    content = (block * (size // len(block) + 1))[:size]
    expected = content.replace(TOKEN, b"*" * 50)
    files = [tmp_path / f"{rank}.txt" for rank in range(8)]
    for rank, file in enumerate(files):
        shipper.watch(file, f"user_logs/{rank}.txt")
    shipper.start()

    def write(file: Path) -> None:
        with open(file, "wb") as opened:
            for offset in range(0, size, 1 << 18):
                opened.write(content[offset : offset + (1 << 18)])

    writers = [threading.Thread(target=write, args=(file,)) for file in files]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert shipper.finish(60)
    for rank in range(8):
        assert server.logs[f"user_logs/{rank}.txt"] == expected


@pytest.mark.parametrize("cut", [1, 6, 7, 20, 49])
def test_a_token_written_in_two_parts_is_masked(
    server: StubServer, shipper: LogShipper, tmp_path: Path, cut: int
) -> None:
    log = tmp_path / "log"
    shipper.watch(log, "log")
    shipper.start()
    append(log, b"token " + TOKEN[:cut])
    until(lambda: server.logs.get("log") == b"token ")
    append(log, TOKEN[cut:] + b" end\n")
    assert shipper.finish(60)
    assert server.logs["log"] == b"token " + b"*" * 50 + b" end\n"


def test_tokens_at_the_borders_of_chunks_are_masked(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    content = b"".join(b"-" * ((1 << 20) - 50 - shift) + TOKEN for shift in (25, 10, 48, 1, 0))
    log.write_bytes(content)
    shipper.watch(log, "log")
    assert shipper.finish(60)
    assert server.logs["log"] == content.replace(TOKEN, b"*" * 50)


def test_text_that_only_resembles_a_token_is_shipped_at_the_end(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    (tmp_path / "log").write_bytes(b"ends in yard_a_abc")
    shipper.watch(tmp_path / "log", "log")
    assert shipper.finish(60)
    assert server.logs["log"] == b"ends in yard_a_abc"


def test_logs_are_complete_after_the_server_was_unreachable(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    shipper.watch(log, "log")
    shipper.start()
    append(log, b"before\n")
    until(lambda: "log" in server.logs)
    server.stop()
    append(log, b"while away\n")
    time.sleep(0.3)
    server.start()
    append(log, b"after\n")
    assert shipper.finish(60)
    assert server.logs["log"] == b"before\nwhile away\nafter\n"


def test_a_lost_response_duplicates_nothing(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    lost: list[str] = []
    real = server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        response = real(method, path, query, body)
        if path == "/logs" and not lost:
            lost.append(path)
            return 500, {"error": {"message": "lost"}}
        return response

    server.answer = answer  # type: ignore[method-assign]
    log.write_bytes(b"once\n")
    shipper.watch(log, "log")
    assert shipper.finish(60)
    assert lost and server.logs["log"] == b"once\n"


def test_bytes_that_the_server_lost_are_sent_again(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    shipper.watch(log, "log")
    shipper.start()
    append(log, b"0123456789")
    until(lambda: len(server.logs.get("log", b"")) == 10)
    server.logs["log"] = b"0123"
    append(log, b"abc")
    assert shipper.finish(60)
    assert server.logs["log"] == b"0123456789abc"


def test_another_shipper_continues_at_the_servers_offset(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    server.logs["log"] = b"0123"
    (tmp_path / "log").write_bytes(b"0123456789")
    shipper.watch(tmp_path / "log", "log")
    assert shipper.finish(60)
    assert server.logs["log"] == b"0123456789"


@pytest.mark.parametrize("how", ["truncate", "replace"])
def test_a_truncated_or_replaced_file_is_appended(
    server: StubServer, shipper: LogShipper, tmp_path: Path, how: str
) -> None:
    log = tmp_path / "log"
    shipper.watch(log, "log")
    shipper.start()
    append(log, b"first long text\n")
    until(lambda: "log" in server.logs)
    if how == "truncate":
        log.write_bytes(b"new\n")
    else:
        append(tmp_path / "other", b"a whole new file, longer than the first\n")
        os.replace(tmp_path / "other", log)
    new = log.read_bytes()
    assert shipper.finish(60)
    assert server.logs["log"] == b"first long text\n" + new


def test_output_written_after_the_end_is_not_waited_for(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    log, stop = tmp_path / "log", threading.Event()
    shipper.watch(log, "log")
    shipper.start()

    def write_on() -> None:
        while not stop.is_set():
            append(log, b"x" * 10_000)

    writer = threading.Thread(target=write_on)
    writer.start()
    size = eventually(lambda: log.exists() and log.stat().st_size, "output")
    assert shipper.finish(60)
    stop.set()
    writer.join()
    assert len(server.logs["log"]) >= size


def test_finishing_times_out_if_the_server_stays_unreachable(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    server.stop()
    (tmp_path / "log").write_bytes(b"x")
    shipper.watch(tmp_path / "log", "log")
    assert not shipper.finish(0.5)


def test_a_refused_log_does_not_stop_the_others(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    real = server.answer

    def answer(method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        if query.get("path") == "bad":
            return 400, {"error": {"message": "bad name"}}
        return real(method, path, query, body)

    server.answer = answer  # type: ignore[method-assign]
    for name in ("bad", "good"):
        (tmp_path / name).write_bytes(b"x")
        shipper.watch(tmp_path / name, name)
    with pytest.raises(Failure, match="the server refused log `bad`: bad name"):
        shipper.finish(60)
    assert server.logs == {"good": b"x"}


def test_finishing_raises_if_the_attempt_is_over(
    server: StubServer, shipper: LogShipper, tmp_path: Path
) -> None:
    server.over = True
    (tmp_path / "log").write_bytes(b"x")
    shipper.watch(tmp_path / "log", "log")
    shipper.start()
    with pytest.raises(AttemptOver):
        shipper.finish(60)
