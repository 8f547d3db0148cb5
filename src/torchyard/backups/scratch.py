"""Folders that a backup or a proof works in, beside the backup.

Owns: their names, their end.
Leaves: what is in them to actions.py and proving.py.
Always: a folder ends with its block; what a killed program left is removed by the next one, and
nobody's who still works in it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torchyard.shared import locks

_PREFIX = ".yard-backup-"


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A new folder that its owner alone enters, on the disk of the backup at `target`."""
    _remove_left(target.parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=target.parent))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        locks.lock(descriptor)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _remove_left(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or one that has just gone
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                if locks.try_lock(descriptor):
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)
