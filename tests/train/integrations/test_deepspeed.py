"""Checkpoints of a DeepSpeed engine: a real one under kills, and one that fails as we like."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from torchyard.train.checkpoint import CheckpointError
from torchyard.train.integrations.deepspeed import EngineCheckpoints
from train.integrations import deepspeed_environment, training

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

SCRIPT = """
os.environ.update(DS_ACCELERATOR="cpu", RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
import deepspeed
from torchyard.train.integrations.deepspeed import EngineCheckpoints

deepspeed.init_distributed(dist_backend="gloo", init_method=f"file://{os.path.abspath('group')}",
                           rank=0, world_size=1, auto_mpi_discovery=False)
torch.manual_seed(0)
inputs = torch.randn(48, 4, 8)
model = torch.nn.Linear(8, 1)
engine, *_ = deepspeed.initialize(
    model=model, optimizer=torch.optim.Adam(model.parameters(), 0.01),
    config={"train_micro_batch_size_per_gpu": 4})
checkpoints = EngineCheckpoints(engine, save_every=10, keep_last=2)
while checkpoints.step < 48:
    end(checkpoints.step)
    engine.backward(engine(inputs[checkpoints.step]).pow(2).mean())
    engine.step()
    checkpoints.after_step()
"""


def test_an_engine_that_was_killed_and_stopped_ends_with_the_same_weights(tmp_path: Path) -> None:
    train = partial(training.train, python=deepspeed_environment.python(tmp_path / "venv"))
    script = training.write(tmp_path / "train.py", SCRIPT)
    first, weights = train(script, tmp_path / "undisturbed")
    assert first == "resumed from None now at 48"
    folder = tmp_path / "stopped"
    train(script, folder, end_at=25, by=signal.SIGKILL)
    (folder / "group").unlink()
    train(script, folder, end_at=33, by=signal.SIGTERM)
    (folder / "group").unlink()
    assert train(script, folder) == ["resumed from 34 now at 48", weights]


class FakeEngine:
    """Saves as an engine does: a folder named by the tag, below `save_dir`."""

    def __init__(self) -> None:
        self.weights = torch.zeros(2)
        self.is_broken = False

    def save_checkpoint(
        self, save_dir: str, tag: str, client_state: dict[str, Any], save_latest: bool
    ) -> None:
        assert not save_latest
        folder = Path(save_dir) / tag
        (folder / "zero").mkdir(parents=True)
        torch.save({"weights": self.weights, **client_state}, folder / "zero/states.pt")
        if self.is_broken:
            raise KeyboardInterrupt

    def load_checkpoint(self, load_dir: str, tag: str) -> tuple[str | None, dict[str, Any]]:
        states = torch.load(Path(load_dir) / tag / "zero/states.pt")
        self.weights = states.pop("weights")
        return load_dir, states


def test_a_checkpoint_that_was_not_finished_is_not_loaded(tmp_path: Path) -> None:
    engine = FakeEngine()
    checkpoints = EngineCheckpoints(engine, tmp_path, save_every=2, keep_last=2)
    for step in range(1, 7):
        engine.weights.fill_(step)
        checkpoints.after_step({"epoch": step})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000004", "step-00000006"]
    engine.is_broken = True
    engine.weights.fill_(7)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.save()
    loaded = FakeEngine()
    resumed = EngineCheckpoints(loaded, tmp_path, save_every=2)
    assert (resumed.step, resumed.resumed_from, resumed.client_state) == (6, 6, {"epoch": 6})
    assert loaded.weights.tolist() == [6, 6]
    # A file that is damaged counts as not there.
    (tmp_path / "step-00000006/zero/states.pt").write_bytes(b"cut off")
    assert EngineCheckpoints(FakeEngine(), tmp_path, save_every=2).resumed_from == 4


def test_a_number_of_steps_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="`save_every` must be a positive integer, not -1"):
        EngineCheckpoints(FakeEngine(), tmp_path, save_every=-1)
