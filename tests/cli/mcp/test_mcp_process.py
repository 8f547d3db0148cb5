"""The process `yard mcp`: what it writes, when it ends, what it needs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from eventually import LIMIT_S
from sentences import Sentence

INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


@pytest.fixture
def process(server: ServedWorkspace, yard: Yard) -> Iterator[subprocess.Popen[bytes]]:
    """`yard mcp`, which asks the test's server."""
    with subprocess.Popen(
        [sys.executable, "-m", "torchyard.cli.main", "mcp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        yield process
        process.kill()


def send(process: subprocess.Popen[bytes], method: str, params: Any, number: int | None) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params}
    if number is not None:
        message["id"] = number
    assert process.stdin is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    process.stdin.flush()


def answer(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    message: dict[str, Any] = json.loads(process.stdout.readline())
    return message


def begin(process: subprocess.Popen[bytes]) -> None:
    send(process, "initialize", INITIALIZE, 1)
    assert answer(process)["result"]["serverInfo"]["name"] == "torchyard"
    send(process, "notifications/initialized", {}, None)


def test_it_ends_with_its_stdin(process: subprocess.Popen[bytes]) -> None:
    begin(process)
    assert process.communicate(timeout=LIMIT_S) == (b"", b"")
    assert process.returncode == 0


def test_it_ends_with_its_stdin_while_it_waits_for_a_job(
    process: subprocess.Popen[bytes], server: ServedWorkspace
) -> None:
    server.start("goes-on")
    begin(process)
    send(process, "tools/call", call("show_job", name="goes-on", wait_s=50), 2)
    # Calls run beside each other: this one is answered when that one has begun.
    send(process, "tools/call", call("list_jobs"), 3)
    assert answer(process)["id"] == 3
    out, err = process.communicate(timeout=LIMIT_S)
    assert (err, process.returncode) == (b"", 0)
    assert b"goes-on" not in out, "it has waited to the end"


def test_stdout_has_only_messages(
    process: subprocess.Popen[bytes], server: ServedWorkspace
) -> None:
    begin(process)
    assert process.stdin is not None
    process.stdin.write(b"no message\n")
    send(process, "tools/call", call("list_jobs"), 2)
    send(process, "tools/call", call("show_job", name="never-made"), 3)
    answers = [answer(process) for _ in range(2)]
    assert {message["id"] for message in answers} == {2, 3}
    out, _ = process.communicate(timeout=LIMIT_S)
    assert out == b""


def test_ctrl_c_ends_it(process: subprocess.Popen[bytes]) -> None:
    begin(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(LIMIT_S) == -signal.SIGINT


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


@pytest.mark.sentences
@pytest.mark.parametrize("version", ["", "1.27.0"])
def test_without_the_extra_it_says_what_to_install(
    yard: Yard, sentence: Sentence, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    def installed(name: str) -> str:
        if not version:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", installed)
    answer = yard("mcp")
    assert (answer.code, answer.out) == (2, b"")
    assert "pip install 'torchyard[mcp]'" in answer.err
    sentence.is_printed(answer.err)
