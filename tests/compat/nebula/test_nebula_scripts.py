"""Scripts written for Nebula, in processes of their own: two ranks, and kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

Start = Callable[..., "subprocess.Popen[str]"]

GROUP = """
torch.distributed.init_process_group(
    "gloo", init_method="file://" + os.environ["RENDEZVOUS"],
    rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]),
)
rank = torch.distributed.get_rank()
nm.init(STORE, persistent_time_interval=0)
"""
SAVING = """
nm.init(STORE, persistent_time_interval=0.02, num_of_version_in_retention=2)
for step in range(10_000):
    checkpoint = nm.Checkpoint(f"step-{step}", -2)
    for name in ("model", "optimizer", "sampler"):
        checkpoint.save(name, {"step": step, "weights": torch.full((200_000,), float(step))})
    checkpoint.commit()
    print(step)
"""


def ranks_of(start: Start, tmp_path: Path, script: str) -> list[subprocess.Popen[str]]:
    rendezvous = str(tmp_path / "meeting")
    return [
        start(
            GROUP + textwrap.dedent(script), RANK=str(rank), WORLD_SIZE="2", RENDEZVOUS=rendezvous
        )
        for rank in ("0", "1")
    ]


def test_a_checkpoint_of_two_ranks_is_whole_when_both_have_saved(
    start: Start, tmp_path: Path, nm: Any
) -> None:
    script = """
    checkpoint = nm.Checkpoint("counted", 2)
    if rank == 0:
        checkpoint.save("rank0", torch.zeros(3))
        assert nm.get_checkpoint(tag="counted") is None
    torch.distributed.barrier()
    if rank == 1:
        checkpoint.save("rank1", torch.ones(3))
    nm.list_checkpoints()
    torch.distributed.barrier()
    assert nm.get_latest_checkpoint().load("rank1").sum() == 3
    checkpoint = nm.Checkpoint("committed", -2)
    torch.distributed.barrier()
    checkpoint.save(f"rank{rank}", rank)
    torch.distributed.barrier()
    if rank == 0:
        assert nm.get_checkpoint(tag="counted") is not None
        checkpoint.commit()
    else:
        assert nm.get_checkpoint(tag="committed") is None
        checkpoint.commit()
    assert nm.get_checkpoint(tag="committed").load("rank1") == 1
    torch.distributed.barrier()
    if rank == 0:
        alone = nm.Checkpoint("alone", -2)
        alone.save("model", 5)
        alone.commit()
        assert nm.get_latest_checkpoint().load("model") == 5
    unnamed = nm.Checkpoint()
    unnamed.save(f"part{rank}", rank)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    """
    for process in ranks_of(start, tmp_path, script):
        output, _ = process.communicate(timeout=240)
        assert process.returncode == 0, output
    nm.init(str(tmp_path / "store"))
    tags = {saved.tag for saved in nm.list_checkpoints()}
    (unnamed,) = tags - {"counted", "committed", "alone"}
    assert len(tags) == 4
    latest = nm.get_checkpoint(tag=unnamed)
    assert [latest.load(f"part{rank}") for rank in range(2)] == [0, 1]


def test_kills_while_saving_leave_no_half_checkpoint(start: Start, tmp_path: Path, nm: Any) -> None:
    """The rank, or with its writer, at random moments; what was committed is whole."""
    nm.init(str(tmp_path / "store"))
    delays = random.Random(20)
    for attempt in range(3):
        process = start(SAVING)
        assert process.stdout is not None
        printed = [process.stdout.readline()]
        until = time.monotonic() + delays.uniform(0.1, 1.0)
        while time.monotonic() < until:
            printed.append(process.stdout.readline())
        steps = int(printed[-1])
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        wait_for_writer(process)
        checkpoints = nm.list_checkpoints()
        assert checkpoints, (attempt, printed)
        for checkpoint in checkpoints:
            values = [checkpoint.load(name) for name in ("model", "optimizer", "sampler")]
            assert {f"step-{value['step']}" for value in values} == {checkpoint.tag}
            assert all((value["weights"] == value["step"]).all() for value in values)
        # The writer outlives the rank, and writes what was in memory.
        assert int(checkpoints[-1].tag.removeprefix("step-")) >= steps


def wait_for_writer(process: subprocess.Popen[str]) -> None:
    """Its writer has the same standard output, which ends with it."""
    assert process.stdout is not None
    process.stdout.read()


def test_a_script_that_ends_in_the_middle_leaves_no_half_checkpoint(
    start: Start, tmp_path: Path, nm: Any
) -> None:
    script = """
    nm.init(STORE, persistent_time_interval=0)
    for step in range(3):
        checkpoint = nm.Checkpoint(f"step-{step}")
        checkpoint.save("model", step)
        if step == 2:
            sys.exit(3)
        checkpoint.save("optimizer", step)
    """
    process = start(script)
    output, _ = process.communicate(timeout=240)
    assert process.returncode == 3
    assert "`step-2` was not complete when the script ended" in output
    nm.init(str(tmp_path / "store"))
    assert [saved.tag for saved in nm.list_checkpoints()] == ["step-0", "step-1"]
