"""Ranks started by a fake mpirun; end_to_end/test_mpi.py uses the real one."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventually import eventually
from torchyard.shared.failures import Failure
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.processes import Process
from torchyard.worker.launch import mpi, mpi_programs, mpi_remote_start
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.system import temporary
from worker import fake_open_mpi
from worker.bench import Bench

pytestmark = pytest.mark.slow

PRINT_ENVIRONMENT = f"{sys.executable} -c 'import json, os; print(json.dumps(dict(os.environ)))'"


def _plan(bench: Bench, command: str, programs: Path, **changes: Any) -> LaunchPlan:
    variables = changes.pop("environment_variables", {})
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return bench.plan(
        command,
        distribution="mpi",
        environment_variables={"PATH": path, **variables},
        **{"node_count": 2, "processes_per_node": 2, **changes},
    )


def test_every_rank_has_the_variables_of_open_mpi_and_torchyard(
    bench: Bench, tmp_path: Path
) -> None:
    programs = fake_open_mpi.put(tmp_path / "mpi")
    plan = _plan(bench, PRINT_ENVIRONMENT, programs, environment_variables={"PMIX_RANK": "mine"})
    bench.run(plan)
    assert [bench.exit(node)["exit_code"] for node in (0, 1)] == [0, 0]
    logs = [f"user_logs/std_log_process_{rank}.txt" for rank in range(4)]
    system = [f"system_logs/mpi-node-{node}.log" for node in (0, 1)]
    assert set(logs) <= set(bench.server.logs) <= {*logs, *system}
    environments = [json.loads(bench.server.logs[name]) for name in logs]
    for name in ("OMPI_COMM_WORLD_RANK", "AZ_BATCHAI_TASK_INDEX"):
        assert [environment[name] for environment in environments] == ["0", "1", "2", "3"]
    local_ranks = [environment["OMPI_COMM_WORLD_LOCAL_RANK"] for environment in environments]
    assert local_ranks == ["0", "1", "0", "1"]
    for name, value in (
        ("OMPI_COMM_WORLD_SIZE", "4"),
        ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
        ("AZ_BATCHAI_MPI_MASTER_NODE", "127.0.0.1"),
        ("PMIX_RANK", "mine"),
    ):
        assert {environment[name] for environment in environments} == {value}
    assert {environment["AZ_BATCH_MASTER_NODE"] for environment in environments} == {
        f"127.0.0.1:{environments[0]['MASTER_PORT']}"
    }
    memory = [environment["OMPI_MCA_btl_vader_backing_directory"] for environment in environments]
    assert memory[0] == memory[1] != memory[2] == memory[3]
    assert not any(Path(folder).exists() for folder in memory)
    for environment in environments:
        assert "UNRELATED" not in environment
        assert not any(name.startswith("TORCHYARD_MPI") for name in environment)
    bench.wait_until_none_left(plan)


def test_the_failed_rank_is_reported_instead_of_mpiruns_message(
    bench: Bench, tmp_path: Path
) -> None:
    programs = fake_open_mpi.put(tmp_path / "mpi")
    plan = _plan(bench, "[ $OMPI_COMM_WORLD_RANK = 2 ] && exit 7; sleep 311", programs)
    handle = bench.launch(plan)
    exited = bench.server.wait_for("rank_exited", 1)
    assert (exited["rank"], exited["exit_code"]) == (2, 7)
    bench.server.say_stop("failed")
    bench.wait(handle)
    error = bench.exit(1)["error"]
    assert (error["code"], error["message"]) == (
        "rank_failed",
        "rank 2 on node 1 exited with code 7",
    )
    assert bench.exit(0)["error"]["code"] == "stopped"
    bench.wait_until_none_left(plan)


def test_a_node_without_open_mpi_is_named_before_ranks_start(bench: Bench) -> None:
    plan = bench.plan(
        "echo never",
        distribution="mpi",
        processes_per_node=2,
        environment_variables={"PATH": "/nowhere"},
    )
    bench.run(plan)
    error = bench.exit()["error"]
    assert error["code"] == "mpi_missing"
    assert f"node 0 ({socket.gethostname()}) has no `mpirun`" in error["message"]
    assert "apt-get install openmpi-bin" in error["hint"]
    assert "ranks_started" not in bench.server.kinds()


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("mpirun (Open MPI) 5.0.3", "Open MPI 5.0.3"),
        ("HYDRA build details:\n    Version: 4.0", "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", "Intel MPI"),
        ("mpirun: something else", "not Open MPI (`mpirun: something else`)"),
    ],
)
def test_other_mpi_implementations_are_refused_by_name(
    tmp_path: Path, version: str, name: str
) -> None:
    programs = fake_open_mpi.put(tmp_path / "mpi", version=version)
    with pytest.raises(Failure) as refused:
        mpi_programs.find(str(programs), 3)
    assert refused.value.code == "mpi_unsupported"
    assert f"is {name};" in refused.value.message
    assert "node 3" in refused.value.message


def test_a_failing_mpirun_is_reported_with_its_output(bench: Bench, tmp_path: Path) -> None:
    first = "print('no slots for anybody', file=sys.stderr); sys.exit(213)"
    programs = fake_open_mpi.put(tmp_path / "mpi", first=first)
    plan = _plan(bench, "echo never", programs, node_count=1)
    bench.run(plan)
    error = bench.exit()["error"]
    assert (error["code"], error["message"]) == (
        "mpi_failed",
        "mpirun on node 0 exited with code 213 before all ranks had started",
    )
    assert error["details"]["log_lines"] == ["no slots for anybody"]
    assert error["details"]["consequence"]
    assert b"no slots" in bench.server.logs["system_logs/mpi-node-0.log"]
    bench.wait_until_none_left(plan)


def test_ranks_are_stopped_if_mpirun_is_killed(bench: Bench, tmp_path: Path) -> None:
    programs = fake_open_mpi.put(
        tmp_path / "mpi", first="open(__file__ + '.pid', 'w').write(str(os.getpid()))"
    )
    plan = _plan(bench, "sleep 312", programs, node_count=1)
    handle = bench.launch(plan)
    bench.server.wait_for("ranks_started")
    os.kill(int((programs / "mpirun.pid").read_text()), signal.SIGKILL)
    bench.wait(handle)
    error = bench.exit()["error"]
    assert error["message"] == "mpirun on node 0 was killed by signal 9 while its ranks ran"
    bench.wait_until_none_left(plan)


def test_a_stop_request_ends_an_mpirun_that_starts_no_ranks(bench: Bench, tmp_path: Path) -> None:
    programs = fake_open_mpi.put(
        tmp_path / "mpi", first="print('here', flush=True); time.sleep(313)"
    )
    plan = _plan(bench, "echo never", programs)
    handle = bench.launch(plan)
    bench.server.wait_until(lambda: (bench.node(plan) / "mpi.log").exists())
    bench.server.say_stop("cancel")
    bench.wait(handle)
    assert {bench.exit(node)["error"]["code"] for node in (0, 1)} == {"canceled"}
    bench.wait_until_none_left(plan)


def test_the_command_line_of_mpirun(tmp_path: Path) -> None:
    plan = LaunchPlan("a", 1, "j", "w", "e", "c", "http://x", "t", "r", "/s", "mpi", 3, 4)
    rendezvous = Rendezvous("10.1.0.5", 6105, ("10.1.0.5", "10.1.0.6", "10.1.0.9"), "eth0")
    words = mpi.mpirun("/usr/bin/mpirun", plan, "host-a", rendezvous, {})
    assert words[words.index("--host") + 1] == "host-a:4,127.100.0.1:4,127.100.0.2:4"
    assert words[words.index("-np") + 1] == "12"
    assert words[words.index("btl_tcp_if_include") + 1] == "10.1.0.0/28"
    chosen = {"OMPI_MCA_btl_tcp_if_exclude": "docker0", "OMPI_MCA_oob_tcp_if_include": "eth1"}
    words = mpi.mpirun("/usr/bin/mpirun", plan, "host-a", rendezvous, chosen)
    assert not {"btl_tcp_if_include", "oob_tcp_if_include"} & set(words)
    single_node = replace(rendezvous, hosts=("10.1.0.5",))
    words = mpi.mpirun("/usr/bin/mpirun", plan, "host-a", single_node, {})
    assert words[words.index("btl_tcp_if_include") + 1] == "10.1.0.4/31"
    local = replace(rendezvous, hosts=("127.0.0.1", "127.0.0.1", "127.0.0.1"))
    words = mpi.mpirun("/usr/bin/mpirun", plan, "host-a", local, {})
    assert words[words.index("oob_tcp_if_include") + 1] == "127.0.0.0/8"
    assert "btl_tcp_if_include" not in mpi.mpirun(
        "/usr/bin/mpirun", plan, "host-a", replace(rendezvous, hosts=("fd00::1", "fd00::2")), {}
    )


@pytest.mark.parametrize("node", [1, 2, 255, 256, 65535, 65536, 70000])
def test_mpiruns_name_of_a_node_is_converted_back(node: int) -> None:
    assert mpi.node_of(mpi.host_of(node)) == node
    socket.inet_aton(mpi.host_of(node))


def until(condition: Callable[[], bool]) -> None:
    eventually(condition, "what the launch is to come to")


def test_a_remote_start_is_accepted_only_from_the_same_attempt() -> None:
    woken: list[str] = []
    errands = mpi_remote_start.RemoteStart("secret", True, lambda: woken.append("now"))
    assert mpi_remote_start.request_start("127.0.0.1", errands.port, "guess", "touch /x") != ""
    with socket.create_connection(("127.0.0.1", errands.port)) as connection:
        connection.sendall(b"[]\n")
        assert connection.makefile("rb").read().strip() != b"taken"
    assert (errands.command, woken) == ("", [])
    assert mpi_remote_start.request_start("127.0.0.1", errands.port, "secret", "orted -x") == ""
    # It is answered first, then done, then the port is closed.
    until(lambda: woken == ["now"])
    until(
        lambda: (
            "refused"
            in mpi_remote_start.request_start("127.0.0.1", errands.port, "secret", "x").lower()
        )
    )
    assert (errands.command, woken) == ("orted -x", ["now"])


def test_shared_memory_is_removed_with_the_node(tmp_path: Path) -> None:
    folder = temporary.shared_memory(tmp_path)
    assert folder == temporary.shared_memory(tmp_path)
    (folder / "vader_segment.x").write_bytes(b"left")
    temporary.forget(tmp_path)
    assert not folder.exists() or folder == tmp_path / "tmp"


def test_a_single_process_runs_without_mpirun(bench: Bench) -> None:
    plan = bench.plan(
        f"PATH={os.environ['PATH']}; {PRINT_ENVIRONMENT}",
        distribution="mpi",
        environment_variables={"PATH": "/nowhere"},
    )
    bench.run(plan)
    environments = json.loads(bench.server.logs["user_logs/std_log.txt"])
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    assert [environments[f"OMPI_COMM_WORLD_{name}"] for name in names] == ["0", "1", "0", "1"]


def test_an_unexpected_rank_fails_the_node(bench: Bench, tmp_path: Path) -> None:
    """A shim may report a rank of another node, or none."""
    environments = "{**os.environ, 'OMPI_COMM_WORLD_RANK': '9'}"
    run = f"subprocess.run(sys.argv[-3:], env={environments})"
    first = f"if '-np' in sys.argv: sys.exit({run}.returncode)"
    programs = fake_open_mpi.put(tmp_path / "mpi", first=first)
    plan = _plan(bench, "echo never", programs, node_count=1)
    bench.run(plan)
    error = bench.exit()["error"]
    assert error["message"] == "Open MPI started rank 9 on node 0"
    assert not [process for process in bench.left(plan) if isinstance(process, Process)]
