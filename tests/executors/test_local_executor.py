"""The local engine with real workers."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from contracts.engine_verbs_contract import EngineUnderTest, EngineVerbsContract
from contracts.executor_contract import ExecutorContract, Site
from torchyard.executors.bundle import worker_zip
from torchyard.executors.device_locks import LockedDevice, give_back
from torchyard.executors.executor import DevicesTaken, Executor
from torchyard.executors.local import LocalExecutor
from torchyard.executors.machine import Machine
from torchyard.shared.plan import LaunchPlan
from worker.bench import Bench, bench_in, is_alive


class LocalSite(Site):
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.executor = bench.executor
        self.machine: Machine | None = None

    def plan(self, node_count: int = 1) -> LaunchPlan:
        self.bench.server.node_count = node_count
        flags = self.bench.home / "flags"
        flags.mkdir(exist_ok=True)
        plan = self.bench.plan("", node_count=node_count)
        command = (
            f"echo x >> {flags}/{plan.attempt_id}.started; "
            f"while [ ! -e {flags}/{plan.attempt_id}.end ]; do sleep 0.02; done"
        )
        plan = LaunchPlan(**{**plan.__dict__, "command": command})
        self.bench.plans.append(plan)
        return plan

    def end(self, plan: LaunchPlan) -> None:
        (self.bench.home / "flags" / f"{plan.attempt_id}.end").touch()

    def lose(self, plan: LaunchPlan, node: int) -> None:
        who = self.bench.who(plan, node)
        # Both at once, as a machine that is switched off loses them.
        os.kill(who["supervisor"]["pid"], signal.SIGSTOP)
        os.kill(who["pid"], signal.SIGKILL)
        os.kill(who["supervisor"]["pid"], signal.SIGKILL)

    def starts(self, plan: LaunchPlan) -> int:
        file = self.bench.home / "flags" / f"{plan.attempt_id}.started"

        def count() -> int:
            return len(file.read_text().split()) if file.exists() else 0

        self.bench.server.wait_until(lambda: count() >= plan.node_count)
        return count()

    def reopened(self) -> Executor:
        return LocalExecutor(self.bench.home, os.environ, devices=self.machine)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        yield made
        for plan in made.plans:
            made.wait_until_none_left(plan)


class TestLocalExecutor(ExecutorContract):
    @pytest.fixture
    def site(self, bench: Bench) -> Site:
        return LocalSite(bench)


class LocalUnderTest(EngineUnderTest):
    lacks: Mapping[str, str] = dict.fromkeys(
        ("describe", "release", "probe", "close"),
        "its nodes are slots of this machine, which compute/ counts, and end with their processes",
    )

    def __init__(self, home: Path) -> None:
        self._home = home

    def open(self) -> LocalExecutor:
        return LocalExecutor(self._home, os.environ)


class TestLocalEngine(EngineVerbsContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> EngineUnderTest:
        return LocalUnderTest(tmp_path)


@pytest.mark.slow
def test_many_launches_at_once_start_once(bench: Bench) -> None:
    site = LocalSite(bench)
    plan = site.plan()
    handles = []

    def launch() -> None:
        handles.append(LocalExecutor(bench.home, os.environ).launch(plan))

    threads = [threading.Thread(target=launch) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert site.starts(plan) == 1
    # Whichever worker a handle names, it answers for the one that runs.
    assert {bench.executor.status(handle).state for handle in handles} == {"running"}
    site.end(plan)
    bench.wait(handles[0])
    assert {bench.executor.status(handle).state for handle in handles} == {"exited"}
    time.sleep(0.1)
    assert site.starts(plan) == 1


def test_a_worker_deaf_to_the_stop_is_killed_after_the_grace(bench: Bench) -> None:
    plan = LocalSite(bench).plan()
    handle = bench.executor.launch(plan)
    bench.server.wait_for("ranks_started")
    os.kill(bench.who(plan)["pid"], signal.SIGSTOP)
    bench.executor.stop(handle, 0.3)
    bench.wait(handle)
    # Its recovery worker has reported it.
    assert bench.executor.status(handle).state == "exited"
    assert "was killed by signal 9" in bench.server.find("node_exited")["error"]["message"]


def test_a_node_is_not_over_while_its_supervisor_is_at_work(bench: Bench) -> None:
    site = LocalSite(bench)
    plan = site.plan()
    handle = bench.executor.launch(plan)
    bench.server.wait_for("ranks_started")
    supervisor = bench.who(plan)["supervisor"]["pid"]
    os.kill(supervisor, signal.SIGSTOP)
    site.end(plan)
    report = Path(plan.scratch) / "node-0" / "exit.json"
    worker = bench.who(plan)["pid"]
    bench.server.wait_until(lambda: report.exists() and not is_alive(worker))
    assert not bench.executor.status(handle).over
    # Somebody empties the folder all the same: nothing of it comes back.
    shutil.rmtree(plan.scratch)
    os.kill(supervisor, signal.SIGCONT)
    bench.server.wait_until(lambda: not is_alive(supervisor))
    assert not Path(plan.scratch).exists()


def test_ended_workers_are_no_zombies(bench: Bench) -> None:
    site = LocalSite(bench)
    plan = site.plan()
    handle = bench.executor.launch(plan)
    site.end(plan)
    bench.wait(handle)
    pid = handle.body["nodes"][0]["pid"]
    bench.server.wait_until(lambda: _has_ended(bench, handle, pid))


def test_what_a_rank_inherits(bench: Bench) -> None:
    executor = LocalExecutor(
        bench.home, environ={"PATH": os.environ["PATH"], "TORCHYARD_TOKEN": "x", "SITE": "here"}
    )
    plan = bench.plan("echo $SITE-$TORCHYARD_TOKEN-$HOME")
    bench.plans.append(plan)
    bench.wait(executor.launch(plan))
    assert bench.server.logs["user_logs/std_log.txt"] == b"here--\n"


def test_the_zip_is_made_once_and_holds_only_the_worker(tmp_path: Path) -> None:
    first = worker_zip(tmp_path)
    before = first.stat()
    assert worker_zip(tmp_path) == first
    assert first.stat().st_mtime_ns == before.st_mtime_ns
    assert [entry.name for entry in first.parent.iterdir()] == [first.name]
    with zipfile.ZipFile(first) as archive:
        names = archive.namelist()
    assert "torchyard/worker/__main__.pyc" in names
    roots = ("__main__.py", "torchyard/__init__.py", "torchyard/shared/", "torchyard/worker/")
    assert all(name.startswith(roots) for name in names)


@pytest.mark.slow
def test_two_at_once_make_one_zip(tmp_path: Path) -> None:
    made: list[Path] = []
    threads = [threading.Thread(target=lambda: made.append(worker_zip(tmp_path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 1
    assert zipfile.ZipFile(made[0]).testzip() is None


def _has_ended(bench: Bench, handle, pid: int) -> bool:  # type: ignore[no-untyped-def]
    bench.executor.status(handle)
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine({"TORCHYARD_DEVICES": "3", "TORCHYARD_DEVICE_LOCKS": str(tmp_path / "locks")})


def _on(bench: Bench, machine: Machine) -> LocalSite:
    bench.executor = LocalExecutor(bench.home, os.environ, devices=machine)
    site = LocalSite(bench)
    site.machine = machine
    return site


def _indexes(devices: list[LockedDevice]) -> list[int]:
    give_back(devices)
    return [device.device.index for device in devices]


def test_nodes_get_different_devices_for_as_long_as_they_live(
    bench: Bench, machine: Machine
) -> None:
    site = _on(bench, machine)
    plan = replace(site.plan(node_count=2), gpus_per_node=1)
    report = bench.home / "flags" / "seen"
    plan = replace(
        plan, command=f"echo $NODE_RANK=$CUDA_VISIBLE_DEVICES >> {report}; {plan.command}"
    )
    handle = bench.executor.launch(plan)
    site.starts(plan)
    assert sorted(report.read_text().split()) == ["0=0", "1=1"]
    devices = handle.body["devices"]
    assert [[device["index"] for device in node] for node in devices] == [[0], [1]]
    # Nobody else gets them, and this attempt is still started once.
    other = replace(site.plan(node_count=1), gpus_per_node=2)
    with pytest.raises(DevicesTaken) as refused:
        site.reopened().launch(other)
    assert not refused.value.begun
    assert bench.executor.launch(plan).body["devices"] == devices
    assert site.starts(plan) == 2
    assert _indexes(machine.take(1, "")) == [2] and machine.take(2, "") == []
    site.end(plan)
    bench.wait(handle)
    bench.server.wait_until(lambda: _indexes(machine.take(3, "")) == [0, 1, 2])


def test_a_device_stays_locked_while_a_rank_of_a_killed_worker_lives(
    bench: Bench, machine: Machine
) -> None:
    site = _on(bench, machine)
    plan = replace(site.plan(), gpus_per_node=3)
    handle = bench.executor.launch(plan)
    site.starts(plan)
    site.lose(plan, 0)
    bench.server.wait_until(lambda: bench.executor.status(handle).state == "lost")
    assert machine.take(1, "") == [], "its rank still runs"
    recovery = bench.executor.recover(plan)
    bench.wait(recovery)
    bench.server.wait_until(lambda: len(_indexes(machine.take(3, ""))) == 3)


def test_a_cpu_node_beside_gpus_is_given_none(bench: Bench, machine: Machine) -> None:
    site = _on(bench, machine)
    report = bench.home / "seen"
    plan = replace(bench.plan(f'echo "[$CUDA_VISIBLE_DEVICES]" > {report}'))
    bench.run(plan)
    assert report.read_text() == "[]\n"
    assert len(_indexes(machine.take(3, ""))) == 3 and site
