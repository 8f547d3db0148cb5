"""DeepSpeed's engine for the block `"nebula"`, as DeepSpeed had it up to 0.18.

Owns: what the block's keys mean, and DeepSpeed's calls as Nebula's.
Leaves: checkpoints to nebulaml; when it is taken to nebulaml_deepspeed.
Always: the files that DeepSpeed looks for before it loads are there, and hold nothing.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import nebulaml
import torch
from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine

from torchyard.train.checkpoint.errors import CheckpointError

_LOG = logging.getLogger("nebulaml")
# DeepSpeed's own hints at a checkpoint whose tag it does not know.
_NEWEST = ("latest", "latest_universal")


@dataclass(frozen=True)
class Settings:
    """The block, with the defaults of DeepSpeed 0.18."""

    enabled: bool = False
    persistent_storage_path: Any = None
    persistent_time_interval: Any = 100
    num_of_version_in_retention: Any = 2
    enable_nebula_load: bool = True
    nebula_load_path: Any = None


def parse(block: Any) -> Settings:
    """
    Raises:
        CheckpointError: it is not an object, or has a key that DeepSpeed 0.18 did not read.
    """
    if not isinstance(block, dict):
        raise CheckpointError(
            f'`"nebula"` in DeepSpeed\'s configuration must be an object, not {block!r}',
            'such as {"enabled": true, "persistent_storage_path": "./outputs/checkpoints"}',
        )
    unknown = sorted(set(block) - set(Settings.__dataclass_fields__))
    if unknown:
        raise CheckpointError(
            f'`"nebula"` in DeepSpeed\'s configuration has no key `{unknown[0]}`',
            f"it has: {', '.join(Settings.__dataclass_fields__)}",
        )
    return Settings(**block)


class NebulaCheckpointEngine(CheckpointEngine):  # type: ignore[misc]
    """A checkpoint of DeepSpeed is one of Nebula with its tag; each file is an object."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.name = "NebulaCheckpointEngine"
        self._settings = settings
        self._root = settings.nebula_load_path or settings.persistent_storage_path
        self._saving: Any = None
        # The tag that is loaded from DeepSpeed's own files, if the block says so.
        self._plain_tag: str | None = None
        self._has_loaded = False
        nebulaml.init(
            settings.persistent_storage_path,
            settings.persistent_time_interval,
            settings.num_of_version_in_retention,
        )

    def create(self, info: Any) -> None:
        self._saving = nebulaml.Checkpoint(info.tag, -2)

    def save(self, state_dict: Any, path: Any) -> None:
        torch.save("", path)
        self._saving.save(os.path.basename(path), state_dict)

    def load(self, path: Any, map_location: Any = None) -> Any:
        """The object of this path's tag, or of the newest checkpoint; None without one."""
        folder, name = os.path.split(path)
        tag = os.path.basename(folder)
        if self._loads_plain_files(tag):
            return torch.load(path, map_location=map_location, weights_only=False)
        checkpoint = None if tag in _NEWEST else nebulaml.get_checkpoint(tag, self._root)
        if checkpoint is None:
            checkpoint = nebulaml.get_latest_checkpoint(self._root)
            if checkpoint is None:
                _LOG.warning(
                    "there is no whole checkpoint in %s to load `%s` from", self._root, path
                )
                return None
            if tag not in _NEWEST:
                _LOG.warning("checkpoint `%s` is not whole: `%s` is loaded", tag, checkpoint.tag)
        self._has_loaded = True
        return checkpoint.load(name, map_location=map_location)

    def commit(self, info: Any) -> bool:
        return bool(self._saving.commit())

    def _loads_plain_files(self, tag: str) -> bool:
        """With `enable_nebula_load` off, the first checkpoint is one without Nebula."""
        if self._settings.enable_nebula_load or self._has_loaded:
            return False
        self._plain_tag = self._plain_tag or tag
        return tag == self._plain_tag
