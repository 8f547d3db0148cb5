"""What fills the server's disk: by kind, by job or asset, by person.

Owns: measuring the home and the node folder, whose each part is.
Leaves: what can be removed of it to reclaiming.py.
Always: each file counts once, where it is met first, however many names it has; nothing is changed
or locked, and a file that goes away meanwhile is left out.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sqlalchemy import select

from torchyard.base.db import Database
from torchyard.data import assets as data
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE, MODELS, UPLOADS, artifacts_of
from torchyard.jobs.files import scratch
from torchyard.jobs.records import attempt_store, store
from torchyard.jobs.services import FileServices, Services
from torchyard.models import registry
from torchyard.workspaces import actions as workspaces

_ARTIFACTS = artifacts_of("").rpartition("/")
_OUTPUTS = "azureml"


@dataclass(frozen=True)
class DiskItem:
    """The files of one kind of a job, an asset or the server; `owner` is empty for the server's."""

    kind: str
    name: str
    owner: str
    size_bytes: int
    workspace: str = ""


@dataclass(frozen=True)
class DiskUse:
    """Largest items first; `free_bytes` are those of the home's disk."""

    items: list[DiskItem]
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items)

    def by_kind(self) -> dict[str, int]:
        return _sums((item.kind, item.size_bytes) for item in self.items)

    def by_owner(self) -> dict[str, int]:
        """By person; the empty name has what belongs to no one person."""
        return _sums((item.owner, item.size_bytes) for item in self.items)


@dataclass
class _Measure:
    """Adds up folders; a file with several names counts in the first."""

    seen: set[tuple[int, int]] = field(default_factory=set)

    def size(self, top: Path | os.DirEntry[str]) -> int:
        total, folders = 0, [os.fspath(top)]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        else:
                            total += self.of_file(entry)
            except OSError:
                continue  # it is gone, or another user's
        return total

    def of_file(self, entry: os.DirEntry[str]) -> int:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            return 0
        if status.st_nlink > 1:
            identity = (status.st_dev, status.st_ino)
            if identity in self.seen:
                return 0
            self.seen.add(identity)
        return status.st_size


def measure(services: Services) -> DiskUse:
    """Walk the home once; tens of thousands of jobs take seconds."""
    sizes = _Measure()
    owners = _owners_of_jobs(services.db)
    items: list[DiskItem] = []
    for workspace in workspaces.list_all(services.db):
        items += _of_workspace(services, workspace.name, owners, sizes)
    items += _scratch(services, owners, sizes)
    items += _of_server(services, sizes)
    items = [item for item in items if item.size_bytes]
    items.sort(key=lambda item: (-item.size_bytes, item.kind, item.name))
    return DiskUse(items, shutil.disk_usage(services.home).free)


def _of_workspace(
    services: FileServices, workspace: str, owners: Mapping[tuple[str, str], str], sizes: _Measure
) -> Iterator[DiskItem]:
    def of_jobs(kind: str, top: Path, prefix: str = "") -> Iterator[DiskItem]:
        for folder in _folders(top):
            job = folder.name.removeprefix(prefix)
            if size := sizes.size(folder):
                yield DiskItem(kind, job, owners.get((workspace, job), ""), size, workspace)

    artifacts = services.datastores.root(workspace, ARTIFACT_STORE)
    uploads = services.datastores.root(workspace, BLOB_STORE)
    # Registered files first: what is linked elsewhere as well counts for them.
    yield from _registered(services.db, workspace, uploads, sizes)
    yield from of_jobs("outputs", artifacts / _ARTIFACTS[0], _ARTIFACTS[2])
    yield from of_jobs("outputs", uploads / _OUTPUTS)
    yield from of_jobs("logs", services.logs.folder(workspace, "x").parent)
    others = [path for root in (artifacts, uploads) for path in _folders(root)]
    listed = {_ARTIFACTS[0], _OUTPUTS, MODELS, UPLOADS}
    size = sum(sizes.size(folder) for folder in others if folder.name not in listed)
    yield DiskItem("data", "other files of the datastores", "", size, workspace)


