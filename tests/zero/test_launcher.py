"""The example by the ranks of a job, and by DeepSpeed's own launcher as a job's command."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from zero.ranks import launch_variables

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "deepspeed" / "src"
_SCRIPT = ["train.py", "--deepspeed", "--deepspeed_config", "ds_config.json", "--epochs", "3"]


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return Path(shutil.copytree(_EXAMPLE, tmp_path / "code"))


def start(command: list[str], folder: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo",
                   "OMP_NUM_THREADS": "1", **variables}  # fmt: skip
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PATH"] = f"{Path(command[0]).parent}:{environment['PATH']}"
    return subprocess.Popen(command, cwd=folder, env=environment, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip


def outputs(processes: list[subprocess.Popen[str]]) -> str:
    """What all of them print; each ends with 0."""
    try:
        printed = [process.communicate(timeout=900)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * len(processes), printed
    return "\n".join(printed)


def accuracy(printed: str) -> float:
    match = re.search(r"2 ranks, ZeRO-3, test accuracy (0\.\d+)", printed)
    assert match, printed
    return float(match[1])


def test_it_trains_by_the_variables_of_a_jobs_ranks(python: str, code: Path) -> None:
    ranks = [start([python, *_SCRIPT], code, **each) for each in launch_variables(2)]
    assert accuracy(outputs(ranks)) > 0.9
    assert (code / "outputs/model.pt").stat().st_size > 300_000


def test_it_trains_by_deepspeeds_launcher_on_one_node(python: str, code: Path) -> None:
    launcher = str(Path(python).with_name("deepspeed"))
    port = launch_variables(1)[0]["MASTER_PORT"]
    command = [launcher, "--num_gpus", "2", "--master_port", port, *_SCRIPT]
    assert accuracy(outputs([start([python, *command], code)])) > 0.9


def test_it_trains_by_a_launcher_on_each_node_without_ssh(python: str, code: Path) -> None:
    launcher = str(Path(python).with_name("deepspeed"))
    port = launch_variables(1)[0]["MASTER_PORT"]
    (code / "hostfile").write_text("node-0 slots=1\nnode-1 slots=1\n")
    nodes = [
        start(
            [python, launcher, "--hostfile", "hostfile", "--no_ssh", "--node_rank", str(node),
             "--master_addr", "127.0.0.1", "--master_port", port, *_SCRIPT],
            code,
        )
        for node in (0, 1)
    ]  # fmt: skip
    assert accuracy(outputs(nodes)) > 0.9


def test_a_hostfile_alone_asks_for_ssh(python: str, code: Path) -> None:
    launcher = str(Path(python).with_name("deepspeed"))
    (code / "hostfile").write_text("node-0.invalid slots=1\nnode-1.invalid slots=1\n")
    process = start([python, launcher, "--hostfile", "hostfile", *_SCRIPT], code)
    printed = process.communicate(timeout=300)[0]
    assert process.returncode != 0 and "ssh" in printed, printed
