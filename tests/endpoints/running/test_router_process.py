"""The router's process, as the server sees it."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path

import pytest

from eventually import eventually
from jobs import support
from torchyard.base.clock import FakeClock
from torchyard.base.db import Database
from torchyard.endpoints.router.table import Table
from torchyard.endpoints.running import router_process
from torchyard.endpoints.running.keeper import Keeper
from torchyard.endpoints.running.router_process import RouterProcess, ScoringAt


def test_a_server_that_ends_does_not_wait_for_a_router_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, pid = tmp_path / "python", tmp_path / "pid"
    program.write_text(
        f"#!/bin/sh\necho $$ >{tmp_path}/new && mv {tmp_path}/new {pid}\nexec sleep 600\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    # Never reached: the test's own limit is shorter.
    monkeypatch.setattr(router_process, "_START_LIMIT_S", 3600.0)
    (tmp_path / "router").mkdir()
    router = RouterProcess(tmp_path, ScoringAt())
    problems: list[str] = []
    thread = threading.Thread(target=lambda: problems.append(router.ensure()))
    thread.start()
    eventually(pid.exists, "the router has been started")
    router.stop_waiting()
    thread.join()
    assert problems == ["the server stops"]
    # It goes on, unless its home has no endpoint any more.
    process = router._process
    assert process is not None and process.poll() is None
    router.stop()
    assert process.wait() == -signal.SIGTERM


def test_a_router_that_worked_is_started_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Never over: only one that did not start is waited for.
    monkeypatch.setattr(router_process, "_RETRY_S", 3600.0)
    router = RouterProcess(tmp_path, ScoringAt())
    router.write(Table())
    try:
        for _ in range(2):
            assert router.ensure() == ""
            process = router._process
            assert process is not None
            process.kill()
            process.wait()
        monkeypatch.setattr(sys, "executable", "/bin/false")
        assert "ended with code 1" in router.ensure()
        assert router.ensure() == "the router does not run"
    finally:
        router.stop()


def test_a_server_that_ends_without_an_endpoint_ends_the_router(
    tmp_path: Path, db: Database, clock: FakeClock
) -> None:
    services = support.make_services(tmp_path, db, clock)
    router = RouterProcess(services.home, ScoringAt())
    router.write(Table())
    assert router.ensure() == ""
    process = router._process
    assert process is not None and process.poll() is None
    # The last endpoint was deleted after this server's last look.
    asyncio.run(Keeper(services, ScoringAt()).stop())
    assert process.wait() == 0
