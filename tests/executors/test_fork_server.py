"""The process that workers are forked from: killed, stopped, ended with its server."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from eventually import eventually
from torchyard.executors.bundle import worker_zip
from torchyard.executors.fork_server import ForkServer
from torchyard.executors.local import LocalExecutor
from torchyard.shared import processes
from torchyard.worker.system import mounts
from torchyard.worker.system.mounts import Mount
from worker.bench import Bench, bench_in, is_alive


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with bench_in(tmp_path) as made:
        yield made


def fork_server_of(bench: Bench) -> int:
    """The parent of the supervisor that was started last."""
    supervisor = processes.read(bench.who(bench.plans[-1])["supervisor"]["pid"])
    assert supervisor is not None
    return supervisor.parent


def started(bench: Bench) -> Path:
    """A job that waits for the file, with its ranks running."""
    go = bench.home / f"go-{len(bench.plans)}"
    bench.launch(bench.plan(f"until [ -e {go} ]; do sleep 0.02; done"))
    bench.server.wait_for("ranks_started")
    return go


def test_its_workers_go_on_when_it_is_killed(bench: Bench) -> None:
    go = started(bench)
    fork_server = fork_server_of(bench)
    os.kill(fork_server, signal.SIGKILL)
    go.touch()
    assert bench.server.wait_for("node_exited")["exit_code"] == 0


def test_one_that_was_killed_is_replaced_with_the_next_worker(bench: Bench) -> None:
    bench.run(bench.plan("true"))
    go = started(bench)
    first = fork_server_of(bench)
    os.kill(first, signal.SIGKILL)
    go.touch()
    bench.run(bench.plan("true"))
    assert bench.exit()["exit_code"] == 0
    assert not is_alive(first)


def test_its_workers_are_no_zombies(bench: Bench) -> None:
    go = started(bench)
    supervisor = bench.who(bench.plans[-1])["supervisor"]["pid"]
    go.touch()
    eventually(lambda: processes.read(supervisor) is None, "the supervisor to be reaped")


@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_with_its_executor_and_its_workers_go_on(bench: Bench, stopped: bool) -> None:
    go = started(bench)
    fork_server = fork_server_of(bench)
    if stopped:
        os.kill(fork_server, signal.SIGSTOP)
    bench.executor = LocalExecutor(bench.home, os.environ)
    gc.collect()
    eventually(lambda: not is_alive(fork_server), "the fork server to end")
    go.touch()
    assert bench.server.wait_for("node_exited")["exit_code"] == 0


def environment_of(bench: Bench) -> Path:
    if os.geteuid() != 0:
        pytest.skip("others can't write to it anyway")
    if reason := mounts.why_not([Mount(str(bench.home), str(bench.home))]):
        pytest.skip(f"this machine allows no mounts: {reason}")
    environment = bench.home / "environment"
    (environment / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (environment / "bin").mkdir()
    (environment / "pyvenv.cfg").touch()
    return environment


def test_the_mount_namespace_of_roots_worker_protects_it_and_its_ranks(bench: Bench) -> None:
    environment = environment_of(bench)
    namespace, go = bench.home / "namespace", bench.home / "go"
    command = f"readlink /proc/self/ns/mnt > {namespace}; until [ -e {go} ]; do sleep 0.02; done"
    bench.launch(bench.plan(command, environment=str(environment)))
    eventually(lambda: namespace.exists() and namespace.read_text(), "the rank's namespace")
    who = bench.who(bench.plans[-1])
    worker, supervisor = Path(f"/proc/{who['pid']}"), Path(f"/proc/{who['supervisor']['pid']}")
    assert (worker / "ns/mnt").readlink() == Path(namespace.read_text().strip())
    assert (supervisor / "ns/mnt").readlink() == Path("/proc/self/ns/mnt").readlink()
    assert mounts.is_read_only(f"{worker}/root{environment}")
    assert not mounts.is_read_only(f"{supervisor}/root{environment}")
    go.touch()
    assert bench.server.wait_for("node_exited")["exit_code"] == 0


def test_root_can_not_write_to_the_environment_from_a_worker(bench: Bench) -> None:
    environment = environment_of(bench)
    bench.run(bench.plan(f"echo x > {environment}/new", environment=str(environment)))
    assert bench.exit()["exit_code"] != 0
    assert b"Read-only file system" in bench.server.logs["user_logs/std_log.txt"]
    assert not (environment / "new").exists()


def test_one_that_was_stopped_is_replaced(bench: Bench) -> None:
    server = ForkServer(sys.executable, os.environ, timeout_s=0.05)

    def run() -> int:
        """See a job through; the pid of the fork server that its worker came from."""
        go = bench.home / f"go-{len(bench.plans)}"
        plan = bench.plan(f"until [ -e {go} ]; do sleep 0.02; done")
        bench.plans.append(plan)
        bench.server.events.clear()
        bench.node(plan).mkdir(parents=True)
        file = bench.node(plan).parent / "plan.json"
        file.write_text(plan.to_json())
        program, log = worker_zip(bench.home), bench.node(plan) / "worker.log"
        worker = processes.read(server.fork(program, file, 0, log, [])["pid"])
        assert worker is not None
        go.touch()
        assert bench.server.wait_for("node_exited")["exit_code"] == 0
        bench.wait_until_none_left(plan)
        return worker.parent

    first = run()
    os.kill(first, signal.SIGSTOP)
    assert run() != first
    assert not is_alive(first)
