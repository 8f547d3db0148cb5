"""The artifact store as Azure ML shows it: each run's folder holds its logs, too.

Owns: one view over the datastore's folder and the logs.
Leaves: where either lies to data/datastores.py and records/logs.py, their common paths to
artifacts.py.
Always: logs are only read; what the store holds itself is written as ever.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timezone
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import Conflict
from torchyard.data import datastores
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.data.folders import FolderFiles
from torchyard.data.types import Datastore, Entry, Files
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices

_TOP, _, _MARK = artifacts_of("").rpartition("/")


def opened(services: FileServices, datastore: Datastore) -> Files:
    """The files of a datastore, as Azure ML shows them."""
    if datastore.name == ARTIFACT_STORE:
        return RunFiles(services, datastore.workspace)
    return datastores.open_files(services.db, services.datastores, datastore)


class RunFiles:
    """`data.types.Files` over the artifact store of one workspace."""

    def __init__(self, services: FileServices, workspace: str) -> None:
        self._services = services
        self._workspace = workspace
        self._stored = FolderFiles(services.datastores.root(workspace, ARTIFACT_STORE))

    def entry(self, path: str) -> Entry | None:
        entry = self._stored.entry(path)
        if entry is not None:
            return entry
        log = self._log(path)
        return None if log is None else _entry(log, path)

    def is_folder(self, path: str) -> bool:
        return self._stored.is_folder(path) or any(self._logs(_as_folder(path)))

    def walk(self, prefix: str) -> Iterator[Entry]:
        top = _as_folder(prefix)
        entries = {entry.path: entry for entry in self._stored.walk(prefix)}
        for path, log in self._logs(top):
            below = path.removeprefix(top)
            entries.setdefault(below, _entry(log, below))
        for path in sorted(entries):
            yield entries[path]

    def ordered(self, prefix: str, after: str = "", fold: bool = False) -> Iterator[Entry | str]:
        """As `FolderFiles.ordered`."""
        logs = self._ordered_logs(prefix, after, fold)
        last = ""
        for item in heapq.merge(self._stored.ordered(prefix, after, fold), logs, key=_path):
            if _path(item) != last:  # a folder may hold both
                yield item
            last = _path(item)

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        log = None if self._stored.entry(path) is not None else self._log(path)
        if log is None:
            return self._stored.read(path, start, limit)
        file = files.reading(log)
        file.seek(start)
        return files.chunks(file, limit)

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        for path, target in pairs:
            files.copy(self.local(path), target)

    def writing(self, path: str) -> AbstractContextManager[files.Writing]:
        self._refuse_log(path)
        return self._stored.writing(path)

    def delete(self, path: str) -> None:
        self._refuse_log(path)
        self._stored.delete(path)

    def local(self, path: str, person: str = "") -> Path:
        file = self._stored.local(path)
        assert file is not None, "the artifact store is a folder of the server"
        if self._stored.exists(path):
            return file
        return self._log(path) or file

    def _refuse_log(self, path: str) -> None:
        if self._log(path) is not None:
            raise Conflict(
                f"`{path}` is a log, which its job alone writes",
                "choose another path",
                at=["path"],
            )

    def _log(self, path: str) -> Path | None:
        """The log file that a path of the store names, if it names one."""
        name, below = _split(path)
        job = self._job(name) if below else None
        logs = artifacts.logs_of(self._services.logs, job) if job else ()
        return next((log for shown, log in logs if shown == below), None)

    def _ordered_logs(self, prefix: str, after: str, fold: bool) -> Iterator[Entry | str]:
        last_path = ""
        for path, log in self._logs(prefix):
            folder, slash, _ = path[len(prefix) :].partition("/")
            shown = f"{prefix}{folder}/" if fold and slash else path
            if shown <= after or shown == last_path:
                continue
            last_path = shown
            yield shown if shown != path else _entry(log, path)

    def _logs(self, prefix: str) -> Iterator[tuple[str, Path]]:
        """(path in the store, log file) of every log whose path begins so, by path."""
        for name in self._names(prefix):
            job = self._job(name)
            logs = artifacts.logs_of(self._services.logs, job) if job is not None else ()
            for shown, log in sorted(logs):
                path = f"{artifacts_of(name)}/{shown}"
                if path.startswith(prefix):
                    yield path, log

    def _names(self, prefix: str) -> list[str]:
        """The jobs whose logs can have such a path."""
        start = f"{_TOP}/{_MARK}"
        if not prefix.startswith(start) and not start.startswith(prefix):
            return []
        name_start, slash, _ = prefix.removeprefix(start).partition("/")
        if prefix.startswith(start) and slash:
            return [name_start]
        name_start = name_start if prefix.startswith(start) else ""
        try:
            names = os.listdir(self._services.logs.folder(self._workspace, "_").parent)
        except FileNotFoundError:
            return []
        return sorted((name for name in names if name.startswith(name_start)), key=_as_folder)

    def _job(self, name: str) -> Job | None:
        return actions.find_by_name(self._services.db, self._workspace, name) if name else None


def _split(path: str) -> tuple[str, str]:
    """(job, path in its folder); both empty where a path names no job's folder."""
    top, _, rest = path.strip("/").partition("/")
    folder, _, below = rest.partition("/")
    if top != _TOP or not folder.startswith(_MARK):
        return "", ""
    return folder.removeprefix(_MARK), below


def _as_folder(path: str) -> str:
    return f"{path.strip('/')}/" if path.strip("/") else ""


def _path(item: Entry | str) -> str:
    return item if isinstance(item, str) else item.path


def _entry(file: Path, path: str) -> Entry:
    status = os.stat(file)
    modified_at = datetime.fromtimestamp(status.st_mtime, timezone.utc)
    return Entry(path, status.st_size, f"{status.st_mtime_ns}-{status.st_ino}", modified_at)
