"""A checkpoint at the last batch of an epoch goes on with the next epoch."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from torchyard.train import Batches, Loop

pytestmark = pytest.mark.torch
BATCHES = 3

# Told to stop at the last batch of an epoch; what comes after the batches is still done.
_TOLD = """
import os, signal, sys, torch
from torchyard.train import Loop
loop = Loop({"weight": torch.zeros(1)}, save_every=100, folder=sys.argv[1])
for epoch in loop.epochs(2):
    for batch in loop.batches([1, 2, 3]):
        if (epoch, batch) == (0, 3):
            os.kill(os.getpid(), signal.SIGTERM)
    print("after", epoch, batch, flush=True)
"""

# Killed before the epoch ends, as when its code after the batches takes longer than the grace.
_KILLED = """
import os, signal, sys, torch
from torchyard.train import Loop
loop = Loop({"weight": torch.zeros(1)}, save_every=100, folder=sys.argv[1])
print("step", loop.step, flush=True)
for epoch in loop.epochs(1):
    for batch in loop.batches([1, 2, 3]):
        if batch == 3:
            os.kill(os.getpid(), signal.SIGTERM)
    if loop.step and len(sys.argv) > 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def train(folder: Path, kills_in: int | None, batch_sampler: bool) -> list[tuple[int, list[int]]]:
    """(epoch, samples) of each batch; killed before the first batch of that epoch."""
    torch.manual_seed(1)
    data = list(range(2 * BATCHES))
    options = {"batch_sampler": Batches(data, total=2)} if batch_sampler else {
        "batch_size": 2, "shuffle": True
    }  # fmt: skip
    loader: DataLoader[int] = DataLoader(data, **options)
    loop = Loop({"weight": torch.zeros(1)}, save_every=BATCHES, folder=folder)
    seen = []
    for epoch in loop.epochs(3):
        if epoch == kills_in:
            loop.checkpointer.wait()
            break
        samples = None
        for samples in loop.batches(loader):
            # What a step draws from the generator.
            seen.append((epoch, [*samples.tolist(), int(torch.randint(1000, (1,)))]))
        assert samples is not None, "an epoch without a batch"
    loop.checkpointer.close()
    return seen


@pytest.mark.parametrize("batch_sampler", [False, True])
def test_it_goes_on_with_the_next_epoch_as_if_undisturbed(
    tmp_path: Path, batch_sampler: bool
) -> None:
    undisturbed = train(tmp_path / "whole", None, batch_sampler)
    before = train(tmp_path / "killed", 1, batch_sampler)
    assert len(before) == BATCHES
    torch.manual_seed(99)
    after = train(tmp_path / "killed", None, batch_sampler)
    assert [epoch for epoch, _ in after] == [1] * BATCHES + [2] * BATCHES
    assert before + after == undisturbed


def test_what_is_told_to_stop_at_the_last_batch_ends_its_epoch_first(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _TOLD, str(tmp_path)]
    first = subprocess.run(words, capture_output=True, text=True)
    assert (first.returncode, first.stdout) == (-signal.SIGTERM, "after 0 3\n"), first.stderr
    second = subprocess.run(words, capture_output=True, text=True)
    assert (second.returncode, second.stdout) == (0, "after 1 3\n"), second.stderr


def test_what_is_killed_before_its_epoch_ends_has_saved_when_it_was_told_to_stop(
    tmp_path: Path,
) -> None:
    words = [sys.executable, "-c", _KILLED, str(tmp_path)]
    first = subprocess.run([*words, "kill"], capture_output=True, text=True)
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, "step 0\n"), first.stderr
    second = subprocess.run(words, capture_output=True, text=True)
    assert (second.returncode, second.stdout) == (0, "step 3\n"), second.stderr