def _registered(db: Database, workspace: str, root: Path, sizes: _Measure) -> Iterator[DiskItem]:
    """Models and uploaded data, each folder once."""
    models = {
        "/".join(model.folder.split("/")[:3]): model
        for model in registry.all_versions(db, workspace, archived=True)
        if model.folder
    }
    for name in _folders(root / MODELS):
        for folder in _folders(Path(name)):
            model = models.get(f"{MODELS}/{name.name}/{folder.name}")
            shown = f"{model.name}:{model.version}" if model else f"{name.name} (not registered)"
            owner = model.owner if model else ""
            yield DiskItem("models", shown, owner, sizes.size(folder), workspace)
    uploaded = {}
    for asset in data.list_versions(db, workspace):
        path = asset.uri.partition(f"/{BLOB_STORE}/paths/{UPLOADS}/")[2]
        uploaded[path.partition("/")[0]] = asset
    for folder in _folders(root / UPLOADS):
        upload = uploaded.get(folder.name)
        shown = f"{upload.name}:{upload.version}" if upload else f"{folder.name} (not registered)"
        owner = upload.owner if upload else ""
        yield DiskItem("data", shown, owner, sizes.size(folder), workspace)


def _scratch(
    services: Services, owners: Mapping[tuple[str, str], str], sizes: _Measure
) -> Iterator[DiskItem]:
    attempts, jobs = attempt_store.attempts, store.jobs
    query = select(attempts.c.id, jobs.c.workspace, jobs.c.name).join(
        jobs, jobs.c.id == attempts.c.job_id
    )
    folders = list(scratch.folders(services))
    if not folders:
        return
    with services.db.read() as connection:
        job_of = {row.id: (row.workspace, row.name) for row in connection.execute(query)}
    for folder in folders:
        workspace, job = job_of.get(folder.name, ("", folder.name))
        if services.runner is None:
            size = sizes.size(scratch.folder(services, folder.name))
        else:
            size = scratch.size_bytes(services.runner, folder.name)
        yield DiskItem("scratch", job, owners.get((workspace, job), ""), size, workspace)


def _of_server(services: FileServices, sizes: _Measure) -> Iterator[DiskItem]:
    home, node = services.home, services.node
    for folder in _folders(node.environments):
        yield DiskItem("environments", folder.name[:12], "", sizes.size(folder))
    for kind, name, path in (
        ("environments", "Pythons", node.pythons),
        ("inputs", "copies of data for jobs", node.data),
        ("caches", "uv's downloads", node.uv_cache),
    ):
        yield DiskItem(kind, name, "", sizes.size(path))
    measured = {node.data, node.uv_cache}
    rest = [folder for folder in _folders(node.cache) if Path(folder) not in measured]
    yield DiskItem("caches", "other caches", "", sum(sizes.size(folder) for folder in rest))
    yield DiskItem("code", "uploaded files", "", sizes.size(home / "blobs"))
    listed = {"datastores", "logs", "environments", "cache", "blobs", "scratch", "pythons"}
    others = sum(sizes.size(folder) for folder in _folders(home) if folder.name not in listed)
    loose_bytes = sum(sizes.of_file(entry) for entry in _children(home) if entry.is_file())
    yield DiskItem("server", "database and other files", "", loose_bytes + others)


def _owners_of_jobs(db: Database) -> dict[tuple[str, str], str]:
    jobs = store.jobs
    with db.read() as connection:
        rows = connection.execute(select(jobs.c.workspace, jobs.c.name, jobs.c.owner))
        return {(row.workspace, row.name): row.owner for row in rows}


def _folders(top: Path) -> list[os.DirEntry[str]]:
    return [entry for entry in _children(top) if entry.is_dir(follow_symlinks=False)]


def _children(top: Path) -> list[os.DirEntry[str]]:
    """Sorted by name; not as paths, which take as long as measuring a small folder does."""
    try:
        with os.scandir(top) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Added up by key, largest first."""
    totals: dict[str, int] = defaultdict(int)
    for key, size in pairs:
        totals[key] += size
    return dict(sorted(totals.items(), key=lambda pair: -pair[1]))
