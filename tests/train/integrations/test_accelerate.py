"""A loop over what a real Accelerator has prepared: killed, told to stop, and resumed."""

from __future__ import annotations

import signal
from pathlib import Path
from types import SimpleNamespace

import pytest

from torchyard.train.checkpoint import CheckpointError
from torchyard.train.integrations import accelerate
from train.integrations import training

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

SCRIPT = """
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset
from torchyard.train.integrations.accelerate import loop

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
inputs = torch.randn(64, 8)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), 4, shuffle=True)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.9)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
resumable = loop(accelerator, save_every=10, keep_last=2)
for epoch in resumable.epochs(3):
    for x, y in resumable.batches(loader):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()
        if os.environ["END_AT"] == str(resumable.step):
            resumable.checkpointer.wait()
        end(resumable.step)
"""


def test_a_loop_that_was_killed_and_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    script = training.write(tmp_path / "train.py", SCRIPT)
    first, weights = training.train(script, tmp_path / "undisturbed")
    assert first == "resumed from None now at 48"
    folder = tmp_path / "stopped"
    training.train(script, folder, end_at=25, by=signal.SIGKILL)
    training.train(script, folder, end_at=33, by=signal.SIGTERM)
    assert training.train(script, folder) == ["resumed from 34 now at 48", weights]


def test_an_accelerator_that_prepared_nothing_is_refused() -> None:
    empty = SimpleNamespace(_models=[], _optimizers=[], _schedulers=[], _custom_objects=[])
    with pytest.raises(CheckpointError, match="has prepared nothing that could be saved"):
        accelerate.loop(empty, save_every=1)
