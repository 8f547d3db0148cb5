"""The setup of a node that its ranks are started with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torchyard.worker.files.node_folders import Layout, NodeFolders
from torchyard.worker.preflight.rendezvous import Rendezvous


@dataclass(frozen=True)
class NodeSetup:
    """The result of the preparation; `programs` is the environment's bin folder, if any."""

    hostname: str
    folders: NodeFolders
    layout: Layout
    rendezvous: Rendezvous
    relay_url: str
    temporary: Path
    programs: Path | None
    cpu_count: int
