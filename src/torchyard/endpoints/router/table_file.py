"""Following the table's file.

Owns: noticing a new table within 0.2 s, keeping the last good one.
Leaves: what a table means to table.py and routes.py.
Always: a table that is broken, half written or gone changes nothing; its log says so once; of a
table with a broken endpoint the others count, and that one goes on as it was.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path

from torchyard.endpoints.router.table import BrokenTable, Table, parse

LOOK_S = 0.1
_log = logging.getLogger(__name__)


class TableFile:
    """One file, looked at again and again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._identity: tuple[int, int, int] | None = None
        self._said = ""
        self.table = Table()

    def refresh(self) -> bool:
        """Whether `table` has changed."""
        try:
            status = os.stat(self._file)
            identity = (status.st_ino, status.st_mtime_ns, status.st_size)
            if identity == self._identity:
                return False
            content = self._file.read_bytes()
            self._identity = identity
            read = parse(content)
        except FileNotFoundError:
            return False  # no keeper has written one
        except (OSError, BrokenTable) as error:
            self._say(f"the table can't be used; the last good one goes on: {error}")
            return False
        for name, message in read.broken.items():
            self._say(f"the table's endpoint `{name[:80]}` is broken: {message}")
        previous = {
            name: self.table.endpoints[name] for name in read.broken if name in self.table.endpoints
        }
        self.table = replace(read, endpoints={**read.endpoints, **previous})
        if not read.broken:
            self._said = ""
        return True

    def _say(self, message: str) -> None:
        if message != self._said:
            self._said = message
            _log.error("%s", message)
