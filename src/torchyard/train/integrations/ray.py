"""Ray Train: checkpoints that are whole, and training that resumes from them.

    from torchyard.train.integrations.ray import fit, get_checkpoint

    def train_func():
        checkpoint = get_checkpoint()
        ...
        ray.train.report({"step": step, "loss": loss}, checkpoint=...)

    fit(TorchTrainer(train_func, run_config=RunConfig(name="train", storage_path=folder)))

Owns: `CheckpointCallback`, `fit` and `get_checkpoint`.
Leaves: what a checkpoint holds, and its copy to the storage path, to the script and Ray Train.
Always: only a checkpoint whose files are all there and undamaged is loaded.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ray.train import Checkpoint, UserCallback, get_context
from ray.train.collective import broadcast_from_rank_zero

from torchyard.train import run
from torchyard.train.checkpoint import folders, resumption
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.integrations import saved_folders

# What Ray Train finds its checkpoints by when it is started again.
_SNAPSHOT = "checkpoint_manager_snapshot.json"
# The name that it gives a run without one.
_DATED = re.compile(r"ray_train_run-\d{4}-.*")
_LOG = logging.getLogger("torchyard.train")


class CheckpointCallback(UserCallback):
    """Seals the checkpoints that the workers reported; it runs in Ray Train's controller.

    A checkpoint gets its `manifest.json` when all workers have written it and it is durable. Its
    step is the first worker's metric `step`.
    """

    def after_report(
        self,
        run_context: Any,
        metrics: Sequence[Mapping[str, Any]],
        checkpoint: Checkpoint | None,
    ) -> None:
        """
        Raises:
            CheckpointError: the report has no step, or its checkpoint is not in a folder.
        """
        if checkpoint is None:
            return
        step = metrics[0].get("step")
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise CheckpointError(
                f"`step` of a report with a checkpoint must be an integer >= 0, not {step!r}",
                'call `ray.train.report({"step": step, ...}, checkpoint=...)`',
            )
        if checkpoint.filesystem.type_name != "local":
            raise _no_folder(f"{checkpoint.filesystem.type_name}://{checkpoint.path}")
        path = Path(checkpoint.path)
        try:
            saved_folders.seal(path, step, len(metrics))
        except OSError as error:
            _LOG.warning("checkpoint %s is not durable, and will not be loaded: %s", path, error)


def latest(folder: str | Path) -> CheckpointInfo | None:
    """The newest whole checkpoint of a run, whose folder is `storage_path/name`; None without."""
    sealed = (folders.read_manifest(path) for path in sorted(Path(folder).glob("checkpoint_*")))
    return saved_folders.newest(info for info in sealed if info is not None)


def get_checkpoint() -> Checkpoint | None:
    """The newest whole checkpoint; on every worker, in place of `ray.train.get_checkpoint`."""
    context = get_context()
    info = latest(context.get_storage().experiment_fs_path) if _is_first(context) else None
    info = broadcast_from_rank_zero(info)
    if info is None:
        return None
    if _is_first(context):
        resumption.tell(info.step, info.saved_at)
    run.set_resumed(info.step)
    run.set_step(info.step)
    return Checkpoint.from_directory(info.path)


def fit(trainer: Any) -> Any:
    """Call `trainer.fit`, with a `CheckpointCallback` among its callbacks.

    Args:
        trainer: such as a `TorchTrainer`; its `RunConfig` has a name, by which the next attempt
            finds the checkpoints, and a storage path that all nodes see.

    Returns:
        What `trainer.fit` returns.

    Raises:
        CheckpointError: the storage path is not a folder.
    """
    config = trainer.run_config
    if config.storage_filesystem is not None or "://" in config.storage_path:
        raise _no_folder(config.storage_path)
    if _DATED.fullmatch(config.name):
        _LOG.warning("`RunConfig` has no `name`: when it is started again, it begins at step 0")
    if config.checkpoint_config.num_to_keep == 1:
        # Ray Train deletes the one before while the new one is not sealed yet.
        _LOG.warning("`num_to_keep` is 2 instead of 1: one whole checkpoint is kept")
        config.checkpoint_config.num_to_keep = 2
    if not any(isinstance(callback, CheckpointCallback) for callback in config.callbacks):
        config.callbacks.append(CheckpointCallback())
    _remove_half_snapshot(Path(config.storage_path) / config.name / _SNAPSHOT)
    return trainer.fit()


def _remove_half_snapshot(path: Path) -> None:
    """Ray Train writes it in place, and refuses to start with what a kill has left of it."""
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return
    except ValueError:
        _LOG.warning("removing %s, which was not written to its end", path)
        path.unlink()


def _is_first(context: Any) -> bool:
    return bool(context.get_world_rank() == 0)


def _no_folder(path: str) -> CheckpointError:
    return CheckpointError(
        f"Ray Train's checkpoints in {path} can't be sealed",
        "let `storage_path` of `RunConfig` be a folder that all nodes see, such as one below "
        "./outputs",
    )
