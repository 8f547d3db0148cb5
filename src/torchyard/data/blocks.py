"""Parts of files that are on their way.

Owns: the folder `uploads/` of the server's home: a folder a file, a file a part.
Leaves: which parts make the file, and where it goes, to whoever takes them.
Always: a part is there whole or not at all, and sending it again replaces it; parts of a file to
which nothing came for a day go.
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

_KEPT_S = 24 * 3600.0
_SWEPT_EVERY_S = 600.0


class Blocks:
    """Of one home; servers that share it see each other's.

    Args:
        folder: may be on another disk than the datastores are.
    """

    def __init__(self, folder: Path, now_s: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now_s = now_s
        self._swept_at_s = 0.0

    def writing(self, file: str, block_id: str) -> AbstractContextManager[files.Writing]:
        """Open one part for writing.

        Args:
            file: tells files apart; any text.
            block_id: at the most 64 bytes of text.
        """
        if self._now_s() - self._swept_at_s > _SWEPT_EVERY_S:
            self._swept_at_s = self._now_s()
            self.sweep()
        return files.whole(self._place(file) / _name(block_id), mode=0o600)

    def list(self, file: str) -> dict[str, Block]:
        """By id, those that have come, in the order of their ids."""
        found = {}
        with suppress(FileNotFoundError), os.scandir(self._place(file)) as entries:
            for entry in entries:
                block_id = _id(entry.name)
                if block_id is not None:
                    found[block_id] = Block(block_id, entry.stat().st_size)
        return dict(sorted(found.items()))

    def read(self, file: str, block_id: str) -> Iterator[bytes]:
        """
        Raises:
            NotFound: there is none.
        """
        try:
            return files.chunks(open(self._place(file) / _name(block_id), "rb"))
        except FileNotFoundError as error:
            raise NotFound(f"there is no block `{block_id[:64]}`") from error

    def drop(self, file: str) -> None:
        """Every part of a file."""
        shutil.rmtree(self._place(file), ignore_errors=True)

    def sweep(self) -> None:
        """Drop what nobody goes on with."""
        with suppress(FileNotFoundError), os.scandir(self._folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if self._now_s() - entry.stat().st_mtime > _KEPT_S:
                        shutil.rmtree(entry.path, ignore_errors=True)

    def _place(self, file: str) -> Path:
        return self._folder / hashlib.sha256(file.encode("utf-8", "surrogatepass")).hexdigest()


def _name(block_id: str) -> str:
    return base64.urlsafe_b64encode(block_id.encode()).decode()


def _id(name: str) -> str | None:
    """The id of a part's file; None for one that is not whole yet."""
    if name.startswith("."):
        return None
    try:
        return base64.urlsafe_b64decode(name).decode()
    except (ValueError, binascii.Error):
        return None
