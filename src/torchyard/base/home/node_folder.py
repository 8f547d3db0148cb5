"""The folder of this machine that workers and jobs reach.

Owns: where environments, caches, scratch folders and the worker's program are on a node.
Leaves: what is in them to the packages that write them, starting workers to executors/.
Always: in the home folder where the server and the jobs are one Unix user; in a folder apart from
the home, which then no job can enter, where a runner starts jobs as other users.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


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
    def bytecode_cache(self) -> Path:
        """Compiled modules; hard links lead from environments into it."""
        return self.cache / "bytecode"

    @property
    def wheels(self) -> Path:
        """Wheels that builds of another user fetched, by their SHA-256; builds read them."""
        return self.cache / "wheels"

    @property
    def data(self) -> Path:
        """Copies of inputs; jobs read those that were granted to them."""
        return self.cache / "data"

    @property
    def scratch(self) -> Path:
        """One folder for each attempt, which belongs to the user that its job runs as."""
        return self.root / "scratch"

    @property
    def builds(self) -> Path:
        """Where the build user builds, one folder for each environment."""
        return self.root / "builds"

    @property
    def pythons(self) -> Path:
        """The Pythons that the server downloaded for builds of another user."""
        return self.root / "pythons"

    @property
    def workers(self) -> Path:
        """The worker's program, as one file."""
        return self.root / "workers"

    @property
    def server_file(self) -> Path:
        """Says where the server listens, for workers; others that share the home are beside it."""
        return self.public / "server.json"

    @property
    def public(self) -> Path:
        """What the server writes for every worker, such as where it listens."""
        return self.root / "server" if self.is_separate else self.root

    def prepare(self) -> None:
        """Make the folders of a separate one that the server writes; nothing in a home.

        Copies of inputs can be entered by those who know their names, and read by whom the server
        lets; see shared/access_lists.py.
        """
        if not self.is_separate:
            return
        modes = {self.environments: 0o755, self.cache: 0o711, self.data: 0o711, self.public: 0o755}
        modes |= {self.builds: 0o711, self.pythons: 0o755, self.wheels: 0o711}
        for folder, mode in modes.items():
            folder.mkdir(parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o777 != mode:
                folder.chmod(mode)
