"""The fake keeps the promises it stands in for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from contracts.engine_verbs_contract import EngineUnderTest, EngineVerbsContract
from contracts.executor_contract import ExecutorContract, Site
from torchyard.executors.executor import EngineUnreachable, Executor, Handle
from torchyard.executors.fake import FakeEngine, FakeExecutor
from torchyard.shared.plan import LaunchPlan

_NUMBERS = itertools.count()


def new_plan(node_count: int = 1) -> LaunchPlan:
    return LaunchPlan(
        attempt_id=f"a{next(_NUMBERS)}",
        attempt=1,
        job="job",
        workspace="default",
        experiment="exp",
        command="true",
        server_url="http://127.0.0.1:1",
        report_token="secret-report-token",
        run_token="secret-run-token",
        scratch="/nowhere",
        node_count=node_count,
    )


class FakeSite(Site):
    def __init__(self) -> None:
        self.executor = self.fake = FakeExecutor()

    def plan(self, node_count: int = 1) -> LaunchPlan:
        return new_plan(node_count)

    def end(self, plan: LaunchPlan) -> None:
        self.fake.finish(plan.attempt_id)

    def lose(self, plan: LaunchPlan, node: int) -> None:
        self.fake.lose(plan.attempt_id, node)

    def starts(self, plan: LaunchPlan) -> int:
        return sum(
            launched.node_count
            for launched in self.fake.launches
            if launched.attempt_id == plan.attempt_id
        )

    def reopened(self) -> Executor:
        return self.fake


class TestFakeExecutor(ExecutorContract):
    @pytest.fixture
    def site(self) -> Site:
        return FakeSite()


class WithMachines(FakeEngine):
    """A new attempt gets its machines at once."""

    def launch(self, plan: LaunchPlan) -> Handle:
        handle = super().launch(plan)
        self.give_machines(plan.attempt_id)
        return handle


class FakeUnderTest(EngineUnderTest):
    def __init__(self) -> None:
        self.fake = WithMachines("fake")

    def open(self) -> FakeEngine:
        return self.fake

    def plan(self) -> LaunchPlan:
        return new_plan()

    @contextmanager
    def unreachable(self) -> Iterator[tuple[Mapping[str, Any], Handle]]:
        handle = self.fake.launch(self.plan())
        self.fake.unreachable = EngineUnreachable("nobody answers", "ask somebody")
        yield self.settings, handle

    def held(self, plan: LaunchPlan) -> list[str]:
        return sorted({plan.attempt_id}.difference(self.fake.released))


class TestFakeEngine(EngineVerbsContract):
    @pytest.fixture
    def site(self) -> EngineUnderTest:
        return FakeUnderTest()


def test_a_launch_fails_once_when_told_to() -> None:
    site = FakeSite()
    site.fake.launch_error = OSError("no room")
    plan = site.plan()
    with pytest.raises(OSError, match="no room"):
        site.fake.launch(plan)
    assert site.fake.launches == []
    assert site.fake.status(site.fake.launch(plan)).state == "running"


def test_a_machine_that_was_switched_off_loses_all() -> None:
    site = FakeSite()
    handle = site.fake.launch(site.plan(2))
    site.fake.forget()
    assert site.fake.status(handle).nodes == ("lost", "lost")
