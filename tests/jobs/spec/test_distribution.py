"""What a job file says of its launch: MPI and TensorFlow."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import command_launchers, job_spec

GOOD = {"command": "python train.py", "environment": "python"}


def _job(distribution: dict[str, Any], nodes: int = 1, **rest: Any) -> dict[str, Any]:
    return {
        **GOOD,
        "distribution": distribution,
        "resources": {"instance_count": nodes},
        **rest,
    }


def test_mpi_has_as_many_processes_on_each_node() -> None:
    read = job_spec.read(_job({"type": "Mpi", "process_count_per_instance": 2}, 2))
    assert (read.distribution, read.process_count_per_instance, read.instance_count) == (
        "mpi",
        2,
        2,
    )
    assert read.notices == ()


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("mpirun -np 2 python train.py", "mpirun"),
        ("pip install x && exec /opt/openmpi/bin/mpiexec python train.py", "mpiexec"),
        ("A=1 B=2 mpirun.openmpi python train.py", "mpirun.openmpi"),
        ("cd src\nhorovodrun -np 4 python train.py", "horovodrun"),
        ("if true; then mpirun python x.py; fi", "mpirun"),
        ("x=$(mpirun hostname)", "mpirun"),
        ("python train.py --launcher mpirun", ""),
        ("echo 'a; mpirun b'", ""),
        ("python mpirun.py", ""),
        ("which mpirun; python train.py  # mpirun does it", ""),
    ],
)
def test_a_command_that_launches_by_itself_is_known(command: str, launcher: str) -> None:
    assert command_launchers.mpi_launcher(command) == launcher


def test_mpi_in_mpi_is_refused_with_the_processes_that_it_would_be() -> None:
    job = _job({"type": "mpi", "process_count_per_instance": 2}, 2, command="mpirun python x.py")
    with pytest.raises(InvalidSpec) as refused:
        job_spec.read(job)
    assert refused.value.at == ("command",)
    assert "each of its 4 processes (2 nodes of 2 each)" in str(refused.value)
    job_spec.read({**job, "distribution": {"type": "pytorch"}})


@pytest.mark.parametrize(
    ("counts", "nodes", "processes", "servers"),
    [
        ({}, 3, 1, 0),
        ({"worker_count": 4}, 2, 2, 0),
        ({"worker_count": 2, "parameter_server_count": 2}, 2, 2, 2),
        ({"worker_count": 2, "parameter_server_count": 1}, 3, 1, 1),
        ({"worker_count": 1}, 1, 1, 0),
    ],
)
def test_tasks_of_tensorflow_are_spread_evenly(
    counts: dict[str, int], nodes: int, processes: int, servers: int
) -> None:
    read = job_spec.read(_job({"type": "tensorflow", **counts}, nodes))
    assert (read.distribution, read.process_count_per_instance) == ("tensorflow", processes)
    assert read.parameter_servers == servers


@pytest.mark.parametrize(
    ("counts", "nodes", "message"),
    [
        ({"worker_count": 3}, 2, "3 tasks of TensorFlow (3 workers, 0 parameter servers)"),
        ({"worker_count": 1}, 2, "over 2 nodes"),
        ({"parameter_server_count": 1}, 2, "3 tasks"),
        ({"worker_count": 0}, 1, "`worker_count` must be a whole number of 1 or more"),
        ({"parameter_server_count": -1}, 1, "`parameter_server_count` must be"),
        ({"process_count_per_instance": 2}, 1, "`process_count_per_instance` is not a key of"),
    ],
)
def test_tasks_that_do_not_fit_the_nodes_are_refused(
    counts: dict[str, int], nodes: int, message: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        job_spec.read(_job({"type": "tensorflow", **counts}, nodes))
    assert message in str(refused.value)
    assert refused.value.at[0] == "distribution"
    assert refused.value.hint


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nproc_per_node 2 train.py",
        "torchrun --standalone --nproc-per-node=2 train.py",
        "torchrun --nnodes=1 train.py",
        "pip install x && A=1 exec .venv/bin/torchrun train.py",
        "cd src && python -u -m torch.distributed.run --nproc_per_node 2 train.py",
        "python3.10 -m torch.distributed.launch train.py",
    ],
)
def test_torchrun_that_does_not_know_of_the_other_nodes_is_a_notice(command: str) -> None:
    for distribution in ({}, {"type": "pytorch"}):
        (notice,) = job_spec.read(_job(distribution, 2, command=command)).notices
        assert "`torchrun` on each of 2 nodes" in notice and "--nnodes 2" in notice
    assert job_spec.read(_job({}, 1, command=command)).notices == ()


@pytest.mark.parametrize(
    "command",
    [
        "torchrun --nnodes 2 --node_rank $NODE_RANK train.py",
        "torchrun \\\n  --nnodes=1:4 \\\n  train.py",
        "torchrun --nnodes $NODES train.py",
        "torchrun --nnodes 2 --rdzv_endpoint=$MASTER_ADDR:$MASTER_PORT train.py",
        'torchrun --nnodes 2 --rdzv_endpoint "${MASTER_ADDR}:29500" train.py',
        "python -m torch.distributed.launch --use_env --nnodes 2 train.py",
        "mpirun -np 4 --host a,b python train.py",
        "pip install torchrun; python train.py",
        "python -m train torch.distributed.run",
        "python train.py -m torch.distributed.run",
        "echo 'torchrun train.py'; python train.py # torchrun",
    ],
)
def test_torchrun_that_knows_of_them_and_other_commands_give_no_notice(command: str) -> None:
    assert job_spec.read(_job({}, 2, command=command)).notices == ()


@pytest.mark.parametrize(
    ("option", "address", "own"),
    [
        ('--rdzv_endpoint="192.0.2.1:1234"', "192.0.2.1:1234", "$MASTER_ADDR:$MASTER_PORT"),
        ("--rdzv-endpoint gpu-server-0:29500", "gpu-server-0:29500", "$MASTER_ADDR:$MASTER_PORT"),
        ("--rdzv_endpoint=localhost:0", "localhost:0", "$MASTER_ADDR:$MASTER_PORT"),
        ("--master_addr '[fd00::1]'", "[fd00::1]", "$MASTER_ADDR`"),
    ],
)
def test_torchrun_whose_nodes_meet_at_a_fixed_address_is_a_notice(
    option: str, address: str, own: str
) -> None:
    command = f"torchrun --nnodes=1:3 --rdzv_backend=c10d {option} train.py"
    (notice,) = job_spec.read(_job({}, 2, command=command)).notices
    assert f"`{address}`" in notice and own in notice
    assert job_spec.read(_job({}, 1, command=command)).notices == ()


def test_torchrun_in_each_of_several_processes_is_a_notice() -> None:
    distribution = {"type": "pytorch", "process_count_per_instance": 2}
    for nodes in (1, 2):
        job = _job(distribution, nodes, command="torchrun --nnodes 2 train.py")
        (notice,) = job_spec.read(job).notices
        assert "starts the command 2 times on each node" in notice
        assert "remove `process_count_per_instance`" in notice
