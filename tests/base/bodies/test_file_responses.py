"""A file that is written while it is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.errors import NotFound


def _answer(
    file: Path, headers: dict[str, str] | None = None, at_start: Callable[[], object] = bool
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; `at_start` is called when the headers have been sent."""
    messages: list[Any] = []
    fields = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def receive() -> dict[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: Any) -> None:
        messages.append(message)
        if message["type"] == "http.response.start":
            at_start()

    scope = {"type": "http", "method": "GET", "headers": fields, "asgi": {"spec_version": "2.4"}}
    anyio.run(OpenFileResponse(file), scope, receive, send)
    start, *bodies = messages
    names = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], names, b"".join(message["body"] for message in bodies)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    file = tmp_path / "std_log.txt"
    file.write_bytes(b"step 0\n")
    return file


def _append(file: Path, content: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(content)


def test_a_file_that_grows_is_sent_as_long_as_promised(log: Path) -> None:
    status, headers, body = _answer(log, at_start=lambda: _append(log, b"step 1\n"))
    assert (status, headers["content-length"], body) == (200, "7", b"step 0\n")


def test_a_file_that_grows_by_more_than_a_chunk(log: Path) -> None:
    long = b"x" * OpenFileResponse.chunk_size
    _append(log, long)
    _, headers, body = _answer(log, at_start=lambda: _append(log, long * 2))
    assert body == b"step 0\n" + long
    assert headers["content-length"] == str(len(body))


@pytest.mark.parametrize("content", [b"", b"another, and longer"])
def test_a_file_that_is_replaced_is_sent_as_it_was(log: Path, content: bytes) -> None:
    def replace() -> None:
        draft = log.with_name("draft")
        draft.write_bytes(content)
        os.replace(draft, log)

    assert _answer(log, at_start=replace)[2] == b"step 0\n"


def test_a_range_of_a_file_that_grows(log: Path) -> None:
    status, headers, body = _answer(
        log, {"range": "bytes=5-"}, at_start=lambda: _append(log, b"more")
    )
    assert (status, headers["content-range"], body) == (206, "bytes 5-6/7", b"0\n")


def test_the_descriptor_is_closed(log: Path) -> None:
    for headers in ({}, {"range": "bytes=2-3"}, {"range": "bytes=70-80"}):
        _answer(log, headers)
    opened = []
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the folder, and what other threads close
            opened.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    assert os.path.realpath(log) not in opened


def test_a_file_that_is_gone_is_named(log: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="removed"):
        _answer(tmp_path / "missing")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotFound, match="removed"):
        _answer(tmp_path / "pipe")
