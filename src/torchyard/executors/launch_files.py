"""The plans of attempts whose nodes don't see the server's disk.

Owns: keeping them for the nodes that ask, as long as the attempt runs.
Leaves: giving them out to jobs/http/, what is told to a node to shared/node_start.py.
Always: a plan holds tokens, so only the server's own user reads the file.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from torchyard.base import files
from torchyard.shared.plan import LaunchPlan

FOLDER = "launches"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class LaunchFiles:
    """
    Args:
        home: the server's own folder; servers that share it see each other's plans.
    """

    def __init__(self, home: Path) -> None:
        self._folder = home / FOLDER

    def keep(self, plan: LaunchPlan) -> None:
        """Store or replace the plan of an attempt."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with files.write_atomically(self._file(plan.attempt_id), mode=0o600) as file:
            file.write(plan.to_json().encode())

    def read(self, attempt_id: str) -> str | None:
        """The plan as JSON; None when the attempt has none, or has ended."""
        try:
            return self._file(attempt_id).read_text()
        except FileNotFoundError:
            return None

    def remove(self, attempt_id: str) -> None:
        with suppress(FileNotFoundError):
            self._file(attempt_id).unlink()

    def all(self) -> list[str]:
        """The attempts that have one."""
        if not self._folder.exists():
            return []
        return sorted(file.stem for file in self._folder.glob("*.json"))

    def _file(self, attempt_id: str) -> Path:
        assert _ID.fullmatch(attempt_id), attempt_id
        return self._folder / f"{attempt_id}.json"
