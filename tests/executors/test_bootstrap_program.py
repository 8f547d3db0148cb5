"""A node that can't fetch its worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchyard.executors import bootstrap_program
from torchyard.shared.node_start import NodeStart


@pytest.fixture
def closed_port() -> Iterator[int]:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield int(closed.getsockname()[1])


def test_a_node_that_can_not_reach_the_server_names_each_address_and_says_what_to_open(
    closed_port: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    urls = [f"http://127.0.0.1:{closed_port}", f"https://localhost:{closed_port}"]
    start = NodeStart("a1", urls, "tyr_token", "0" * 64, folder=str(tmp_path / "node"))
    file = tmp_path / "start.json"
    file.write_text(start.to_json())
    monkeypatch.setattr(bootstrap_program, "_TRY_FOR_S", 0.0)
    monkeypatch.setattr("sys.argv", ["bootstrap_program.py", "--node", "1", "--start", str(file)])
    assert bootstrap_program.main() == bootstrap_program.EXIT_CODE
    error, hint = capfd.readouterr().err.splitlines()
    assert error.startswith("error: node 1 (")
    assert all(f"{url}: [Errno 111]" in error for url in urls)
    assert "open this TCP port" in hint and f"curl -k {urls[0]}/livez" in hint
    assert not list((tmp_path / "node").rglob("*.pyz"))


def test_a_server_that_restarts_is_awaited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap_program, "_TRY_FOR_S", 0.0)
    monkeypatch.setattr(bootstrap_program, "_PAUSE_S", 0.0)
    errors: list[Exception] = [ConnectionRefusedError(), ConnectionRefusedError()]

    def request(*given: Any) -> None:
        if errors:
            raise errors.pop()
        given[-1].write(b"worker")

    monkeypatch.setattr(bootstrap_program, "_request", request)
    with open(tmp_path / "worker", "w+b") as file:
        bootstrap_program._fetch({"server_urls": ["http://192.0.2.1:1"]}, "/worker", file)
    assert (tmp_path / "worker").read_bytes() == b"worker"
