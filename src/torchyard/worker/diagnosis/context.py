"""What a diagnosis needs to know about its node.

Owns: where the Pythons of each rank leave their records, how a moment is written in
an error.
Leaves: reading them to artifacts.py.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torchyard.worker.system.memory_kills import MemoryKills


@dataclass(frozen=True)
class DiagnosisContext:
    """`errors` holds one folder per rank; `has_peers` says whether the job has other ranks.

    `search_path` is the ranks' PATH; `own_path` is the job's own variable PATH, empty where it
    sets none. `listeners` are the ranks that listened when the first one failed, by port.
    """

    node: int
    has_peers: bool
    work: Path
    errors: Path
    memory_kills: MemoryKills
    search_path: str = ""
    command: str = ""
    own_path: str = ""
    listeners: Mapping[int, int] = field(default_factory=dict)

    def records_folder(self, rank: int) -> Path:
        return self.errors / f"rank-{rank}"


@dataclass(frozen=True)
class DoneWork:
    """What a node knows of ranks that succeeded.

    `is_whole` says that the job has no other ranks, `has_logged` that a rank logged a metric or
    wrote an output, `has_gpus` that the node has a GPU or the job does as if. `lost_figures` are,
    by metric whose last values are not finite, the record of the first of these and how many they
    are.
    """

    command: str
    is_whole: bool = True
    has_logged: bool = False
    has_gpus: bool = False
    lost_figures: Mapping[str, tuple[Mapping[str, Any], int]] = field(default_factory=dict)


def iso_time(at: float) -> str:
    """Seconds since 1970 as ISO 8601 in UTC with microseconds."""
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return f"{text}.{int(at % 1 * 1e6):06d}Z"
