"""What a job file says of its launch: MPI and TensorFlow."""

from __future__ import annotations

from typing import Any

import pytest

from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import distribution as spec_distribution
from torchyard.jobs.spec import job_spec

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
    assert spec_distribution.launcher_in(command) == launcher


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
    ("counts", "nodes", "named"),
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
    counts: dict[str, int], nodes: int, named: str
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        job_spec.read(_job({"type": "tensorflow", **counts}, nodes))
    assert named in str(refused.value)
    assert refused.value.at[0] == "distribution"
    assert refused.value.hint
