"""What a node found out before its ranks start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchyard.worker.files.node_folders import Layout, NodeFolders
from torchyard.worker.preflight.rendezvous import Rendezvous


@dataclass(frozen=True)
class Surroundings:
    """What a node found out; `programs` is the environment's bin folder, None without one."""

    hostname: str
    folders: NodeFolders
    layout: Layout
    meeting: Rendezvous
    relay_url: str
    temporary: Path
    programs: Path | None
    cpu_count: int
