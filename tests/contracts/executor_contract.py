"""What every executor must keep; each one's tests inherit these."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

import pytest

from eventually import eventually
from torchyard.executors.executor import Executor, Handle
from torchyard.shared.plan import LaunchPlan


class Site(ABC):
    """An executor, and the means to make its attempts do something."""

    executor: Executor

    @abstractmethod
    def plan(self, node_count: int = 1) -> LaunchPlan:
        """An attempt that runs until `end` or a stop."""

    @abstractmethod
    def end(self, plan: LaunchPlan) -> None:
        """Let all nodes of the attempt end well."""

    @abstractmethod
    def lose(self, plan: LaunchPlan, node: int) -> None:
        """Take one node away without a word."""

    @abstractmethod
    def starts(self, plan: LaunchPlan) -> int:
        """How many nodes of the attempt were ever started; called when they run."""

    @abstractmethod
    def reopened(self) -> Executor:
        """Another executor for the same place, as a server that was started again has it."""


class ExecutorContract:
    """Inherit, and give a fixture `site`."""

    @pytest.fixture
    def site(self) -> Site:
        raise NotImplementedError

    def test_an_attempt_runs_and_ends(self, site: Site) -> None:
        plan = site.plan(node_count=2)
        handle = site.executor.launch(plan)
        assert site.executor.status(handle).nodes == ("running", "running")
        assert not site.executor.status(handle).over
        site.end(plan)
        _wait(lambda: site.executor.status(handle).over)
        assert site.executor.status(handle).nodes == ("exited", "exited")
        assert site.executor.status(handle).state == "exited"

    def test_the_same_attempt_twice_starts_once(self, site: Site) -> None:
        plan = site.plan(node_count=2)
        first = site.executor.launch(plan)
        second = site.executor.launch(plan)
        third = site.reopened().launch(plan)
        assert site.starts(plan) == 2
        for handle in (first, second, third):
            assert site.executor.status(handle).state == "running"
        site.end(plan)
        _wait(lambda: site.executor.status(first).over)
        again = site.executor.launch(plan)
        for handle in (first, second, third, again):
            assert site.executor.status(handle).state == "exited"
        assert site.starts(plan) == 2

    def test_a_new_server_needs_only_the_handle(self, site: Site) -> None:
        plan = site.plan()
        handle = site.executor.launch(plan)
        read_back = Handle.from_json(json.loads(json.dumps(handle.to_json())))
        assert read_back == handle
        reopened = site.reopened()
        assert reopened.status(read_back).state == "running"
        site.end(plan)
        _wait(lambda: reopened.status(read_back).over)
        assert reopened.status(read_back).state == "exited"

    def test_a_lost_node_makes_the_attempt_lost(self, site: Site) -> None:
        plan = site.plan(node_count=2)
        handle = site.executor.launch(plan)
        site.starts(plan)
        site.lose(plan, 1)
        _wait(lambda: site.executor.status(handle).nodes[1] == "lost")
        assert site.executor.status(handle).state == "lost"
        assert site.executor.status(handle).nodes[0] == "running"
        recovery_worker = site.executor.recover(plan)
        _wait(lambda: site.executor.status(recovery_worker).nodes[1] != "ending")
        assert site.starts(plan) == 2, "the script does not run again"
        site.executor.stop(recovery_worker, 5.0)
        _wait(lambda: site.executor.status(recovery_worker).over)

    def test_stop_ends_every_node(self, site: Site) -> None:
        handle = site.executor.launch(site.plan(node_count=2))
        site.executor.stop(handle, 5.0)
        _wait(lambda: site.executor.status(handle).over)

    def test_stop_returns_at_once_and_may_be_repeated(self, site: Site) -> None:
        plan = site.plan()
        handle = site.executor.launch(plan)
        before = time.monotonic()
        site.executor.stop(handle, 30.0)
        site.executor.stop(handle, 30.0)
        assert time.monotonic() - before < 20.0
        _wait(lambda: site.executor.status(handle).over)
        site.executor.stop(handle, 0.0)
        assert site.executor.status(handle).over

    def test_stop_without_grace(self, site: Site) -> None:
        handle = site.executor.launch(site.plan(node_count=2))
        site.executor.stop(handle, 0.0)
        _wait(lambda: site.executor.status(handle).over)


def _wait(true: Callable[[], bool]) -> None:
    eventually(true, "what the contract asks for")
