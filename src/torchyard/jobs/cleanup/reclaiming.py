"""Garbage collection on the server's disk: remove what nothing needs any more.

Owns: which blobs, environments, copies of inputs, caches, scratch folders and logs are removed,
which stay, and why.
Leaves: which records name what to references.py, blobs to unnamed_blobs.py, files of interrupted
programs to stale_files.py,
folders of models and uploads that are not registered to unregistered.py, stored budgets to
reclaiming_settings.py, each folder to the package that owns it.
Always: what a record names stays; each item is checked again at the moment of its removal, under
the lock that its users hold.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from torchyard.base.clock import Clock
from torchyard.base.errors import Conflict
from torchyard.environments.packages import caches
from torchyard.executors.runner_client import RunnerRefused
from torchyard.jobs.cleanup import references, stale_files, unnamed_blobs, unregistered
from torchyard.jobs.files import scratch
from torchyard.jobs.records import store
from torchyard.jobs.records.types import ENDED
from torchyard.jobs.services import FileServices, Services
from torchyard.shared import locks

DAY_S = 86_400.0
# Nothing names the blobs of an upload in progress; no upload takes this long.
_UPLOAD_S = DAY_S
_LEAST_S = 600.0
_UNREGISTERED = "unregistered"
_CLIENTS = "used by the `yard` command: hashes of what it uploaded from here"


@dataclass(frozen=True)
class GcOptions:
    """What to remove.

    Args:
        older_than_s: environments and inputs unused for longer are removed.
        budget_bytes: of environments and inputs together; beyond it the least recently used go.
        logs_bytes: of the logs of ended jobs; beyond it the oldest go first. None keeps them all.
        caches_bytes: of uv's downloads; beyond it the whole cache goes. None checks its age only.
    """

    older_than_s: float = 14 * DAY_S
    budget_bytes: int | None = None
    logs_bytes: int | None = None
    caches_bytes: int | None = None

    @property
    def grace_s(self) -> float:
        """For blobs, scratch folders and stale files, which are not used again."""
        return max(_LEAST_S, min(self.older_than_s, _UPLOAD_S))


@dataclass(frozen=True)
class GcItem:
    """Something on the disk; `reason` says why it is removed, or why it stays."""

    kind: str
    name: str
    size_bytes: int
    remove: bool
    reason: str
    used_at_s: float = 0.0


def survey(services: Services, options: GcOptions) -> list[GcItem]:
    """List everything there is and whether it would be removed; change nothing."""
    return [
        *_blobs(services, options),
        *_within(options, [*_environments(services, options), *_inputs(services, options)]),
        *_caches(services, options),
        *_scratch(services, options),
        *_stale_files(services, options),
        *_unregistered(services, options),
        *_logs(services, options),
    ]


def reclaim(services: Services, options: GcOptions) -> list[GcItem]:
    """Remove what `options` allow; what is in use again by now stays and says so.

    Raises:
        Conflict: another run is in progress.
    """
    with _exclusive(services.home):
        items = survey(services, options)
        # Together: each time, every record is looked through.
        chosen = {item.name for item in items if item.kind == _UNREGISTERED and item.remove}
        removed = unregistered.remove(services, chosen, _unused_before_s(services.clock, options))
        return [
            (item if item.name in removed else _stays(item))
            if item.kind == _UNREGISTERED and item.remove
            else _removed(services, options, item)
            for item in items
        ]


def _removed(services: Services, options: GcOptions, item: GcItem) -> GcItem:
    if not item.remove:
        return item
    now_s = services.clock.now().timestamp()
    is_removed = True
    if item.kind == "blobs":
        removed = unnamed_blobs.remove(services, now_s - options.grace_s)
        return replace(item, name=f"{removed} files") if removed else _stays(item)
    if item.kind == "environment":
        is_removed = services.environments.folders.remove(
            item.name, lambda connection: item.name in references.environments(connection)
        )
    elif item.kind == "input":
        is_removed = services.fetcher.remove(item.name, item.used_at_s)
    elif item.kind == "cache":
        is_removed = caches.remove(services.node.cache / item.name)
    elif item.kind == "stale_file":
        is_removed = _remove_stale_file(services, item.name, now_s - options.grace_s)
    elif item.kind == "scratch":
        is_removed = _remove_scratch(services, item.name)
    elif item.kind == "logs":
        workspace, _, job = item.name.partition("/")
        shutil.rmtree(services.logs.folder(workspace, job), ignore_errors=True)
    return item if is_removed else _stays(item)


def _stays(item: GcItem) -> GcItem:
    return replace(item, remove=False, reason="in use again since it was checked")


# Blobs


def _blobs(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    found = unnamed_blobs.survey(services)
    for snapshot, size, (first, *others) in found.named:
        more = f" and {len(others)} more" if others else ""
        yield GcItem("snapshot", snapshot[:12], size, False, f"used by {first}{more}")
    before_s = services.clock.now().timestamp() - options.grace_s
    for remove, reason in (
        (True, "no job, model or data asset uses them"),
        (False, "new: an upload may be in progress"),
    ):
        group = [size for size, at in found.unnamed if (at < before_s) is remove]
        if group:
            yield GcItem("blobs", f"{len(group)} files", sum(group), remove, reason)


# Environments and inputs


def _environments(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    with services.db.read() as connection:
        needed = references.environments(connection)
    for hash, folder in services.environments.folders.all():
        job = needed.get(hash)
        used_at_s = folder.stat().st_mtime
        remove, reason = _by_age(services.clock, options, used_at_s)
        if job is not None:
            remove, reason = False, f"job `{job}` needs it"
        yield GcItem("environment", hash, _size(folder), remove, reason, used_at_s)


def _inputs(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    with services.db.read() as connection:
        oldest = references.oldest_with_inputs(connection)
    for name, folder in services.fetcher.copies():
        used_at_s = folder.stat().st_mtime
        remove, reason = _by_age(services.clock, options, used_at_s)
        # A copy not requested since then belongs neither to that job nor to a later one.
        if oldest is not None and used_at_s >= oldest[0].timestamp():
            remove, reason = False, f"job `{oldest[1]}` or a later one may read it"
        yield GcItem("input", name, _size(folder), remove, reason, used_at_s)


def _by_age(clock: Clock, options: GcOptions, used_at_s: float) -> tuple[bool, str]:
    unused_s = clock.now().timestamp() - used_at_s
    reason = f"unused for {max(0.0, unused_s) / DAY_S:.1f} days"
    return unused_s > options.older_than_s, reason


def _within(options: GcOptions, items: list[GcItem]) -> Iterator[GcItem]:
    """Remove the least recently used beyond the budget as well, unless a job needs them."""
    over = sum(item.size_bytes for item in items if not item.remove)
    over -= over if options.budget_bytes is None else options.budget_bytes
    for item in sorted(items, key=lambda item: item.used_at_s):
        if over > 0 and not item.remove and not item.reason.startswith("job "):
            over -= item.size_bytes
            yield replace(item, remove=True, reason=f"{item.reason}, and beyond the budget")
        else:
            yield item


# Caches and stale files


def _caches(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    """Builds' caches are removed as a whole: they only save downloads and compiling."""
    node, cache = services.node, services.node.cache
    of_builds = (node.uv_cache, node.bytecode_cache, node.wheels)
    for folder in sorted(cache.iterdir()) if cache.exists() else ():
        if folder.name == "data" or folder.name.startswith(".") or not folder.is_dir():
            continue  # copies of inputs, and removals: listed elsewhere
        size, used_at_s = _size(folder), folder.stat().st_mtime
        if folder not in of_builds:
            reason = _CLIENTS if folder.name == "snapshots" else "not made by torchyard"
            yield GcItem("cache", folder.name, size, False, reason, used_at_s)
            continue
        remove, reason = _by_age(services.clock, options, used_at_s)
        if not remove and options.caches_bytes is not None and size > options.caches_bytes:
            remove, reason = True, f"{reason}, and beyond the budget of caches"
        yield GcItem("cache", folder.name, size, remove, reason, used_at_s)


