"""Room on the server's disk: what nobody needs any more is removed.

Owns: blobs, environments, copies of inputs, caches, scratch and logs: which goes, which stays and
why.
Leaves: which records name what to references.py, drafts of the killed to stale_files.py, budgets
that are stored to reclaiming_settings.py, each folder to its own room.
Always: what a record names stays; each thing is looked at once more at the moment of its removal,
under the lock that whoever begins to use it holds, too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import select

from torchyard.base import files
from torchyard.base.errors import Conflict
from torchyard.environments.packages import caches
from torchyard.jobs.cleanup import references, stale_files
from torchyard.jobs.records import store
from torchyard.jobs.records.types import ENDED
from torchyard.jobs.services import Services
from torchyard.shared import locks

DAY_S = 86_400.0
# Blobs of an upload that is under way are named by nothing; none takes this long.
_UPLOAD_S = DAY_S
_LEAST_S = 600.0
_CLIENTS = "the command's own: the hashes of what it has uploaded from here"


@dataclass(frozen=True)
class Wishes:
    """What is asked for.

    Args:
        older_than_s: environments and inputs unused for so long go.
        budget_bytes: environments and inputs together; beyond it the longest unused go first.
        logs_bytes: logs of jobs that have ended; beyond it the oldest go. None keeps them all.
        caches_bytes: what uv has downloaded; beyond it, it goes whole. None looks at its age alone.
    """

    older_than_s: float = 14 * DAY_S
    budget_bytes: int | None = None
    logs_bytes: int | None = None
    caches_bytes: int | None = None

    @property
    def grace_s(self) -> float:
        """For blobs, scratch and leftovers, which are not used again."""
        return max(_LEAST_S, min(self.older_than_s, _UPLOAD_S))


@dataclass(frozen=True)
class Thing:
    """Something on the disk. `goes` says whether it is removed, `why` why so or why not."""

    kind: str
    name: str
    size_bytes: int
    goes: bool
    why: str
    used_at_s: float = 0.0


def survey(services: Services, wishes: Wishes) -> list[Thing]:
    """Everything there is, and what would become of it; nothing is changed."""
    return [
        *_blobs(services, wishes),
        *_within(wishes, [*_environments(services, wishes), *_inputs(services, wishes)]),
        *_caches(services, wishes),
        *_scratch(services, wishes),
        *_leftovers(services, wishes),
        *_logs(services, wishes),
    ]


def reclaim(services: Services, wishes: Wishes) -> list[Thing]:
    """Remove what goes; what is meanwhile in use again stays and says so.

    Raises:
        Conflict: another one is at work.
    """
    with _alone(services.home):
        return [_removed(services, wishes, thing) for thing in survey(services, wishes)]


def _removed(services: Services, wishes: Wishes, thing: Thing) -> Thing:
    if not thing.goes:
        return thing
    now_s = services.clock.now().timestamp()
    gone = True
    if thing.kind == "blobs":
        removed = services.blobs.remove(_unnamed(services), now_s - wishes.grace_s)
        return replace(thing, name=f"{len(removed)} files") if removed else _stays(thing)
    if thing.kind == "environment":
        gone = services.environments.folders.remove(
            thing.name, lambda connection: thing.name in references.environments(connection)
        )
    elif thing.kind == "input":
        gone = services.fetcher.remove(thing.name, thing.used_at_s)
    elif thing.kind == "cache":
        gone = caches.remove(services.home)
    elif thing.kind == "leftover":
        gone = _remove_leftover(services, thing.name, now_s - wishes.grace_s)
    elif thing.kind == "scratch":
        gone = _remove_scratch(services, thing.name)
    elif thing.kind == "logs":
        workspace, _, job = thing.name.partition("/")
        shutil.rmtree(services.logs.folder(workspace, job), ignore_errors=True)
    return thing if gone else _stays(thing)


def _stays(thing: Thing) -> Thing:
    return replace(thing, goes=False, why="in use again since it was looked at")


# Blobs


def _blobs(services: Services, wishes: Wishes) -> Iterator[Thing]:
    with services.db.read() as connection:
        named = references.snapshots(connection)
    sizes = {sha256: (size, at) for sha256, size, at in services.blobs.all()}
    left = dict(sizes)
    for snapshot, by in sorted(named.items()):
        parts = [sha256 for sha256 in services.blobs.parts(snapshot) if left.pop(sha256, None)]
        if snapshot in sizes:
            more = f" and {len(by) - 1} more" if len(by) > 1 else ""
            size = sum(sizes[sha256][0] for sha256 in parts)
            yield Thing("snapshot", snapshot[:12], size, False, f"named by {by[0]}{more}")
    before_s = services.clock.now().timestamp() - wishes.grace_s
    for goes, why in (
        (True, "no job, model or data names them"),
        (False, "new: an upload may be under way"),
    ):
        group = [size for size, at in left.values() if (at < before_s) is goes]
        if group:
            yield Thing("blobs", f"{len(group)} files", sum(group), goes, why)


def _unnamed(services: Services) -> list[str]:
    # Listed before the records are read: what is uploaded later is not in the list.
    everything = [sha256 for sha256, _, _ in services.blobs.all()]
    with services.db.read() as connection:
        named = references.snapshots(connection)
    kept: set[str] = set()
    for snapshot in named:
        kept |= services.blobs.parts(snapshot)
    return [sha256 for sha256 in everything if sha256 not in kept]


# Environments and inputs


def _environments(services: Services, wishes: Wishes) -> Iterator[Thing]:
    with services.db.read() as connection:
        needed = references.environments(connection)
    for hash, folder in services.environments.folders.all():
        job = needed.get(hash)
        used_at_s = folder.stat().st_mtime
        goes, why = _by_age(services, wishes, used_at_s)
        if job is not None:
            goes, why = False, f"job `{job}` needs it"
        yield Thing("environment", hash, _size(folder), goes, why, used_at_s)


def _inputs(services: Services, wishes: Wishes) -> Iterator[Thing]:
    with services.db.read() as connection:
        oldest = references.oldest_with_inputs(connection)
    for name, folder in services.fetcher.copies():
        used_at_s = folder.stat().st_mtime
        goes, why = _by_age(services, wishes, used_at_s)
        # A copy that was not asked for since then is none of that job's, nor of any later one's.
        if oldest is not None and used_at_s >= oldest[0].timestamp():
            goes, why = False, f"job `{oldest[1]}` or a later one may read it"
        yield Thing("input", name, _size(folder), goes, why, used_at_s)


def _by_age(services: Services, wishes: Wishes, used_at_s: float) -> tuple[bool, str]:
    unused_s = services.clock.now().timestamp() - used_at_s
    said = f"unused for {max(0.0, unused_s) / DAY_S:.1f} days"
    return unused_s > wishes.older_than_s, said


def _within(wishes: Wishes, things: list[Thing]) -> Iterator[Thing]:
    """The longest unused beyond the budget go as well, unless a job needs them."""
    over = sum(thing.size_bytes for thing in things if not thing.goes)
    over -= over if wishes.budget_bytes is None else wishes.budget_bytes
    for thing in sorted(things, key=lambda thing: thing.used_at_s):
        if over > 0 and not thing.goes and not thing.why.startswith("job "):
            over -= thing.size_bytes
            yield replace(thing, goes=True, why=f"{thing.why}, and beyond the budget")
        else:
            yield thing


# Caches and leftovers


def _caches(services: Services, wishes: Wishes) -> Iterator[Thing]:
    """Only uv's is ours to remove as a whole; it only saves downloads."""
    uv = caches.folder(services.home)
    for folder in sorted(uv.parent.iterdir()) if uv.parent.exists() else ():
        if folder.name == "data" or folder.name.startswith(".") or not folder.is_dir():
            continue  # copies of inputs, and removals: told of elsewhere
        size, used_at_s = _size(folder), folder.stat().st_mtime
        if folder != uv:
            why = _CLIENTS if folder.name == "snapshots" else "not made by torchyard"
            yield Thing("cache", folder.name, size, False, why, used_at_s)
            continue
        goes, why = _by_age(services, wishes, used_at_s)
        if not goes and wishes.caches_bytes is not None and size > wishes.caches_bytes:
            goes, why = True, f"{why}, and beyond the budget of caches"
        yield Thing("cache", folder.name, size, goes, why, used_at_s)


