"""Lightning's checkpoints, saved by nebulaml.

Owns: `NebulaCallback` and `NebulaCheckpointIO`.
Leaves: when Lightning saves to Lightning.
Always: a checkpoint's tag is the name of its file, and its one object is `checkpoint`.

They derive from the classes of the Lightning that the script has imported: the packages
`pytorch_lightning` and `lightning` have classes of their own, and each takes only those.
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

from nebulaml import checkpoints
from torchyard.train.checkpoint.errors import CheckpointError

_OBJECT = "checkpoint"
_PACKAGES = ("pytorch_lightning", "lightning.pytorch")
_OPTIONS = ("is_best", "persist_path")


def make(name: str) -> type:
    """
    Raises:
        CheckpointError: Lightning is not installed.
    """
    imported = [package for package in _PACKAGES if package in sys.modules]
    for package in imported or _PACKAGES:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            continue
        return _classes(package)[name]
    raise CheckpointError(
        f"`nebulaml.{name}` needs Lightning, which is not installed",
        "add `lightning` to the packages of the environment",
    )


@functools.cache
def _classes(package: str) -> dict[str, type]:
    callbacks: Any = importlib.import_module(f"{package}.callbacks")
    plugins: Any = importlib.import_module(f"{package}.plugins.io")

    class NebulaCallback(callbacks.ModelCheckpoint):
        """ModelCheckpoint, which calls `nebulaml.init` with `config_params`."""

        def __init__(self, *arguments: Any, config_params: Any = None, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            if not isinstance(config_params, dict):
                raise CheckpointError(
                    f"`config_params` of NebulaCallback must be a dict, not {config_params!r}",
                    'such as {"persistent_storage_path": "./outputs/checkpoints"}',
                )
            checkpoints.init(**config_params)

    class NebulaCheckpointIO(plugins.CheckpointIO):
        """Save with nebulaml; load from there, or a file that torch.save wrote."""

        def save_checkpoint(
            self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
        ) -> None:
            _save(checkpoint, path, storage_options)

        def load_checkpoint(self, path: Any, map_location: Any = None, **keywords: Any) -> Any:
            saved = checkpoints.get_checkpoint(tag=Path(path).name)
            if saved is not None:
                return saved.load(_OBJECT, map_location=map_location)
            if not Path(path).is_file():
                raise CheckpointError(
                    f"there is no whole checkpoint `{Path(path).name}`, and no file {path}",
                    "`nebulaml.list_checkpoints()` names those that there are",
                )
            return plugins.TorchCheckpointIO().load_checkpoint(path, map_location, **keywords)

        def remove_checkpoint(self, path: Any) -> None:
            checkpoints.remove_checkpoint(Path(path).name)

    return {"NebulaCallback": NebulaCallback, "NebulaCheckpointIO": NebulaCheckpointIO}


def _save(checkpoint: dict[str, Any], path: Any, storage_options: Any) -> None:
    options = dict(storage_options or {})
    unknown = sorted(set(options) - set(_OPTIONS))
    if unknown:
        raise CheckpointError(
            f"NebulaCheckpointIO has no storage option `{unknown[0]}`",
            f"it has: {', '.join(_OPTIONS)}",
        )
    saving = checkpoints.Checkpoint(
        Path(path).name, 1,
        persist_path=options.get("persist_path"), is_best=bool(options.get("is_best")),
    )  # fmt: skip
    saving.save(_OBJECT, checkpoint)