def _stale_files(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    before_s = services.clock.now().timestamp() - options.grace_s
    for draft in stale_files.find(services.home, services.node):
        touched_at_s = draft.touched_at_s
        remove = touched_at_s <= before_s
        reason = f"{draft.what} that was interrupted"
        if not remove:
            reason = f"new: {draft.what} may be in progress"
        name = _name(services, draft.path)
        size = _size(draft.path) if draft.path.is_dir() else _size_of_file(draft.path)
        yield GcItem("stale_file", name, size, remove, reason, touched_at_s)


def _remove_stale_file(services: FileServices, name: str, before_s: float) -> bool:
    for draft in stale_files.find(services.home, services.node):
        if _name(services, draft.path) == name:
            return draft.remove(before_s)
    return True


def _name(services: FileServices, path: Path) -> str:
    """Relative to the home, or to the node folder that it is in."""
    top = services.node.root if path.is_relative_to(services.node.root) else services.home
    return path.relative_to(top).as_posix()


def _size_of_file(file: Path) -> int:
    try:
        return file.lstat().st_size
    except FileNotFoundError:
        return 0


# Folders of models and uploads


def _unregistered(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    before_s = _unused_before_s(services.clock, options)
    for folder in unregistered.find(services):
        touched_at_s = folder.touched_at_s
        remove = touched_at_s <= before_s
        reason = "no record names it" if remove else "no record names it, but it is new"
        size = _size(folder.path)
        yield GcItem(_UNREGISTERED, str(folder), size, remove, reason, touched_at_s)


def _unused_before_s(clock: Clock, options: GcOptions) -> float:
    """Clients upload files some time before they register them."""
    now_s = clock.now().timestamp()
    return now_s - max(options.older_than_s, options.grace_s)


# Scratch


def _scratch(services: Services, options: GcOptions) -> Iterator[GcItem]:
    with services.db.read() as connection:
        owned = references.attempts_with_folder(connection)
    now_s = services.clock.now().timestamp()
    for folder in scratch.folders(services):
        remove, reason = True, "its attempt is gone"
        if folder.name in owned:
            remove, reason = False, f"job `{owned[folder.name]}` is not cleaned up yet"
        elif folder.used_at_s > now_s - options.grace_s:
            remove, reason = False, "its attempt is gone, but the folder is new"
        if services.runner is None:
            size = _size(scratch.folder(services, folder.name))
        else:
            size = scratch.size_bytes(services.runner, folder.name)
        yield GcItem("scratch", folder.name, size, remove, reason, folder.used_at_s)


def _remove_scratch(services: Services, name: str) -> bool:
    folder = scratch.folder(services, name)
    for lock in folder.glob("node-*/lock"):
        with open(lock, "rb") as lock_file:
            if not locks.try_lock(lock_file):
                return False  # a worker still uses it, whatever the records say
    with services.db.read() as connection:
        if name in references.attempts_with_folder(connection):
            return False
    try:
        return scratch.remove(services, name)
    except RunnerRefused:
        return False  # it still runs, whatever the records say


# Logs


def _logs(services: FileServices, options: GcOptions) -> Iterator[GcItem]:
    if options.logs_bytes is None:
        return
    jobs = store.jobs
    query = (
        select(jobs.c.workspace, jobs.c.name, jobs.c.ended_at)
        .where(jobs.c.status.in_([status.value for status in ENDED]), jobs.c.ended_at.is_not(None))
        .order_by(jobs.c.ended_at.desc())
    )
    with services.db.read() as connection:
        ended = connection.execute(query).all()
        unclean = set(references.attempts_with_folder(connection).values())
    total = 0
    for row in ended:
        size = sum(log.size_bytes for log in services.logs.list(row.workspace, row.name))
        if not size:
            continue
        total += size
        remove = total > options.logs_bytes and row.name not in unclean
        reason = "beyond the budget of logs" if remove else "within the budget of logs"
        yield GcItem("logs", f"{row.workspace}/{row.name}", size, remove, reason)


# What all use


def _size(folder: Path) -> int:
    """Bytes that go with the folder: not those of files that have another name elsewhere."""
    total = 0
    for current, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(current, name))
            except FileNotFoundError:
                continue
            total += status.st_size if status.st_nlink == 1 else 0
    return total


@contextmanager
def _exclusive(home: Path) -> Iterator[None]:
    # A lock on the folder itself: on a full disk no file could be made for it.
    descriptor = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not locks.try_lock(descriptor):
            raise Conflict("`yard gc` is already running", "wait until it has finished")
        yield
    finally:
        os.close(descriptor)
