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
# The folder that a backup lies in may be others', too.
_OPENING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def beside(target: Path) -> Iterator[Path]:
    """A new folder that its owner alone enters, on the disk of the backup at `target`."""
    _remove_left(target.parent)
    folder, descriptor = _locked(target.parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def _locked(parent: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds it."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        # Until it is locked, another program may take it for one that was left.
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, _OPENING)
            locks.lock(descriptor)
            if folder.exists():
                return folder, descriptor
            os.close(descriptor)


def _remove_left(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, a link, or one that has just gone
            descriptor = os.open(folder, _OPENING)
            try:
                if locks.try_lock(descriptor):
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)
