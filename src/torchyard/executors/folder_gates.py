"""The gates of all shared folders of a server.

Owns: which shared folders are in use, by attempts that run and by those that ran once; a gate for
each, in one of the servers that share a home.
Leaves: a folder's requests to folder_gate.py.
Always: a shared folder that does not answer holds up no other.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchyard.executors import shared_folders
from torchyard.executors.folder_gate import FolderGate
from torchyard.executors.launch_files import LaunchFiles
from torchyard.shared import locks
from torchyard.shared.server_address import ServerAddress

_LOOK_EVERY_S = 1.0
_FOLDER = "shared-folders"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Plan:
    shared: str
    tokens: tuple[str, ...]


class FolderGates:
    """
    Args:
        home: the server's.
        address: where this server is found from its own machine.
    """

    def __init__(self, home: Path, server_id: str, address: Callable[[], ServerAddress]) -> None:
        self._folder = home / _FOLDER
        self._launches = LaunchFiles(home)
        self._server_id = server_id
        self._address = address
        self._plans = _Plans(self._launches)
        self._gates: dict[str, tuple[FolderGate, int]] = {}
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="folder-gates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
        for gate, lock in self._gates.values():
            gate.stop()
            os.close(lock)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                for shared in {*self._plans.read(), *self._known()} - set(self._gates):
                    self._open(shared)
            except Exception:
                _log.exception("the shared folders of clusters can't be served; trying again")
            self._stopped.wait(_LOOK_EVERY_S)

    def _known(self) -> list[str]:
        """Shared folders that were in use once: a server that was killed may have left files."""
        if not self._folder.exists():
            return []
        return [str(json.loads(file.read_text())) for file in self._folder.glob("*.json")]

    def _open(self, shared: str) -> None:
        name = hashlib.sha256(shared.encode()).hexdigest()[:16]
        folder = shared_folders.server_folder(shared, self._server_id)
        if not folder.is_dir():
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self._folder / f"{name}.json").write_text(json.dumps(shared))
        lock = locks.open_lock(self._folder / f"{name}.lock")
        if not locks.try_lock(lock):
            os.close(lock)  # another server of this home serves it
            return
        gate = FolderGate(folder, self._folder / name, self._connection)
        self._gates[shared] = (gate, lock)
        plans = _Plans(self._launches)
        gate.start(lambda: plans.read().get(shared, {}))

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        address = self._address()
        return address.connection(address.parts, timeout_s)


class _Plans:
    """What the plans of running attempts say; each is read once."""

    def __init__(self, launches: LaunchFiles) -> None:
        self._launches = launches
        # By attempt: its shared folder and tokens; None where its nodes reach the server otherwise.
        self._read: dict[str, _Plan | None] = {}

    def read(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """The tokens of attempts, by shared folder and attempt."""
        plans: dict[str, _Plan | None] = {}
        by_folder: dict[str, dict[str, tuple[str, ...]]] = {}
        for id in self._launches.all():
            if id in self._read:
                plans[id] = self._read[id]
            elif (text := self._launches.read(id)) is not None:
                plans[id] = _plan(text)
            plan = plans.get(id)
            if plan is not None:
                by_folder.setdefault(plan.shared, {})[id] = plan.tokens
        self._read = plans
        return by_folder


def _plan(text: str) -> _Plan | None:
    body = json.loads(text)
    shared = (body.get("engine_settings") or {}).get(shared_folders.KEY)
    return _Plan(str(shared), (body["report_token"], body["run_token"])) if shared else None
