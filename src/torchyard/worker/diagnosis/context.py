"""What is known of a node when one looks at why its ranks ended or where they stand.

Owns: where the Pythons of each rank leave their records.
Leaves: reading them to artifacts.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchyard.worker.system.memory_kills import MemoryKills


@dataclass(frozen=True)
class Scene:
    """`errors` holds a folder a rank; `together` says that the job has other ranks."""

    node: int
    together: bool
    work: Path
    errors: Path
    memory: MemoryKills

    def folder(self, rank: int) -> Path:
        return self.errors / f"rank-{rank}"
