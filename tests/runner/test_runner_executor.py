"""The local engine through the runner: workers of other Unix users."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.executor_contract import ExecutorContract, Site
from runner.runner_site import RunnerSite, runner_site
from torchyard.executors.bundle import worker_zip
from torchyard.executors.local import LocalExecutor
from torchyard.executors.machine import Machine
from torchyard.executors.runner_client import RunnerRefused, RunnerUnreachable
from torchyard.executors.spawner import RunnerSpawner
from torchyard.shared import processes
from torchyard.shared.plan import LaunchPlan
from worker.bench import Bench, bench_in

pytestmark = [
    pytest.mark.runner,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be a runner"),
]


class RunnerBench(Site):
    def __init__(self, bench: Bench, runner: RunnerSite) -> None:
        self.bench = bench
        self.runner = runner
        self.machine: Machine | None = None
        self.executor = bench.executor = self.reopened()
        self.flags = runner.folder / "flags"
        self.flags.mkdir(exist_ok=True)
        self.flags.chmod(0o1777)

    def plan(self, node_count: int = 1) -> LaunchPlan:
        self.bench.server.node_count = node_count
        plan = self.of(self.bench.plan("", node_count=node_count))
        command = (
            f"echo x >> {self.flags}/{plan.attempt_id}.started; "
            f"while [ ! -e {self.flags}/{plan.attempt_id}.end ]; do sleep 0.02; done"
        )
        return self.of(replace(plan, command=command))

    def of(self, plan: LaunchPlan, person: str = "anna") -> LaunchPlan:
        scratch = str(self.runner.node_folder / "scratch" / plan.attempt_id)
        return replace(plan, scratch=scratch, blobs="", person=person)

    def end(self, plan: LaunchPlan) -> None:
        (self.flags / f"{plan.attempt_id}.end").touch()

    def lose(self, plan: LaunchPlan, node: int) -> None:
        worker = self.worker(plan, node)
        os.kill(worker["supervisor"]["pid"], signal.SIGSTOP)
        os.kill(worker["pid"], signal.SIGKILL)
        os.kill(worker["supervisor"]["pid"], signal.SIGKILL)

    def worker(self, plan: LaunchPlan, node: int = 0) -> dict:  # type: ignore[type-arg]
        def find() -> dict:  # type: ignore[type-arg]
            ask = self.runner.client.call
            return ask("records", attempt=plan.attempt_id, count=node + 1)["workers"][node] or {}

        self.bench.server.wait_until(lambda: bool(find()), goal="the worker's record")
        return find()

    def starts(self, plan: LaunchPlan) -> int:
        file = self.flags / f"{plan.attempt_id}.started"

        def count() -> int:
            return len(file.read_text().split()) if file.exists() else 0

        self.bench.server.wait_until(lambda: count() >= plan.node_count)
        return count()

    def reopened(self) -> LocalExecutor:
        spawner = RunnerSpawner(self.bench.home, self.runner.client)
        return LocalExecutor(self.bench.home, {}, devices=self.machine, spawner=spawner)


@pytest.fixture(scope="module")
def runner() -> Iterator[RunnerSite]:
    with runner_site(umask="000") as site:
        yield site


@pytest.fixture
def site(runner: RunnerSite, tmp_path: Path) -> Iterator[RunnerBench]:
    with bench_in(tmp_path) as bench:
        site = RunnerBench(bench, runner)
        yield site
        deadline = time.monotonic() + 30
        while any(runner.processes_of(name) for name in ("job1", "job2")):
            assert time.monotonic() < deadline, "processes of jobs are left"
            time.sleep(0.02)


class TestRunnerExecutor(ExecutorContract):
    @pytest.fixture
    def site(self, runner: RunnerSite, tmp_path: Path) -> Iterator[Site]:
        with bench_in(tmp_path) as bench:
            yield RunnerBench(bench, runner)


def test_a_worker_and_its_ranks_are_the_persons_account(
    site: RunnerBench, runner: RunnerSite
) -> None:
    plan = site.of(site.bench.plan('id -u; echo "$HOME"; env; grep NoNewPrivs /proc/self/status'))
    site.bench.wait(site.executor.launch(plan))
    output = site.bench.server.logs["user_logs/std_log.txt"].decode()
    accounts = {runner.user("job1"), runner.user("job2")}
    uid, home, *rest = output.splitlines()
    assert int(uid) in {runner.uid("job1"), runner.uid("job2")}
    assert Path(home).name in accounts
    assert "NoNewPrivs:\t1" in rest
    assert not [line for line in rest if "PYTEST" in line or "TORCHYARD_LAUNCH" in line]


def test_jobs_run_on_when_the_runner_is_killed(site: RunnerBench, runner: RunnerSite) -> None:
    plan = site.plan(node_count=2)
    handle = site.executor.launch(plan)
    site.starts(plan)
    runner.stop(signal.SIGKILL)
    with pytest.raises(RunnerUnreachable, match="does not answer"):
        site.executor.status(handle)
    runner.start()
    assert site.executor.status(handle).nodes == ("running", "running")
    assert (
        site.executor.launch(plan).body["nodes"] == handle.body["nodes"] or site.starts(plan) == 2
    )
    site.end(plan)
    site.bench.wait(handle)
    assert site.executor.status(handle).nodes == ("exited", "exited")
    assert site.starts(plan) == 2


def test_devices_stay_locked_by_the_ranks_of_another_user(
    site: RunnerBench, tmp_path: Path
) -> None:
    machine = Machine({"TORCHYARD_DEVICES": "2", "TORCHYARD_DEVICE_LOCKS": str(tmp_path / "locks")})
    site.machine = machine
    site.executor = site.bench.executor = site.reopened()
    plan = replace(site.plan(), gpus_per_node=1)
    handle = site.executor.launch(plan)
    site.starts(plan)
    assert len(machine.free()) == 1
    site.end(plan)
    site.bench.wait(handle)
    site.bench.server.wait_until(lambda: len(machine.free()) == 2)


def test_an_attempt_stays_with_the_account_that_it_began_as(site: RunnerBench) -> None:
    plan = site.plan()
    handle = site.executor.launch(plan)
    site.starts(plan)
    with open(worker_zip(site.bench.home), "rb") as file:
        worker = site.runner.client.call("keep_worker", [file.fileno()])["worker"]
    launch = {"attempt": plan.attempt_id, "node": 1, "worker": worker, "plan": plan.to_json()}
    with pytest.raises(RunnerRefused, match="is another account's"):
        site.runner.client.call("launch", person="berta", **launch)
    site.end(plan)
    site.bench.wait(handle)


def test_what_still_runs_is_not_removed_and_what_ended_is(site: RunnerBench) -> None:
    plan = site.plan()
    handle = site.executor.launch(plan)
    site.starts(plan)
    with pytest.raises(RunnerRefused, match="still runs"):
        site.runner.client.call("remove", attempt=plan.attempt_id)
    site.end(plan)
    site.bench.wait(handle)
    site.bench.server.wait_until(
        lambda: not processes.is_running(*site.worker(plan)["supervisor"].values())
    )
    assert site.runner.client.call("remove", attempt=plan.attempt_id) == {"removed": True}
    assert not Path(plan.scratch).exists()
    names = [entry["name"] for entry in site.runner.client.call("attempts")["attempts"]]
    assert plan.attempt_id not in names
