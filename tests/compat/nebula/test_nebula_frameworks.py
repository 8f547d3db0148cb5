"""The calls of DeepSpeed's engine for Nebula, and Lightning's classes."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from eventually import eventually
from torchyard.train.checkpoint.errors import CheckpointError

pytestmark = [pytest.mark.torch, pytest.mark.timeout(400)]

Start = Callable[..., "subprocess.Popen[str]"]


def test_the_calls_of_deepspeeds_engine_serve_shards_of_two_ranks(
    start: Start, tmp_path: Path, nm: Any
) -> None:
    """As its NebulaCheckpointEngine calls them; ZeRO itself does not run over gloo."""
    script = """
    import torch_nebula
    rank = int(os.environ["RANK"])
    torch.distributed.init_process_group(
        "gloo", init_method="file://" + os.environ["RENDEZVOUS"], rank=rank, world_size=2)
    torch_nebula.init(persistent_storage_path=STORE, persistent_time_interval=100,
                      num_of_version_in_retention=2)
    for step in range(3):
        checkpoint = torch_nebula.Checkpoint(f"global_step{step}", -2)
        torch.distributed.barrier()
        checkpoint.save(f"zero_{rank}.pt", {"step": step, "rank": rank})
        assert checkpoint.commit()
    latest = torch_nebula.get_latest_checkpoint(persist_path=STORE)
    loaded = latest.load(f"zero_{1 - rank}.pt", map_location="cpu")
    assert loaded == {"step": 2, "rank": 1 - rank}, loaded
    """
    import textwrap

    started = [
        start(textwrap.dedent(script), RANK=str(rank), RENDEZVOUS=str(tmp_path / "meeting"))
        for rank in range(2)
    ]
    for process in started:
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output


@pytest.mark.parametrize("package", ["pytorch_lightning", "lightning.pytorch"])
def test_lightnings_callback_saves_and_resumes(nm: Any, tmp_path: Path, package: str) -> None:
    pl = importlib.import_module(package)
    from nebulaml import lightning_classes

    classes = lightning_classes._classes(package)

    class Model(pl.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    def fit(epochs: int, resume: str | None) -> tuple[Any, Any]:
        callback = classes["NebulaCallback"](
            dirpath=str(tmp_path / "files"), filename="{epoch}", save_top_k=2, monitor="epoch",
            mode="max",
            config_params={
                "persistent_storage_path": str(tmp_path / "store"), "persistent_time_interval": 0,
            },
        )  # fmt: skip
        trainer = pl.Trainer(
            default_root_dir=tmp_path, max_epochs=epochs, accelerator="cpu", logger=False,
            enable_progress_bar=False, enable_model_summary=False,
            plugins=[classes["NebulaCheckpointIO"]()], callbacks=[callback],
        )  # fmt: skip
        model = Model()
        data = torch.utils.data.TensorDataset(torch.ones(8, 4))
        trainer.fit(model, torch.utils.data.DataLoader(data, batch_size=4), ckpt_path=resume)
        return trainer, model

    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, model = fit(3, None)
        assert {saved.tag for saved in nm.list_checkpoints()} == {"epoch=1.ckpt", "epoch=2.ckpt"}
        path = nm.get_latest_checkpoint_path("checkpoint", str(tmp_path / "store"))
        loaded = Model.load_from_checkpoint(path, weights_only=False)
        assert torch.equal(loaded.layer.weight, model.layer.weight)
        trainer, _ = fit(4, str(tmp_path / "files" / "epoch=2.ckpt"))
        assert trainer.current_epoch == 4 and trainer.global_step == 8
        with pytest.raises(CheckpointError, match=r"no whole checkpoint `missing\.ckpt`"):
            fit(5, str(tmp_path / "missing.ckpt"))
        options = {"is_best": True, "persist_path": str(tmp_path / "tier3")}
        trainer.save_checkpoint("example.ckpt", storage_options=options)
        assert nm.get_latest_checkpoint(persist_path=str(tmp_path / "tier3")).tag == "example.ckpt"


# Of the form of Azure's document on Nebula with Lightning.
LIGHTNING = """
import warnings
warnings.simplefilter("ignore")
import pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset

class LitLine(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(4, 1)

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.line(batch[0]), batch[1])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

torch.manual_seed(0)
x = torch.randn(64, 4)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)

config_params = dict()
config_params["persistent_storage_path"] = STORE
config_params["persistent_time_interval"] = 10
callback = nm.NebulaCallback(every_n_epochs=1, save_top_k=-1, config_params=config_params)
trainer = pl.Trainer(
    max_epochs=int(sys.argv[1]), accelerator="cpu", logger=False, enable_progress_bar=False,
    enable_model_summary=False, plugins=[nm.NebulaCheckpointIO()], callbacks=[callback])
newest = nm.get_latest_checkpoint()
print("newest", newest and newest.tag)
trainer.fit(LitLine(), loader, ckpt_path=newest.tag if newest else None)
print("epochs", trainer.current_epoch, "steps", trainer.global_step, flush=True)
if len(sys.argv) > 2:
    os.kill(os.getpid(), 9)
"""


def test_a_script_with_lightnings_callback_goes_on_after_it_was_killed(
    start: Start, tmp_path: Path, nm: Any
) -> None:
    pytest.importorskip("pytorch_lightning")

    def tags() -> list[str]:
        return [saved.tag for saved in nm.list_checkpoints(persist_path=str(tmp_path / "store"))]

    def run(*arguments: str) -> tuple[int, str]:
        process = start(f"sys.argv = ['train.py', *{arguments}]\n{LIGHTNING}")
        output, _ = process.communicate(timeout=300)
        return process.returncode, output

    code, output = run("2", "kill")
    assert code == -9, output
    assert "newest None\n" in output and "epochs 2 steps 8\n" in output, output
    second = "epoch=1-step=8.ckpt"
    eventually(lambda: second in tags(), "the writer has written what the script had saved")
    code, output = run("3")
    assert code == 0, output
    assert f"newest {second}\n" in output and "epochs 3 steps 12\n" in output, output
    assert tags()[-1] == "epoch=2-step=12.ckpt"
