"""Which engine an attempt goes to, and which may start nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchyard.base.clock import FakeClock
from torchyard.executors import engines
from torchyard.executors.engines import Engines
from torchyard.executors.executor import EngineRefused, EngineUnreachable, Handle, Status
from torchyard.executors.fake import FakeEngine, FakeExecutor
from torchyard.executors.runner_client import RunnerClient
from torchyard.shared.plan import LaunchPlan

PLAN = LaunchPlan("a1", 1, "job", "default", "e", "true", "http://s", "t", "u", "/scratch")


def test_slurm_starts_nothing_beside_a_runner_and_what_runs_is_still_seen() -> None:
    """Its jobs would be the server's own user, which the runner is there to prevent."""
    slurm = FakeExecutor()
    refused = engines.refused(RunnerClient(Path("/nowhere")))
    assert refused.keys() == {"slurm"} and engines.refused(None) == {}
    every = Engines(FakeExecutor(), {"slurm": lambda: slurm}, refused)  # type: ignore[dict-item, return-value]
    with pytest.raises(EngineRefused, match="server's own Unix user"):
        every.launch(replace(PLAN, engine="slurm"))
    with pytest.raises(EngineRefused):
        every.describe("slurm", {})
    assert slurm.launches == []
    slurm.launch(PLAN)
    assert every.status(Handle("slurm", {"attempt_id": "a1", "nodes": 1})).state == "running"
    assert every.launch(PLAN).executor == "fake"


class _DeadCluster(FakeEngine):
    """Of two clusters, one at which every question takes its whole time.

    Attributes:
        asked: the addresses of the questions, in order.
        answers: whether it has come back.
    """

    def __init__(self, clock: FakeClock, took_s: float) -> None:
        super().__init__("ray")
        self._clock, self._took_s = clock, took_s
        self.asked: list[str] = []
        self.answers = False

    def status(self, handle: Handle) -> Status:
        address = str(handle.body["settings"]["address"])
        self.asked.append(address)
        if address == "dead:1" and not self.answers:
            self._clock.advance(self._took_s)
            raise EngineUnreachable("the Ray cluster at `dead:1` does not answer", "look at it")
        return Status(("running",))


def _attempt(address: str) -> Handle:
    body: dict[str, Any] = {"attempt_id": "a1", "nodes": 1, "settings": {"address": address}}
    return Handle("ray", body)


def test_a_cluster_that_does_not_answer_is_asked_once_in_a_while_and_no_other_waits() -> None:
    clock = FakeClock()
    began = clock.now()
    dead = _DeadCluster(clock, took_s=5.0)
    every = Engines(
        FakeExecutor(), {"ray": lambda: dead}, now=lambda: (clock.now() - began).total_seconds()
    )
    # Rounds of a scheduler with three attempts there, and one on another cluster.
    for _ in range(10):
        for address in ("dead:1", "dead:1", "live:1", "dead:1"):
            if address == "live:1":
                assert every.status(_attempt(address)).state == "running"
                continue
            with pytest.raises(EngineUnreachable, match="does not answer") as caught:
                every.status(_attempt(address))
            assert caught.value.hint == "look at it"
        clock.advance(1.0)
    assert dead.asked.count("live:1") == 10
    assert dead.asked.count("dead:1") == 1
    dead.answers = True
    clock.advance(15.0)
    assert every.status(_attempt("dead:1")).state == "running"
    assert every.status(_attempt("dead:1")).state == "running"


def test_a_cluster_that_says_at_once_that_it_is_not_ready_is_asked_again_at_once() -> None:
    clock = FakeClock()
    began = clock.now()
    starting = _DeadCluster(clock, took_s=0.0)
    every = Engines(
        FakeExecutor(), {"ray": lambda: starting}, now=lambda: (clock.now() - began).total_seconds()
    )
    with pytest.raises(EngineUnreachable):
        every.status(_attempt("dead:1"))
    starting.answers = True
    assert every.status(_attempt("dead:1")).state == "running"
