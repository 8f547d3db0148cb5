"""The SDK prints under whatever stands for standard output and error: a cell, a file, nothing."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.fake_server import TOKEN, FakeJob, FakeServer, Part, job_body
from eventually import eventually
from torchyard import Client
from torchyard.base.settings import Settings
from torchyard.client.printing import bytes_of

_OUTPUT = "größer\n".encode()
_BUILD = "✓ idna\n".encode()
_LOG = {"kind": "log", "attempt": 1, "path": "user_logs/std_log.txt"}


class _Cell:
    """As little as `print` needs, and as ipykernel's OutStream: no bytes below it, no `closed`."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


class _Tee:
    """Writes into a second stream, too, and gives away everything else of the first."""

    def __init__(self, first: Any) -> None:
        self.first, self.text = first, ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.first, name)

    def write(self, text: str) -> int:
        self.text += text
        return self.first.write(text)  # type: ignore[no-any-return]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server = FakeServer()
    parts = [
        Part({"kind": "build", "attempt": 1, "path": "build.txt"}, _BUILD),
        Part({"kind": "stage", "stage": "Running", "state": "start", "at": "x"}),
        Part(_LOG, _OUTPUT[:3]),
        Part(_LOG, _OUTPUT[3:]),
        Part({"kind": "notice", "message": "done…"}),
    ]
    job = FakeJob(job_body("a"), parts)
    job.may_end.set()
    server.state.jobs["a"] = job
    try:
        with Client(
            workspace="default", settings=Settings(tmp_path / "home", server.url, TOKEN)
        ) as made:
            yield made
    finally:
        server.stop()


@pytest.mark.parametrize("kind", [_Cell, io.StringIO])
def test_a_job_is_streamed_into_streams_without_bytes(
    client: Client, monkeypatch: pytest.MonkeyPatch, kind: type[Any]
) -> None:
    out, err = kind(), kind()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    ended = client.jobs.get("a").stream(timeout_s=60)
    monkeypatch.undo()
    printed, built = (each.getvalue() if kind is io.StringIO else each.text for each in (out, err))
    assert ended.status == "Completed" and built == _BUILD.decode()
    assert printed == "Running…\ngrößer\nNotice: done…\n"


def test_a_stream_that_also_writes_elsewhere_misses_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = (_Tee(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    client.jobs.get("a").stream(timeout_s=60)
    monkeypatch.undo()
    assert out.text == "Running…\ngrößer\nNotice: done…\n" and err.text == _BUILD.decode()


def test_what_is_said_begins_a_line_of_its_own_unless_the_bytes_go_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = FakeServer()
    parts = [Part(_LOG, b"no newline"), Part({"kind": "notice", "message": "done"})]
    job = FakeJob(job_body("a"), parts)
    job.may_end.set()
    server.state.jobs["a"] = job
    shown, elsewhere = io.StringIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", shown)
    with Client(workspace="default", settings=Settings(tmp_path, server.url, TOKEN)) as client:
        client.jobs.get("a").stream(timeout_s=60)
        client.jobs.get("a").stream(timeout_s=60, out=elsewhere)
    monkeypatch.undo()
    server.stop()
    assert shown.getvalue() == "no newline\nNotice: done\nNotice: done\n"
    assert elsewhere.getvalue() == b"no newline"


def test_a_stream_says_once_that_the_server_is_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = FakeServer()
    job = FakeJob(job_body("a"), [Part(_LOG, b"first\nsecond\n")])
    job.may_end.set()
    job.cuts = [1]
    server.state.jobs["a"] = job
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    with Client(workspace="default", settings=Settings(tmp_path, server.url, TOKEN)) as client:
        reader = threading.Thread(target=client.jobs.get("a").stream, daemon=True)
        # What is connected stays so until it is cut.
        server.stop()
        reader.start()
        eventually(lambda: "The server is unreachable" in shown.getvalue(), "that to be said")
        server.start()
        reader.join()
    monkeypatch.undo()
    server.stop()
    assert shown.getvalue().count("`yard server start`") == 1
    assert shown.getvalue().endswith("second\n")


def test_a_job_is_streamed_where_there_is_no_standard_stream(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    ended = client.jobs.get("a").stream(timeout_s=60)
    monkeypatch.undo()
    assert ended.status == "Completed"


def test_what_the_encoding_lacks_is_replaced_and_lines_keep_their_order(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    print("first")
    client.jobs.get("a").stream(timeout_s=60)
    lines = raw.getvalue()
    monkeypatch.undo()
    assert lines == b"first\nRunning?\n" + _OUTPUT + b"Notice: done?\n"


def test_bytes_of_a_stream_that_was_closed_end_quietly() -> None:
    text = io.StringIO()
    opened = bytes_of(text)
    opened.write(b"a")
    text.close()
    opened.close()
