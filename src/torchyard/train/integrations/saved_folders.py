"""Folders that a framework writes as a checkpoint, made whole or not there at all.

Owns: making such a folder a checkpoint, finding the newest whole one, deleting older ones.
Leaves: what is in it to the framework; names and manifests to checkpoint.folders.
Always: a folder without a manifest, or with files that differ from it, is never loaded.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path

from torchyard.train.checkpoint import folders
from torchyard.train.checkpoint.checkpointer import default_folder
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.folders import CheckpointInfo
from torchyard.train.checkpoint.retention import Retention

_LOG = logging.getLogger("torchyard.train")
_SESSION = "framework"


class SavedFolders:
    """The checkpoints of one training: `step-00000100` below `folder`.

    Args:
        folder: by default `checkpoints` in the job's outputs, else ./outputs/checkpoints. Where
            a training runs on several machines, all see it.
        keep_last: how many of the newest are kept; all, without it.
    """

    def __init__(self, folder: str | Path | None, keep_last: int | None) -> None:
        self.folder = Path(folder or default_folder(os.environ)).absolute()
        self._retention = Retention(keep_last)

    def newest(self) -> CheckpointInfo | None:
        """The newest whole checkpoint; those that are damaged are named in a warning."""
        return newest(folders.checkpoints(self.folder).values())

    def draft(self, step: int) -> Path:
        """Where the framework writes; the same path on every rank."""
        return self.folder / f"{folders.TEMPORARY}{step:08d}-{_SESSION}-0"

    def begin(self, step: int) -> None:
        """On the first rank, before the framework writes to `draft`."""
        shutil.rmtree(self.draft(step), ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)

    def commit(self, step: int, ranks: int) -> Path:
        """On the first rank, when all have written: make the draft a checkpoint.

        Raises:
            OSError: it can't be made durable, or does not exist.
        """
        draft = self.draft(step)
        path = folders.final_path(self.folder, step)
        folders.commit(_info(draft, path, step, ranks), draft)
        metrics = {info.step: info.metric for info in folders.checkpoints(self.folder).values()}
        for expired in self._retention.expired(metrics):
            folders.delete(self.folder, expired)
        folders.remove_stale(self.folder, _SESSION, step)
        return path


def seal(path: Path, step: int, ranks: int) -> None:
    """Make a folder that keeps its name a checkpoint, when all its files are written.

    Raises:
        OSError: it can't be made durable.
    """
    manifest = path / folders.MANIFEST
    manifest.unlink(missing_ok=True)
    folders.write_manifest(_info(path, path, step, ranks), path)


def newest(candidates: Iterable[CheckpointInfo]) -> CheckpointInfo | None:
    """The undamaged one with the highest step."""
    for info in sorted(candidates, key=lambda info: info.step, reverse=True):
        try:
            folders.verify(info)
        except CheckpointError as error:
            _LOG.warning("%s; loading the one before", error.message)
            continue
        return info
    return None


def _info(folder: Path, path: Path, step: int, ranks: int) -> CheckpointInfo:
    """With every file of `folder`, which it makes durable."""
    saved_at = time.time_ns() // 1_000_000
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent) / name
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            files[file.relative_to(folder).as_posix()] = folders.file_sum(file)
        folders.sync_folder(Path(parent))
    return CheckpointInfo(
        step=step, path=path, ranks=ranks, created_at=datetime.now(timezone.utc).isoformat(),
        saved_at=saved_at, metric=None, save_id=f"{step:08d}-{uuid.uuid4().hex[:12]}-0",
        format=folders.FORMAT, files=files,
    )  # fmt: skip
