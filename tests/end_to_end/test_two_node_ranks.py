"""The ranks of a job know each other: per process and per node."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from end_to_end.yard_under_test import Yard

pytestmark = [pytest.mark.end_to_end, pytest.mark.timeout(900)]

SHOW_RANK = """
import os
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(os.environ["RANK"]), 1.0])
dist.all_reduce(total)
names = "RANK LOCAL_RANK NODE_RANK WORLD_SIZE MASTER_ADDR MASTER_PORT".split()
print(*(f"{name}={os.environ[name]}" for name in names), f"sum={total.tolist()}")
dist.destroy_process_group()
"""


def test_eight_ranks_on_two_nodes_reduce_together(
    yard: Yard, write_job: Callable[..., str], torch_environment: dict[str, str]
) -> None:
    job = {
        "name": "eight-ranks",
        "command": "python show_rank.py",
        "environment": torch_environment,
        "environment_variables": {"OMP_NUM_THREADS": "1"},
        "distribution": {"type": "pytorch", "process_count_per_instance": 4},
        "resources": {"instance_count": 2},
    }
    yard("job", "create", "-f", write_job(job, show_rank=SHOW_RANK))
    yard.completed("eight-ranks", timeout_s=420)

    logs = yard.logs("eight-ranks")
    assert sorted(logs) == [f"user_logs/std_log_process_{rank}.txt" for rank in range(8)]
    ranks = [dict(re.findall(r"(\w+)=([^ \n]+)", log.decode())) for _, log in sorted(logs.items())]
    assert [int(of["RANK"]) for of in ranks] == list(range(8))
    assert [int(of["LOCAL_RANK"]) for of in ranks] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [int(of["NODE_RANK"]) for of in ranks] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert {of["WORLD_SIZE"] for of in ranks} == {"8"}
    assert len({(of["MASTER_ADDR"], of["MASTER_PORT"]) for of in ranks}) == 1
    for log in logs.values():
        assert "sum=[28.0, 8.0]" in log.decode()


def test_two_torchrun_jobs_at_once_do_not_collide(
    yard: Yard, torch_environment: dict[str, str]
) -> None:
    names = ["torchrun-a", "torchrun-b"]
    files = ["examples/torchrun/job.yml", "examples/torchrun/launch.yml"]
    for name, file in zip(names, files, strict=True):
        requirements = f"environment.pip_requirements={torch_environment['pip_requirements']}"
        yard("job", "create", "-f", file, "--set", f"name={name}", "--set", requirements)
    for name in names:
        yard.completed(name, timeout_s=420)
        log = b"".join(yard.logs(name).values()).decode()
        ranks = re.findall(r"^RANK (\d) LOCAL_RANK (\d) GROUP_RANK (\d) WORLD_SIZE 4$", log, re.M)
        assert sorted(ranks) == [tuple(of) for of in ("000", "110", "201", "311")]
        assert "sum of the ranks 6" in log
        accuracy = re.search(r"test accuracy ([\d.]+)", log)
        assert accuracy and float(accuracy[1]) >= 0.9
