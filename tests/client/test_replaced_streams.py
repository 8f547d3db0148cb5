"""The SDK prints under whatever stands for standard output and error: a cell, a file, nothing."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.relay import Relay
from cli.served_workspace import ServedWorkspace, count_as_built
from eventually import eventually
from torchyard import Client
from torchyard.base.settings import Settings
from torchyard.client.printing import bytes_of
from torchyard.environments.types import EnvironmentSpec

_OUTPUT = "größer\n".encode()
_BUILD = "✓ idna\n".encode()
_PRINTED = (
    "Preparing… (the environment is being built)\nPreparing took 0.0 s\n"
    "Scaling…\nScaling took 0.0 s\n"
    "Running…\ngrößer\nNotice: done…\nRunning took 0.0 s\n"
    "Post-Processing…\nPost-Processing took 0.0 s\n"
)


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
def client(server: ServedWorkspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """Of a workspace whose job `a` waited for its environment, and has ended."""
    environments = server.services.environments
    definition = {"conda_file": {"dependencies": ["python=3.11", {"pip": [server.name]}]}}

    def build(spec: EnvironmentSpec, *_: object) -> None:
        log = environments.folders.log_path(spec.hash)
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_bytes(_BUILD)
        count_as_built(server.services, definition)

    monkeypatch.setattr(environments.builds, "run", build)
    job = server.start("a", environment=definition).run()
    job.log(_OUTPUT[:3])
    job.log(_OUTPUT[3:])
    job.notice("done…")
    job.complete()
    with server.client() as made:
        yield made


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
    assert printed == _PRINTED


def test_a_stream_that_also_writes_elsewhere_misses_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, err = (_Tee(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    client.jobs.get("a").stream(timeout_s=60)
    monkeypatch.undo()
    assert out.text == _PRINTED and err.text == _BUILD.decode()


def test_what_is_said_begins_a_line_of_its_own_unless_the_bytes_go_elsewhere(
    server: ServedWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = server.start("a").run()
    job.log(b"no newline")
    job.notice("done")
    job.complete()
    shown, elsewhere = io.StringIO(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", shown)
    with server.client() as client:
        client.jobs.get("a").stream(timeout_s=60)
        client.jobs.get("a").stream(timeout_s=60, out=elsewhere)
    monkeypatch.undo()
    assert "\nno newline\nNotice: done\n" in shown.getvalue()
    assert shown.getvalue().count("\nNotice: done\n") == 2
    assert elsewhere.getvalue() == b"no newline"


def test_a_stream_says_once_that_the_server_is_lost(
    server: ServedWorkspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = server.start("a")
    job.log(b"first\nsecond\n")
    job.complete()
    relay = Relay(server.url, [400])
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    settings = Settings(tmp_path, relay.url, server.token)
    with Client(workspace=server.name, settings=settings) as client:
        reader = threading.Thread(target=client.jobs.get("a").stream, daemon=True)
        # What is connected stays so until it is cut.
        relay.stop()
        reader.start()
        eventually(lambda: "The server is unreachable" in shown.getvalue(), "that to be said")
        relay.start()
        reader.join()
    monkeypatch.undo()
    relay.stop()
    assert shown.getvalue().count("`yard server start`") == 1
    assert "\nfirst\nsecond\n" in shown.getvalue()


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
    before, after = _PRINTED.split("größer\n")
    assert lines == b"first\n" + _ascii(before) + _OUTPUT + _ascii(after)


def _ascii(text: str) -> bytes:
    return text.encode("ascii", "replace")


def test_bytes_of_a_stream_that_was_closed_end_quietly() -> None:
    text = io.StringIO()
    opened = bytes_of(text)
    opened.write(b"a")
    text.close()
    opened.close()
