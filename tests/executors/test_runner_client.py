"""What the server makes of a runner that can't be asked."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchyard.executors.runner_client import RunnerClient, RunnerRefused, RunnerUnreachable
from torchyard.jobs.records import isolation
from torchyard.shared import runner_messages

ONE_DATABASE = True


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[RunnerClient]:
    """A runner that never answers."""
    path = tmp_path / "runner.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield RunnerClient(path)


def test_what_is_too_long_concerns_one_job(runner: RunnerClient) -> None:
    plan = "x" * runner_messages.MOST_BYTES
    for ask in (runner.ask, runner.start):
        with pytest.raises(RunnerRefused, match="is too long") as refusal:
            ask("launch", plan=plan)
        assert isolation.is_job_error(refusal.value)


def test_a_runner_that_is_not_there_concerns_all_jobs(tmp_path: Path) -> None:
    with pytest.raises(RunnerUnreachable) as error:
        RunnerClient(tmp_path / "none").call("hello")
    assert not isolation.is_job_error(error.value)
