"""Workers, slurmd, controller and server end at random: no job is lost, no process is left."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from end_to_end.yard_under_test import Yard, wait_until
from slurm.slurm_cluster import SlurmCluster
from slurm.test_jobs_on_slurm import create, has_printed

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(3600)]
ONE_DATABASE = True
_ROUNDS = int(os.environ.get("TORCHYARD_KILL_ROUNDS", "5"))
_COUNTS = """\
import time
print("begun", flush=True)
for number in range(30):
    time.sleep(0.1)
print("counted", flush=True)
"""


def kill_worker(slurm: SlurmCluster, yard: Yard, chance: random.Random) -> None:
    """A worker, its supervisor, its starter, srun or slurmstepd."""
    pids = slurm.processes_of_jobs()
    if pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(sorted(pids)), signal.SIGKILL)


def kill_slurmd(slurm: SlurmCluster, yard: Yard, chance: random.Random) -> None:
    node = chance.choice(("n1", "n2"))
    slurm.kill(node)
    time.sleep(chance.random())
    slurm.start_node(node)


def restart_controller(slurm: SlurmCluster, yard: Yard, chance: random.Random) -> None:
    # Killed, it forgets what began in the last seconds, and drains the nodes where that still runs.
    slurm.stop("slurmctld")
    time.sleep(chance.random())
    slurm.start_controller()


def kill_server(slurm: SlurmCluster, yard: Yard, chance: random.Random) -> None:
    yard.kill_server()
    yard("server", "start")


_KILLS = (kill_worker, kill_slurmd, restart_controller, kill_server)


def test_no_job_is_lost_and_no_process_is_left(
    yard: Yard, slurm: SlurmCluster, write_job: Callable[..., str], tmp_path: Path
) -> None:
    seed = int(os.environ.get("TORCHYARD_KILL_SEED", str(random.randrange(1 << 30))))
    print("seed", seed)
    chance = random.Random(seed)
    retry = {"max_attempts": 5, "backoff_s": 0}
    file = write_job(_COUNTS, resources={"instance_count": 2}, torchyard={"retry": retry})
    for number in range(_ROUNDS):
        name = create(yard, file)
        wait_until(lambda: has_printed(yard, name, b"begun"), 60, "it has begun")  # noqa: B023
        time.sleep(chance.random() * 2)
        kill = _KILLS[number % len(_KILLS)] if number < len(_KILLS) else chance.choice(_KILLS)
        print("round", number, kill.__name__)
        kill(slurm, yard, chance)
        job = yard.completed(name, 180)
        assert job["exit_code"] == 0
        assert sum(b"counted" in log for log in yard.logs(name).values()) == 2
    slurm.wait_until(lambda: not slurm.jobs(), "nothing is left in Slurm", 90)
    wait_until(lambda: not slurm.processes_of_jobs(), 30, "nothing is left on the nodes")
    assert not list((slurm.folder / "nodes" / "scratch").iterdir())
