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
from pathlib import Path
from typing import Any

import torchyard
from torchyard.base.files import whole
from torchyard.base.settings import Settings
from torchyard.servers.types import Server


class ServerFiles:
    """The files of one home."""

    def __init__(self, home: Path) -> None:
        settings = Settings(home)
        self._named = settings.server_file
        self._folder = settings.servers_folder

    def name(self, server: Server) -> None:
        """Have `server.json` name this server."""
        _write(self._named, server)

    def announce(self, server: Server) -> None:
        """Add the file of one of several servers."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _write(self._folder / f"{server.id}.json", server)

    def withdraw(self, id: str) -> None:
        (self._folder / f"{id}.json").unlink(missing_ok=True)

    def keep_only(self, ids: Collection[str]) -> None:
        """Withdraw all others."""
        for file in self._folder.glob("*.json"):
            if file.stem not in ids:
                file.unlink(missing_ok=True)

    def forget_others(self) -> None:
        """Leave no file of several servers."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def is_announced(self, id: str) -> bool:
        return (self._folder / f"{id}.json").exists()

    def named(self) -> str:
        """The id of the server that `server.json` names; empty when it names none of several."""
        try:
            body: Any = json.loads(self._named.read_bytes())
            return str(body.get("id", ""))
        except (OSError, ValueError, AttributeError):
            return ""

    def unname(self) -> None:
        self._named.unlink(missing_ok=True)


def _write(file: Path, server: Server) -> None:
    body = {
        "url": server.url,
        "pid": server.pid,
        "start_time": server.start_time,
        "version": torchyard.__version__,
    }
    if server.id:
        body |= {"id": server.id, "machine": server.machine}
    with whole(file, mode=0o600) as writing:
        writing.write(json.dumps(body).encode())
