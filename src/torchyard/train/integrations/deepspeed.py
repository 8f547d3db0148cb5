"""DeepSpeed: checkpoints of an engine that are whole, and training that resumes from them.

    from torchyard.train.integrations.deepspeed import EngineCheckpoints

    checkpoints = EngineCheckpoints(engine, save_every=100)
    while checkpoints.step < steps:
        ...
        engine.step()
        checkpoints.after_step()

Owns: when `save_checkpoint` and `load_checkpoint` of the engine are called, and where they write.
Leaves: what is saved to DeepSpeed; scripts with a `"nebula"` block to compat/nebulaml.
Always: every rank makes the same calls; a checkpoint that was not finished is never loaded.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch.distributed as dist

from torchyard.train import run, stopping
from torchyard.train.checkpoint import resumption
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.integrations.saved_folders import SavedFolders

_LOG = logging.getLogger("torchyard.train")


class EngineCheckpoints:
    """Loads the newest checkpoint into an engine, counts steps and saves.

    `step` counts optimizer steps, `resumed_from` is the step that was loaded, or None, and
    `client_state` what was passed to `save` then.
    """

    def __init__(
        self,
        engine: Any,
        folder: str | Path | None = None,
        *,
        save_every: int,
        keep_last: int | None = None,
    ) -> None:
        """
        Args:
            engine: what `deepspeed.initialize` returned first.
            folder: one that all ranks see; by default `checkpoints` in the job's outputs.

        Raises:
            CheckpointError: `save_every` is not a positive integer, or the engine can't load it.
        """
        if not isinstance(save_every, int) or save_every < 1:
            raise CheckpointError(f"`save_every` must be a positive integer, not {save_every!r}")
        self._engine = engine
        self._folders = SavedFolders(folder, keep_last)
        self._save_every = save_every
        self.step = 0
        self.resumed_from: int | None = None
        self.client_state: dict[str, Any] = {}
        stopping.listen()
        self._load()

    def after_step(self, client_state: dict[str, Any] | None = None) -> None:
        """Count a step that the engine has done, and save when it is time.

        When the job is told to stop, it saves, and this process ends as the signal would have
        ended it.
        """
        self.step += 1
        run.set_step(self.step)
        is_stop = stopping.should_stop()
        if is_stop or self.step % self._save_every == 0:
            self.save(client_state)
        if is_stop:
            stopping.stop()

    def save(self, client_state: dict[str, Any] | None = None) -> None:
        """Save now; every rank calls it. A failure of the disk is logged, and training goes on."""
        if _rank() == 0:
            self._folders.begin(self.step)
        _barrier()
        draft = self._folders.draft(self.step)
        self._engine.save_checkpoint(
            str(draft.parent), tag=draft.name, client_state=client_state or {}, save_latest=False
        )
        _barrier()
        if _rank() == 0:
            try:
                self._folders.commit(self.step, _ranks())
            except OSError as error:
                _LOG.warning("checkpoint of step %s failed: %s", self.step, error)
        _barrier()

    def _load(self) -> None:
        info = self._agreed()
        if info is None:
            return
        path, client_state = self._engine.load_checkpoint(str(info.path.parent), tag=info.path.name)
        if path is None:
            raise CheckpointError(
                f"DeepSpeed can't load checkpoint {info.path}",
                "use the configuration that it was saved with",
            )
        self.step = self.resumed_from = info.step
        self.client_state = dict(client_state or {})
        if _rank() == 0:
            resumption.tell(info.step, info.saved_at)
        run.set_resumed(info.step)
        run.set_step(info.step)

    def _agreed(self) -> CheckpointInfo | None:
        """Rank 0's choice."""
        chosen = [self._folders.newest() if _rank() == 0 else None]
        if _ranks() > 1:
            dist.broadcast_object_list(chosen)
        return chosen[0]


def _is_grouped() -> bool:
    return bool(dist.is_available() and dist.is_initialized())


def _rank() -> int:
    return dist.get_rank() if _is_grouped() else 0


def _ranks() -> int:
    return dist.get_world_size() if _is_grouped() else 1


def _barrier() -> None:
    if _ranks() > 1:
        dist.barrier()
