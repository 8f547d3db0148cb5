"""Blocks of files that are being uploaded.

Owns: the folder `uploads/` of the server's home: one folder per file, one file per block.
Leaves: which blocks make the file, and where it goes, to the caller.
Always: a block is complete or absent, and sending it again replaces it; the blocks of a file are
deleted a day after the last one arrived.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import NotFound
from torchyard.data.file_properties import Block

_MAX_IDLE_S = 24 * 3600.0
_SWEEP_EVERY_S = 600.0


class Blocks:
    """The blocks of one home; servers that share it share them.

    Args:
        folder: may be on another disk than the datastores.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now_s = now_s
        self._swept_at_s = 0.0

    def writing(self, file: str, block_id: str) -> AbstractContextManager[files.Writing]:
        """Open one block for writing.

        Args:
            file: a key of the file; any text.
            block_id: at most 64 bytes of text.
        """
        if self._now_s() - self._swept_at_s > _SWEEP_EVERY_S:
            self._swept_at_s = self._now_s()
            self.sweep()
        return files.write_atomically(self._folder_of(file) / _name(block_id), mode=0o600)

    def list(self, file: str) -> dict[str, Block]:
        """The blocks that have arrived by id, sorted by id."""
        blocks = {}
        with suppress(FileNotFoundError), os.scandir(self._folder_of(file)) as entries:
            for entry in entries:
                block_id = _id(entry.name)
                if block_id is not None:
                    blocks[block_id] = Block(block_id, entry.stat().st_size)
        return dict(sorted(blocks.items()))

    def read(self, file: str, block_id: str) -> Iterator[bytes]:
        """
        Raises:
            NotFound: there is none.
        """
        try:
            return files.chunks(open(self._folder_of(file) / _name(block_id), "rb"))
        except FileNotFoundError as error:
            raise NotFound(f"block `{block_id[:64]}` does not exist") from error

    def drop(self, file: str) -> None:
        """Delete all blocks of a file."""
        shutil.rmtree(self._folder_of(file), ignore_errors=True)

    def sweep(self) -> None:
        """Delete the blocks of abandoned uploads."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if self._now_s() - entry.stat().st_mtime > _MAX_IDLE_S:
                        shutil.rmtree(entry.path, ignore_errors=True)

    def _folder_of(self, file: str) -> Path:
        return self._folder / hashlib.sha256(file.encode("utf-8", "surrogatepass")).hexdigest()


def _name(block_id: str) -> str:
    return base64.urlsafe_b64encode(block_id.encode()).decode()


def _id(name: str) -> str | None:
    """The id of a block from its file's name; None while it is being written."""
    if name.startswith("."):
        return None
    try:
        return base64.urlsafe_b64decode(name).decode()
    except (ValueError, binascii.Error):
        return None
