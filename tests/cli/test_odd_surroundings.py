"""Encodings, folders, servers and processes that are not as they should be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cli.conftest import Yard
from cli.served_workspace import ServedWorkspace
from torchyard.cli.parsing.options import python_warnings_as_lines

_PATIENCE_S = 30.0


def test_an_output_that_cannot_hold_every_letter(server: ServedWorkspace, tmp_path: Path) -> None:
    server.start("a").record({"学习": "größe"})
    ran = subprocess.run(
        [sys.executable, "-m", "torchyard.cli.main", "job", "show", "a"],
        env={**os.environ, "PYTHONIOENCODING": "latin-1", "TORCHYARD_HOME": str(tmp_path)},
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert "\\u5b66\\u4e60  größe\n".encode("latin-1") in ran.stdout


def test_a_folder_that_is_gone(
    server: ServedWorkspace, yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "gone"
    missing.mkdir()
    monkeypatch.chdir(missing)
    missing.rmdir()
    answer = yard("job", "list")
    assert answer.code == 2
    assert answer.err.startswith("error: the current folder no longer exists\nhint: ")


def test_digits_that_are_no_number(
    server: ServedWorkspace, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("job.yml").write_text("command: [[a]]\n")
    answer = yard("job", "create", "-f", "job.yml", "--set", "command[0].².x=1")
    assert answer.code == 2 and "nothing can be set at `²`" in answer.err
    monkeypatch.setenv("TORCHYARD_SNAPSHOT_MAX_FILES", "²")
    answer = yard("job", "list")
    assert answer.code == 2 and "`TORCHYARD_SNAPSHOT_MAX_FILES` is `²`" in answer.err


class _Foreign(BaseHTTPRequestHandler):
    """Somebody else's service, healthy and in JSON."""

    def do_GET(self) -> None:
        content = json.dumps({"status": "ok"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def foreign() -> Iterator[str]:
    service = ThreadingHTTPServer(("127.0.0.1", 0), _Foreign)
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{service.server_port}"
    service.shutdown()
    thread.join()
    service.server_close()


def test_a_service_that_is_not_torchyard_is_refused(
    foreign: str, yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHYARD_URL", foreign)
    answer = yard("server", "status", "-o", "json")
    assert answer.code == 1 and json.loads(answer.out)["status"] == "not a torchyard server", (
        answer.err
    )
    monkeypatch.delenv("TORCHYARD_URL")
    Path("token").write_text("yard_p_x")
    answer = yard("login", foreign, "--token-file", "token")
    assert answer.code == 1 and f"`{foreign}` is not a torchyard server" in answer.err
    assert not Path(os.environ["TORCHYARD_HOME"], "servers.json").exists()


def test_a_backup_that_is_killed(
    yard: Yard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    answer = yard("server", "backup", tmp_path / "monday.tar")
    assert answer.code == 1
    assert answer.err.startswith("error: the backup was killed by signal 9\nhint: ")


def test_a_log_that_is_cut_short_is_followed_on(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("yesterday " * 20_000 + "\n")
    following = subprocess.Popen(
        [sys.executable, "-m", "torchyard.cli.main", "server", "logs", "--follow"],
        env={**os.environ, "TORCHYARD_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
    )
    stdout = following.stdout
    assert stdout is not None
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(stdout.readline()))
    try:
        assert stdout.readline().endswith(b"yesterday \n")
        log.write_text("")
        reader.start()
        # Again and again: whether it has looked at the file's end yet can't be seen.
        deadline = time.monotonic() + _PATIENCE_S
        while not read and time.monotonic() < deadline:
            with open(log, "a") as writing:
                writing.write("today\n")
            reader.join(0.1)
        assert read == [b"today\n"]
    finally:
        following.kill()
        following.wait()
        if reader.ident:
            reader.join()
        stdout.close()


def test_what_the_sdk_warns_of_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with python_warnings_as_lines():
        warnings.warn("the server uses another port", stacklevel=1)
    assert capsys.readouterr().err == "warning: the server uses another port\n"
