"""The folder of this machine that workers and jobs reach.

Owns: where environments, caches, scratch folders and the worker's program are on a node.
Leaves: what is in them to the packages that write them, starting workers to executors/.
Always: in the home folder where the server and the jobs are one Unix user; in a folder apart from
the home, which then no job can enter, where a runner starts jobs as other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SHARED_DEFAULT = Path("/var/lib/torchyard-node")


@dataclass(frozen=True)
class NodeFolder:
    """
    Args:
        root: the server's home, or a folder apart from it.
        is_separate: whether jobs are other Unix users, which reach this folder and not the home.
    """

    root: Path
    is_separate: bool = False

    @property
    def environments(self) -> Path:
        """One folder for each built environment; jobs read them."""
        return self.root / "environments"

    @property
    def cache(self) -> Path:
        return self.root / "cache"

    @property
    def uv_cache(self) -> Path:
        """What builds downloaded; hard links lead from environments into it."""
        return self.cache / "uv"

    @property
    def data(self) -> Path:
        """Copies of inputs; jobs read those that were granted to them."""
        return self.cache / "data"

    @property
    def scratch(self) -> Path:
        """One folder for each attempt, which belongs to the user that its job runs as."""
        return self.root / "scratch"

    @property
    def workers(self) -> Path:
        """The worker's program, as one file."""
        return self.root / "workers"

    @property
    def server_file(self) -> Path:
        """Says where the server listens, for workers; others that share the home are beside it."""
        return (self.root / "server" if self.is_separate else self.root) / "server.json"
