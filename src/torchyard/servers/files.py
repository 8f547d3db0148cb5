"""Which servers a home has, in files that commands and workers read.

Owns: `server.json`, which names one server of the home, and `servers/`, which has one file each
when several share it.
Leaves: reading them to client/embedded.py and shared/server_address.py; who is alive to lease.py.
Always: a file is complete or absent; the home of a single server has no `servers/`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torchyard
from torchyard.base.files import write_atomically
from torchyard.base.home.node_folder import NodeFolder
from torchyard.base.settings import Settings
from torchyard.servers.types import Server


class ServerFiles:
    """The files of one home, and copies for workers that can't enter it.

    Args:
        node: where those workers read the copies; None when they read the files of the home.
    """

    def __init__(self, home: Path, node: NodeFolder | None = None) -> None:
        settings = Settings(home)
        self._server_file = settings.server_file
        self._folder = settings.servers_folder
        self._locations = [_Location(self._server_file, 0o600)]
        if node is not None and node.is_separate:
            self._locations.append(_Location(node.server_file, 0o644))

    def name(self, server: Server) -> None:
        """Have `server.json` name this server."""
        for location in self._locations:
            _write(location.server_file, server, location.mode)

    def announce(self, server: Server) -> None:
        """Add the file of one of several servers."""
        for location in self._locations:
            location.folder.mkdir(parents=True, exist_ok=True)
            location.folder.chmod(location.mode | 0o111 if location.mode & 0o044 else 0o700)
            _write(location.folder / f"{server.id}.json", server, location.mode)

    def withdraw(self, id: str) -> None:
        for location in self._locations:
            (location.folder / f"{id}.json").unlink(missing_ok=True)

    def keep_only(self, ids: Collection[str]) -> None:
        """Withdraw all others."""
        for location in self._locations:
            for file in location.folder.glob("*.json"):
                if file.stem not in ids:
                    file.unlink(missing_ok=True)

    def forget_others(self) -> None:
        """Leave no file of several servers."""
        for location in self._locations:
            shutil.rmtree(location.folder, ignore_errors=True)

    def is_announced(self, id: str) -> bool:
        return (self._folder / f"{id}.json").exists()

    def read_named_id(self) -> str:
        """The id of the server that `server.json` names; empty when it names none of several."""
        try:
            body: Any = json.loads(self._server_file.read_bytes())
            return str(body.get("id", ""))
        except (OSError, ValueError, AttributeError):
            return ""

    def unname(self) -> None:
        for location in self._locations:
            location.server_file.unlink(missing_ok=True)


@dataclass(frozen=True)
class _Location:
    """A `server.json`, and `servers/` beside it."""

    server_file: Path
    mode: int

    @property
    def folder(self) -> Path:
        return self.server_file.parent / "servers"


def _write(file: Path, server: Server, mode: int) -> None:
    body = {
        "url": server.url,
        "pid": server.pid,
        "start_time": server.start_time,
        "version": torchyard.__version__,
    }
    if server.id:
        body |= {"id": server.id, "machine": server.machine}
    with write_atomically(file, mode=mode) as writing:
        writing.write(json.dumps(body).encode())
