"""Lightning: a callback whose checkpoints are whole, and a training that goes on from them.

    from torchyard.train.integrations.lightning import checkpoint_callback

    callback = checkpoint_callback(save_every=100)
    trainer = Trainer(callbacks=[callback], enable_checkpointing=False)
    trainer.fit(model, loader, ckpt_path=callback.latest())

Owns: the callback.
Leaves: what a checkpoint holds to Lightning; `NebulaCallback` to compat/nebulaml.
Always: every rank saves at the same step; a checkpoint that was not finished is never loaded.

The callback derives from the class of the Lightning that the script has imported: the packages
`pytorch_lightning` and `lightning` have classes of their own, and each takes only those.
"""

from __future__ import annotations

import functools
import importlib
import logging
import sys
from pathlib import Path
from typing import Any

from torchyard.train import run, stopping
from torchyard.train.checkpoint import resumption
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.integrations.saved_folders import SavedFolders
from torchyard.train.loop import generators, set_generators

_FILE = "lightning.ckpt"
_GENERATORS = "torchyard_generators"
_PACKAGES = ("pytorch_lightning", "lightning.pytorch")
_LOG = logging.getLogger("torchyard.train")


def checkpoint_callback(
    folder: str | Path | None = None, *, save_every: int, keep_last: int | None = None
) -> Any:
    """A callback that saves every `save_every` optimizer steps, at the end, and when told to stop.

    Its `latest()` is the newest whole checkpoint's path, for `ckpt_path` of `fit`, or None.

    Args:
        folder: one that all ranks see; by default `checkpoints` in the job's outputs.
        keep_last: how many of the newest are kept; all, without it.

    Raises:
        CheckpointError: `save_every` is not a positive integer, or Lightning is not installed.
    """
    if not isinstance(save_every, int) or save_every < 1:
        raise CheckpointError(f"`save_every` must be a positive integer, not {save_every!r}")
    return _class()(SavedFolders(folder, keep_last), save_every)


def _class() -> Any:
    imported = [package for package in _PACKAGES if package in sys.modules]
    for package in imported or _PACKAGES:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            continue
        return _class_of(package)
    raise CheckpointError(
        "the callback needs Lightning, which is not installed",
        "add `lightning` to the packages of the environment",
    )


@functools.cache
def _class_of(package: str) -> Any:
    base: Any = importlib.import_module(package).Callback

    class CheckpointCallback(base):  # type: ignore[misc]
        def __init__(self, folders: SavedFolders, save_every: int) -> None:
            self._folders = folders
            self._save_every = save_every
            self._saved_step = -1
            self._generators: Any = None
            stopping.listen()

        def latest(self) -> str | None:
            info = self._folders.newest()
            return None if info is None else str(info.path / _FILE)

        def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            checkpoint[_GENERATORS] = generators()

        def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
            self._generators = checkpoint.get(_GENERATORS)
            step = checkpoint["global_step"]
            info = self._folders.newest()
            if trainer.is_global_zero and info is not None and info.step == step:
                resumption.tell(step, info.saved_at)
            run.set_resumed(step)

        def on_train_start(self, trainer: Any, module: Any) -> None:
            self._saved_step = trainer.global_step
            run.set_step(trainer.global_step)
            if self._generators is not None:
                set_generators(self._generators)
                self._generators = None

        def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
            run.set_step(trainer.global_step)
            is_stop = stopping.should_stop()
            is_new = trainer.global_step != self._saved_step
            if is_new and (is_stop or trainer.global_step % self._save_every == 0):
                self._save(trainer)
            if is_stop:
                stopping.stop()

        def on_train_end(self, trainer: Any, module: Any) -> None:
            if trainer.global_step != self._saved_step:
                self._save(trainer)

        def _save(self, trainer: Any) -> None:
            self._saved_step = trainer.global_step
            _save(trainer, self._folders)

    return CheckpointCallback


def _save(trainer: Any, folders: SavedFolders) -> None:
    """On every rank. A failure of the disk at the end is logged, and training goes on."""
    step = trainer.global_step
    if trainer.is_global_zero:
        folders.begin(step)
    trainer.strategy.barrier()
    trainer.save_checkpoint(folders.draft(step) / _FILE)
    trainer.strategy.barrier()
    if trainer.is_global_zero:
        try:
            folders.commit(step, trainer.world_size)
        except OSError as error:
            _LOG.warning("checkpoint of step %s failed: %s", step, error)
    trainer.strategy.barrier()
