"""mpi4py over Open MPI: ranks on two nodes, and every way in which one of them ends badly."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import required
from end_to_end import namespaces
from end_to_end.namespaces import Site
from end_to_end.yard_under_test import REPOSITORY, Yard, wait_until
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Status
from torchyard.jobs.requests import submission
from torchyard.workspaces.types import Identity, TokenKind

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(300)]

# Each rank passes the barrier, then one of them ends as the arguments say.
ENDS = """
import os, signal, sys, time
from mpi4py import MPI

world = MPI.COMM_WORLD
rank = world.Get_rank()
how, who = sys.argv[1], int(sys.argv[2])
world.Barrier()
print(f"rank {rank} is through", flush=True)
if how == "caught":
    try:
        sys.exit(4)
    except SystemExit:
        time.sleep(1 if rank == who else 0)
        sys.exit(0)
if how == "saves":
    def save(*_):
        print("sum at the end", world.allreduce(rank), flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
if rank == who:
    if how == "raises":
        raise ValueError("the batch is empty")
    if how == "exits":
        sys.exit(3)
    if how == "hard":
        os._exit(5)
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "aborts":
        world.Abort(7)
while how in ("sleeps", "saves"):
    time.sleep(0.1)
world.recv(source=(who + 1) % 4 if rank == who else who)
"""


@pytest.fixture(scope="module", autouse=True)
def open_mpi() -> None:
    required.open_mpi()


@pytest.fixture
def submit(yard: Yard, write_job: Callable[..., str]) -> Callable[..., None]:
    """Submit the script above on 2 nodes of 2 processes; `changes` are of the job."""

    def submit(name: str, how: str, who: int = 0, **changes: Any) -> None:
        job = {
            "name": name,
            "command": f"python ends.py {how} {who}",
            "environment": {"pip_requirements": str(REPOSITORY / "examples/mpi/requirements.txt")},
            "distribution": {"type": "mpi", "process_count_per_instance": 2},
            "resources": {"instance_count": 2},
            **changes,
        }
        yard("job", "create", "-f", write_job(job, ends=textwrap.dedent(ENDS)))

    return submit


def _all_are_through(yard: Yard, name: str) -> None:
    def through() -> bool:
        return b"".join(yard.logs(name).values()).count(b"is through") == 4

    wait_until(through, 120, f"the ranks of {name} have met")


def _nothing_is_left(yard: Yard) -> None:
    def left() -> list[str]:
        words = ("mpirun", "orted", "mpi_shim", "ends.py")
        return [process for process in yard.processes() if any(word in process for word in words)]

    wait_until(lambda: not left(), 60, "every process of Open MPI has ended")
    # A supervisor removes what a killed worker left after it has reported the end.
    of_mine = f"yard-{os.getuid()}-*/vader*"
    wait_until(lambda: not list(Path("/dev/shm").glob(of_mine)), 60, "shared memory is given back")


def test_four_ranks_of_the_example_make_one_communicator(yard: Yard) -> None:
    yard("job", "create", "-f", "examples/mpi/job.yml", "--set", "name=mpi-example")
    yard.completed("mpi-example")
    logs = yard.logs("mpi-example")
    assert sorted(logs) == [f"user_logs/std_log_process_{rank}.txt" for rank in range(4)]
    ranks = [dict(re.findall(r"^(\w+)=(.*)$", logs[path].decode(), re.M)) for path in sorted(logs)]
    for name, values in {
        "OMPI_COMM_WORLD_RANK": "0123",
        "OMPI_COMM_WORLD_LOCAL_RANK": "0101",
        "OMPI_COMM_WORLD_SIZE": "4444",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2222",
        "AZUREML_CR_NODE_RANK": "0011",
        "AZ_BATCHAI_TASK_INDEX": "0123",
    }.items():
        assert [of[name] for of in ranks] == list(values), name
    (master,) = {of["AZ_BATCH_MASTER_NODE"] for of in ranks}
    assert {f"{of['AZ_BATCHAI_MPI_MASTER_NODE']}:{of['MASTER_PORT']}" for of in ranks} == {master}
    assert {of["AZUREML_RUN_ID"] for of in ranks} == {"mpi-example"}
    for rank, path in enumerate(sorted(logs)):
        assert f"rank {rank} of 4: the ranks sum to 6" in logs[path].decode()
    _nothing_is_left(yard)


@pytest.mark.parametrize(
    ("how", "who", "exit_code", "message"),
    [
        ("raises", 2, 1, "rank 2 on node 1 exited with code 1: ValueError: the batch is empty"),
        ("exits", 3, 3, "rank 3 on node 1 exited with code 3: sys.exit"),
        ("hard", 0, 5, "rank 0 on node 0 exited with code 5"),
        ("killed", 1, 137, "rank 1 on node 0 was killed by signal 9 (SIGKILL)"),
        ("aborts", 2, 7, "rank 2 on node 1 exited with code 7"),
    ],
)
def test_the_rank_that_ended_badly_is_the_cause(
    yard: Yard,
    submit: Callable[..., None],
    how: str,
    who: int,
    exit_code: int,
    message: str,
) -> None:
    submit(f"mpi-{how}", how, who)
    job = yard.wait(f"mpi-{how}")
    assert (job["status"], job["exit_code"]) == ("Failed", exit_code), job["error"]
    assert job["error"]["message"].startswith(message)
    _nothing_is_left(yard)


def test_a_sys_exit_that_was_caught_ends_nothing(yard: Yard, submit: Callable[..., None]) -> None:
    submit("mpi-caught", "caught", 1)
    yard.completed("mpi-caught")


def test_ranks_of_a_node_share_its_memory_and_others_take_the_network(
    yard: Yard, submit: Callable[..., None]
) -> None:
    submit("mpi-ways", "caught", 1, environment_variables={"OMPI_MCA_btl_base_verbose": "30"})
    yard.completed("mpi-ways")
    for path, log in yard.logs("mpi-ways").items():
        rank = int(path[-5])
        ways = re.findall(r"Using (\w+) btl for send to \[\[\d+,1\],(\d)\]", log.decode())
        peers = {int(peer) for way, peer in ways if way == "vader"}
        far = {int(peer) for way, peer in ways if way == "tcp"}
        assert peers == {rank ^ 1}
        # A way is made when a rank has something to send.
        assert far <= {0, 1, 2, 3} - {rank, rank ^ 1}
        assert set(re.findall(r"Found match: \S+ \((\w+)\)", log.decode())) == {"lo"}


def test_a_worker_that_is_killed_brings_all_nodes_down(
    yard: Yard, submit: Callable[..., None]
) -> None:
    submit("mpi-worker", "sleeps")
    _all_are_through(yard, "mpi-worker")
    os.kill(yard.worker_of("mpi-worker", 1)["pid"], signal.SIGKILL)
    job = yard.wait("mpi-worker")
    assert job["error"]["message"].startswith("the worker of node 1 was killed by signal 9")
    _nothing_is_left(yard)


def test_ranks_may_still_talk_while_a_canceled_job_ends(
    yard: Yard, submit: Callable[..., None]
) -> None:
    submit("mpi-cancel", "saves")
    _all_are_through(yard, "mpi-cancel")
    yard("job", "cancel", "-n", "mpi-cancel")
    assert yard.wait("mpi-cancel")["status"] == "Canceled"
    logs = yard.logs("mpi-cancel")
    assert all(b"sum at the end 6" in log for log in logs.values()), logs
    _nothing_is_left(yard)


def test_a_time_limit_ends_mpirun_too(yard: Yard, submit: Callable[..., None]) -> None:
    # Long enough for mpirun to start all ranks on a busy machine.
    submit("mpi-limit", "sleeps", limits={"timeout": 15})
    started = time.monotonic()
    job = yard.wait("mpi-limit")
    message = job["error"]["message"]
    assert message.startswith("the job ran longer than its limit of 15 s") and "rank 3: " in message
    assert time.monotonic() - started > 15
    _nothing_is_left(yard)


def test_a_node_without_open_mpi_is_named(yard: Yard, submit: Callable[..., None]) -> None:
    submit("mpi-none", "sleeps", environment_variables={"PATH": "/nowhere"})
    error = yard.wait("mpi-none")["error"]
    assert error["code"] == "mpi_missing"
    assert re.match(r"node [01] \(.+\) has no `mpirun`", error["message"])
    assert "apt-get install openmpi-bin" in error["hint"]
    assert not any(yard.logs("mpi-none").values())


def test_a_command_that_calls_mpirun_is_refused(yard: Yard, write_job: Callable[..., str]) -> None:
    job = {
        "command": "mpirun -np 4 python ends.py",
        "distribution": {"type": "mpi", "process_count_per_instance": 2},
        "resources": {"instance_count": 2},
    }
    with yard.start(
        "job",
        "create",
        "-f",
        write_job(job),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        output = process.stdout.read().decode()
    assert process.returncode == 2
    assert "the command starts `mpirun`" in output
    assert "4 processes (2 nodes of 2 each)" in output


@pytest.mark.skipif(bool(namespaces.why_not()), reason=namespaces.why_not() or "they can be made")
@pytest.mark.filterwarnings("ignore")
def test_nodes_on_a_wire_need_no_ssh(tmp_path: Path, new_url: Callable[[], str]) -> None:
    """Two addresses and no loopback in common: daemons and messages go over the wire."""
    for folder in ("site", "home"):
        (tmp_path / folder).mkdir()
    listed = (REPOSITORY / "examples/mpi/requirements.txt").read_text().split()
    program = textwrap.dedent("""
        import os, socket
        from mpi4py import MPI
        total = MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.Get_rank())
        print(os.environ["AZ_BATCHAI_MPI_MASTER_NODE"], os.environ["AZUREML_CR_NODE_RANK"], total)
    """)
    with (
        Site(tmp_path / "site") as site,
        namespaces.serving(site, tmp_path / "home", new_url) as parts,
    ):
        document = {
            "command": f"python - <<'END'\n{program}\nEND",
            "environment": {"pip_requirements": listed},
            "distribution": {"type": "mpi", "process_count_per_instance": 2},
            "resources": {"instance_count": 2},
        }
        me = Identity("root", TokenKind.PERSON)
        job, _ = submission.create(parts.services, "default", document, me)

        def ended() -> bool:
            return actions.get(parts.services, "default", job.name).status.ended

        wait_until(ended, 240, "the job has ended")
        job = actions.get(parts.services, "default", job.name)
        paths = [file.path for file in artifacts.list_of(parts.services, job)]
        logs = {
            path: artifacts.file(parts.services, job, path).read_text() for path in sorted(paths)
        }
        assert job.status is Status.COMPLETED, (job.error, logs)
        lines = [text.split() for path, text in logs.items() if "std_log" in path]
        master = site.addresses[0]
        assert lines == [[master, node, "6"] for node in "0011"]