def _leftovers(services: Services, wishes: Wishes) -> Iterator[Thing]:
    before_s = services.clock.now().timestamp() - wishes.grace_s
    for draft in stale_files.find(services.home):
        touched_at_s = draft.touched_at_s
        goes = touched_at_s <= before_s
        why = f"{draft.what} that was broken off"
        if not goes:
            why = f"new: {draft.what} may be under way"
        name = draft.path.relative_to(services.home).as_posix()
        size = _size(draft.path) if draft.path.is_dir() else _size_of_file(draft.path)
        yield Thing("leftover", name, size, goes, why, touched_at_s)


def _remove_leftover(services: Services, name: str, before_s: float) -> bool:
    for draft in stale_files.find(services.home):
        if draft.path.relative_to(services.home).as_posix() == name:
            return draft.remove(before_s)
    return True


def _size_of_file(file: Path) -> int:
    try:
        return file.lstat().st_size
    except FileNotFoundError:
        return 0


# Scratch


def _scratch(services: Services, wishes: Wishes) -> Iterator[Thing]:
    with services.db.read() as connection:
        owned = references.attempts_with_folder(connection)
    now_s = services.clock.now().timestamp()
    top = services.home / "scratch"
    for folder in sorted(top.iterdir()) if top.exists() else ():
        try:
            used_at_s = folder.stat().st_mtime
        except FileNotFoundError:
            continue  # cleaned up since it was listed
        goes, why = True, "its attempt is gone"
        if folder.name in owned:
            goes, why = False, f"job `{owned[folder.name]}` is not cleaned up yet"
        elif used_at_s > now_s - wishes.grace_s:
            goes, why = False, "its attempt is gone, but it is new"
        yield Thing("scratch", folder.name, _size(folder), goes, why, used_at_s)


def _remove_scratch(services: Services, name: str) -> bool:
    folder = services.home / "scratch" / name
    for lock in folder.glob("node-*/lock"):
        with open(lock, "rb") as held:
            if not locks.try_lock(held):
                return False  # a worker lives there, whatever the records say
    with services.db.read() as connection:
        if name in references.attempts_with_folder(connection):
            return False
    return files.remove(folder)


# Logs


def _logs(services: Services, wishes: Wishes) -> Iterator[Thing]:
    if wishes.logs_bytes is None:
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
        goes = total > wishes.logs_bytes and row.name not in unclean
        why = "beyond the budget of logs" if goes else "within the budget of logs"
        yield Thing("logs", f"{row.workspace}/{row.name}", size, goes, why)


# What all use


def _size(folder: Path) -> int:
    """Bytes that go with the folder: not those of files that have another name elsewhere."""
    total = 0
    for current, _, names in os.walk(folder):
        for name in names:
            try:
                known = os.lstat(os.path.join(current, name))
            except FileNotFoundError:
                continue
            total += known.st_size if known.st_nlink == 1 else 0
    return total


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    # A lock on the folder itself: on a full disk no file could be made for it.
    descriptor = os.open(home, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if not locks.try_lock(descriptor):
            raise Conflict("`yard gc` is at work already", "wait until it is done")
        yield
    finally:
        os.close(descriptor)
