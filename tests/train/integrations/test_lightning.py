"""A real Trainer of Lightning: killed, told to stop, and resumed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from torchyard.train.checkpoint import CheckpointError
from torchyard.train.integrations import lightning
from train.integrations import training

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

SCRIPT = """
import pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset
from torchyard.train.integrations.lightning import checkpoint_callback

torch.manual_seed(0)
inputs = torch.randn(64, 8)
loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), 4, shuffle=True)

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))

    def training_step(self, batch, number):
        end(self.trainer.global_step)
        return torch.nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

model = Model()
callback = checkpoint_callback(save_every=16, keep_last=2)
trainer = pl.Trainer(
    max_epochs=3, accelerator="cpu", logger=False, enable_progress_bar=False,
    enable_model_summary=False, enable_checkpointing=False, callbacks=[callback])
trainer.fit(model, loader, ckpt_path=callback.latest(), weights_only=False)
"""


def test_a_trainer_that_was_killed_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    script = training.write(tmp_path / "train.py", SCRIPT)
    folder = tmp_path / "stopped"
    training.train(script, folder, end_at=16, by=signal.SIGKILL)
    assert training.train(script, folder)[0] == "resumed from 16 now at 48"
    checkpoints = folder / "outputs/checkpoints"
    assert sorted(path.parent.name for path in checkpoints.glob("*/manifest.json")) == [
        "step-00000032", "step-00000048",
    ]  # fmt: skip


def test_a_trainer_that_is_told_to_stop_saves_at_that_step(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning")
    script = training.write(tmp_path / "train.py", SCRIPT)
    training.train(script, tmp_path / "stopped", end_at=5, by=signal.SIGTERM)
    assert (tmp_path / "stopped/outputs/checkpoints/step-00000006/manifest.json").is_file()


def test_a_number_of_steps_that_is_none_is_named() -> None:
    with pytest.raises(CheckpointError, match="`save_every` must be a positive integer, not 0"):
        lightning.checkpoint_callback(save_every=0)
