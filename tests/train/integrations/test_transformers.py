"""Hugging Face's own Trainer: killed, told to stop, and resumed."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from train.integrations import training

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

SCRIPT = """
from transformers import Trainer, TrainerCallback, TrainingArguments
from torchyard.train.integrations.transformers import train

torch.manual_seed(0)
inputs = torch.randn(64, 8)
data = [{"x": x, "labels": x.sum()} for x in inputs]

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))

    def forward(self, x, labels):
        outputs = self.layers(x).squeeze(-1)
        return {"loss": (outputs - labels).pow(2).mean(), "logits": outputs}

class End(TrainerCallback):
    def on_step_begin(self, args, state, control, **named):
        end(state.global_step)

model = Model()
arguments = TrainingArguments(
    output_dir="outputs/checkpoints", num_train_epochs=3, per_device_train_batch_size=4,
    save_steps=10, save_total_limit=1, report_to=[], use_cpu=True, disable_tqdm=True)
train(Trainer(model, arguments, train_dataset=data, callbacks=[End()]))
"""


def test_a_trainer_that_was_killed_and_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    script = training.write(tmp_path / "train.py", SCRIPT)
    first, weights = training.train(script, tmp_path / "undisturbed")
    assert first == "resumed from None now at 48"

    folder = tmp_path / "stopped"
    training.train(script, folder, end_at=25, by=signal.SIGKILL)
    checkpoints = folder / "outputs/checkpoints"
    manifest = json.loads((checkpoints / "checkpoint-20/manifest.json").read_text())
    assert manifest["checkpoint"]["step"] == 20
    assert "optimizer.pt" in manifest["checkpoint"]["files"]
    # One that was cut off, and one that was not sealed, are as if they were not there.
    (checkpoints / "checkpoint-30").mkdir()
    (checkpoints / "checkpoint-30/trainer_state.json").write_text("{}")
    training.train(script, folder, end_at=33, by=signal.SIGTERM)
    complete = {path.parent.name for path in checkpoints.glob("*/manifest.json")}
    assert complete == {"checkpoint-30", "checkpoint-34"}
    optimizer = checkpoints / "checkpoint-34/optimizer.pt"
    optimizer.write_bytes(optimizer.read_bytes()[:-1])
    assert training.train(script, folder) == ["resumed from 30 now at 48", weights]
