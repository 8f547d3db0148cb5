"""The fake keeps the promises it stands in for."""

from __future__ import annotations

import itertools

import pytest

from contracts.executor_contract import ExecutorContract, Site
from torchyard.executors.executor import Executor
from torchyard.executors.fake import FakeExecutor
from torchyard.shared.plan import LaunchPlan


class FakeSite(Site):
    def __init__(self) -> None:
        self.executor = self.fake = FakeExecutor()
        self._numbers = itertools.count()

    def plan(self, node_count: int = 1) -> LaunchPlan:
        return LaunchPlan(
            attempt_id=f"a{next(self._numbers)}",
            attempt=1,
            job="job",
            workspace="default",
            experiment="exp",
            command="true",
            server_url="http://127.0.0.1:1",
            report_token="",
            run_token="",
            scratch="/nowhere",
            node_count=node_count,
        )

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
