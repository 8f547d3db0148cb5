"""Every launcher starts its ranks, and they reach each other."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import required
from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.smoke, pytest.mark.timeout(600)]

REDUCE = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
model(torch.tensor([[float(rank)]])).sum().backward()
# Each rank's gradient is its input, and DistributedDataParallel averages them.
gradient = model.module.weight.grad.item()
total = torch.tensor([float(rank)])
dist.all_reduce(total)
# In one write: torchrun gives its ranks one output.
line = f"rank {rank} of {dist.get_world_size()}: sum {total.item()}, gradient {gradient}\\n"
os.write(1, line.encode())
dist.destroy_process_group()
os._exit(0)  # at its end, torch 2.13 now and then aborts a rank that went well
"""

MPI = """
from mpi4py import MPI

world = MPI.COMM_WORLD
print("rank", world.Get_rank(), "of", world.Get_size(), "sum", world.allreduce(world.Get_rank()))
"""

SDK = """
import sys
from torchyard import Client, command

with Client() as client:
    job = client.jobs.create(
        command(command="python train.py", code=sys.argv[1], environment=sys.argv[2])
    )
    done = job.wait()
    print(done.status, job.metrics()["loss"].to_dict())
"""


@pytest.mark.usefixtures("torch_environment")
def test_the_demo_trains_on_two_nodes_and_registers_its_model(yard: Yard, tmp_path: Path) -> None:
    """It exits with an error if the accuracy is below 0.95."""
    demo = subprocess.run(
        [str(Path(sys.executable).with_name("yard")), "demo"],
        env=yard.variables,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert demo.returncode == 0, demo.stdout + demo.stderr
    accuracy = re.search(r"^Test accuracy ([\d.]+)$", demo.stdout, re.M)
    name = re.search(r"job show -n (\S+)$", demo.stdout, re.M)
    assert accuracy and float(accuracy[1]) >= 0.95
    assert name
    yard.completed(name[1])
    assert sorted(yard.logs(name[1])) == [
        f"user_logs/std_log_process_{rank}.txt" for rank in (0, 1)
    ]

    yard("model", "download", "-n", "digits", "-p", str(tmp_path))
    (file,) = tmp_path.rglob("model.pt")
    artifact = yard.read(f"jobs/{name[1]}/files/outputs/model.pt")
    assert hashlib.sha256(file.read_bytes()).digest() == hashlib.sha256(artifact).digest()


@pytest.mark.usefixtures("torch_environment")
def test_a_project_that_init_lays_out_trains_as_it_is(yard: Yard, tmp_path: Path) -> None:
    yard("init", str(tmp_path / "project"))
    yard("job", "create", "-f", str(tmp_path / "project/job.yml"), "-n", "started", "--stream")
    assert yard.completed("started")["metrics"]["accuracy"] >= 0.9


def test_torchrun_in_a_command_joins_the_ranks_of_two_nodes(
    yard: Yard, write_job: Callable[..., str], torch_environment: dict[str, str]
) -> None:
    launch = (
        "torchrun --nnodes 2 --nproc_per_node 2 --node_rank $NODE_RANK "
        "--master_addr $MASTER_ADDR --master_port $MASTER_PORT reduce.py"
    )
    job = {
        "name": "torchrun",
        "command": launch,
        "environment": torch_environment,
        "environment_variables": {"OMP_NUM_THREADS": "1"},
        "distribution": {"type": "pytorch"},
        "resources": {"instance_count": 2},
    }
    yard("job", "create", "-f", write_job(job, reduce=REDUCE), "--stream")
    yard.completed("torchrun")
    log = b"".join(yard.logs("torchrun").values()).decode()
    ranks = sorted(re.findall(r"rank .*", log))
    assert ranks == [f"rank {rank} of 4: sum 6.0, gradient 1.5" for rank in range(4)]


def test_mpirun_starts_four_ranks_of_one_communicator(
    yard: Yard, write_job: Callable[..., str], tracking_environment: str
) -> None:
    required.open_mpi()
    job = {
        "name": "mpi",
        "command": "python ranks.py",
        "environment": tracking_environment,
        "distribution": {"type": "mpi", "process_count_per_instance": 2},
        "resources": {"instance_count": 2},
    }
    yard("job", "create", "-f", write_job(job, ranks=MPI), "--stream")
    yard.completed("mpi")
    logs = {
        f"user_logs/std_log_process_{rank}.txt": f"rank {rank} of 4 sum 6\n" for rank in range(4)
    }
    assert {path: log.decode() for path, log in yard.logs("mpi").items()} == logs


def test_tensorflow_jobs_get_the_addresses_of_all_workers(
    yard: Yard, write_job: Callable[..., str]
) -> None:
    job = {
        "name": "tensorflow",
        "command": "echo $TF_CONFIG",
        "distribution": {"type": "tensorflow", "worker_count": 2},
        "resources": {"instance_count": 2},
    }
    yard("job", "create", "-f", write_job(job), "--stream")
    yard.completed("tensorflow")
    configs = [json.loads(log) for _, log in sorted(yard.logs("tensorflow").items())]
    assert [config["task"] for config in configs] == [
        {"type": "worker", "index": index} for index in (0, 1)
    ]
    assert configs[0]["cluster"] == configs[1]["cluster"]
    assert len(set(configs[0]["cluster"]["worker"])) == 2


def test_the_python_sdk_submits_a_job_and_reads_its_metrics(
    yard: Yard, tmp_path: Path, tracking_environment: str
) -> None:
    (tmp_path / "train.py").write_text("import mlflow\nmlflow.log_metric('loss', 0.25)\n")
    script = subprocess.run(
        [sys.executable, "-c", SDK, str(tmp_path), tracking_environment],
        env=yard.variables,
        capture_output=True,
        text=True,
    )
    assert script.stdout == "Completed {0: 0.25}\n", script.stderr
