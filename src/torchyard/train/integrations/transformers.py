"""Hugging Face's Trainer: checkpoints that are whole, training that resumes and stops by itself.

    from torchyard.train.integrations.transformers import train

    train(Trainer(model, arguments, train_dataset=data))

Owns: `CheckpointCallback` and `train`.
Leaves: when it saves, and what, to the Trainer and its arguments.
Always: only a checkpoint whose files are all there and undamaged is loaded. On the CPU, a training
that was stopped at a step ends with the same weights as one that wasn't.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback

from torchyard.train import run, stopping
from torchyard.train.checkpoint import folders, resumption
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.integrations import saved_folders

_NAME = re.compile(r"checkpoint-\d+")
_LOG = logging.getLogger("torchyard.train")


class CheckpointCallback(TrainerCallback):
    """Seals the checkpoints that the Trainer saved, counts steps, and stops when it is told to.

    A checkpoint gets its `manifest.json` when all ranks have written it and it is durable.
    `is_stopped` says that the training ended early; it was saved at that step.
    """

    def __init__(self) -> None:
        self.is_stopped = False
        stopping.listen()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        run.set_step(state.global_step)
        if args.save_total_limit == 1:
            # The Trainer deletes the one before while the new one is not durable yet.
            _LOG.warning("`save_total_limit` is 2 instead of 1: one whole checkpoint is kept")
            args.save_total_limit = 2

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        run.set_step(state.global_step)
        if stopping.should_stop():
            self.is_stopped = control.should_save = control.should_training_stop = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        ranks = 1
        if dist.is_available() and dist.is_initialized():
            ranks = dist.get_world_size()
            dist.barrier()  # files of all ranks are written
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        if not args.should_save or not path.is_dir():
            return
        try:
            saved_folders.seal(path, state.global_step, ranks)
        except OSError as error:
            _LOG.warning("checkpoint %s is not durable, and will not be loaded: %s", path, error)


def latest(output_dir: str | Path) -> CheckpointInfo | None:
    """The newest whole checkpoint of a Trainer; None without one."""
    paths = [path for path in Path(output_dir).glob("checkpoint-*") if _NAME.fullmatch(path.name)]
    sealed = [info for path in paths if (info := folders.read_manifest(path)) is not None]
    return saved_folders.newest(sealed)


def train(trainer: Any, **kwargs: Any) -> Any:
    """Call `trainer.train`, from the newest whole checkpoint in its `output_dir` if there is one.

    When the job is told to stop, it saves, and this process ends as the signal would have ended it.

    Returns:
        What `trainer.train` returns.
    """
    callbacks = trainer.callback_handler.callbacks
    callback = next((item for item in callbacks if isinstance(item, CheckpointCallback)), None)
    if callback is None:
        callback = CheckpointCallback()
        trainer.add_callback(callback)
    info = _agreed(trainer.args.output_dir)
    if info is not None:
        resumption.tell(info.step, info.saved_at)
        kwargs["resume_from_checkpoint"] = str(info.path)
    result = trainer.train(**kwargs)
    if callback.is_stopped:
        stopping.stop()
    return result


def _agreed(output_dir: str) -> CheckpointInfo | None:
    """Rank 0's choice."""
    if not (dist.is_available() and dist.is_initialized()):
        return latest(output_dir)
    chosen = [latest(output_dir) if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(chosen)
    return chosen[0]
