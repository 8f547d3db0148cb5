"""What a node of another machine keeps of what it fetched, for the attempts that follow.

Owns: where each thing is, that it is fetched once however many ask, what is removed when the cache
is larger than its budget.
Leaves: fetching to node_environment.py, remote_inputs.py and blobs.py.
Always: a folder that exists is complete; one that a running worker uses is not removed; what a
killed worker left half-fetched is continued by the next, and never used.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchyard.shared import locks
from torchyard.shared.plan import LaunchPlan

ENVIRONMENTS, PYTHONS, INPUTS, BLOBS = "environments", "pythons", "cache/inputs", "cache/blobs"
BUDGET_VARIABLE = "TORCHYARD_NODE_CACHE_GB"
COPY_VARIABLE = "TORCHYARD_NODE_COPY"
"""Set to 1 where the server's disk is seen and slow: then a copy on the node is used."""
_DEFAULT_GB = 20.0
_POLL_S = 0.05
_SIZES = ".sizes"
_DRAFT = ".draft-"
_LOCKS = ".locks"


class Stopped(OSError):
    """The attempt ended while it waited for another to fetch the same."""


@dataclass(frozen=True)
class _CacheEntry:
    """`used_at_s` is when a worker began to use it."""

    path: Path
    size_bytes: int
    used_at_s: float
    lock: Path | None = None


class NodeCache:
    """
    Args:
        folder: the node's.
        budget_bytes: of all that it keeps; what is in use may be more.
    """

    def __init__(self, folder: Path, budget_bytes: int) -> None:
        self._folder = folder
        self._budget_bytes = budget_bytes

    def folder(self, kind: str) -> Path:
        return self._folder / kind

    def tree(
        self,
        kind: str,
        key: str,
        size_bytes: Callable[[], int],
        make: Callable[[Path], None],
        canceled: Callable[[], bool],
    ) -> Path:
        """A folder of the cache, which stays until this process ends.

        Args:
            key: names its content.
            size_bytes: what it will take.
            make: fills the folder that it gets, where an earlier try may have left a part.

        Raises:
            Stopped: `canceled` returned true.
        """
        top = self._folder / kind
        target = top / key
        for folder in (top, top / _LOCKS, top / _SIZES):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = locks.open_lock(top / _LOCKS / key)
        try:
            while not canceled():
                if locks.try_lock(lock, shared=True) and target.exists():
                    os.utime(top / _SIZES / key)
                    return target  # the lock is shared until this process ends
                if locks.try_lock(lock) and not target.exists():
                    size = size_bytes()
                    self.free_space(size)
                    draft = top / f"{_DRAFT}{key}"
                    make(draft)
                    (top / _SIZES / key).write_text(str(size))
                    draft.rename(target)
                time.sleep(0 if target.exists() else _POLL_S)
            raise Stopped("stopped while it was fetched")
        except BaseException:
            os.close(lock)
            raise

    def blob(
        self, sha256: str, fetch: Callable[[Path], None], canceled: Callable[[], bool]
    ) -> Path:
        """A file of the cache, fetched when it is not there; copy it soon.

        Args:
            fetch: writes the file that it gets, and checks it.
        """
        target = self._folder / BLOBS / sha256[:2] / sha256
        try:
            os.utime(target)
            return target
        except FileNotFoundError:
            pass
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locks.hold(target.parent / ".lock", canceled) as is_held:
            if not is_held:
                raise Stopped("stopped while it was fetched")
            if not target.exists():
                draft = target.with_name(f"{_DRAFT}{sha256}")
                try:
                    fetch(draft)
                    draft.rename(target)
                finally:
                    draft.unlink(missing_ok=True)
        return target

    def free_space(self, size_bytes: int) -> None:
        """Remove what was not used for longest, until so much more is within the budget."""
        entries = sorted(self._list_entries(), key=lambda item: item.used_at_s)
        total = sum(item.size_bytes for item in entries) + size_bytes
        for item in entries:
            if total <= self._budget_bytes:
                return
            if _remove(item):
                total -= item.size_bytes

    def _list_entries(self) -> Iterator[_CacheEntry]:
        for kind in (ENVIRONMENTS, PYTHONS, INPUTS):
            top = self._folder / kind
            for file in (top / _SIZES).glob("*"):
                try:
                    size, used_at_s = int(file.read_text() or 0), file.stat().st_mtime
                except (OSError, ValueError):
                    continue
                if (top / file.name).exists():
                    yield _CacheEntry(top / file.name, size, used_at_s, top / _LOCKS / file.name)
        for blob in (self._folder / BLOBS).glob("??/[0-9a-f]*"):
            try:
                stat = blob.stat()
            except OSError:
                continue
            yield _CacheEntry(blob, stat.st_size, stat.st_mtime)


def of_plan(plan: LaunchPlan, environ: Mapping[str, str]) -> NodeCache:
    """The cache of the node that got this plan."""
    return NodeCache(Path(plan.node_folder), budget_bytes(environ))


def budget_bytes(environ: Mapping[str, str]) -> int:
    """As `$TORCHYARD_NODE_CACHE_GB` says; 20 GB where it is not a number."""
    try:
        gigabytes = float(environ.get(BUDGET_VARIABLE, ""))
    except ValueError:
        gigabytes = _DEFAULT_GB
    return int((gigabytes if 0 <= gigabytes < 1e9 else _DEFAULT_GB) * 1e9)


def remove_tree(folder: Path) -> None:
    """Also one without write bits."""
    for parent, names, _ in os.walk(folder):
        for name in [".", *names]:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def _remove(item: _CacheEntry) -> bool:
    if item.lock is None:
        item.path.unlink(missing_ok=True)
        return True
    with locks.held_if_free(item.lock) as is_free:
        if not is_free:
            return False
        aside = item.path.with_name(f".removing-{item.path.name}")
        remove_tree(aside)
        item.path.rename(aside)
        (item.path.parent / _SIZES / item.path.name).unlink(missing_ok=True)
    remove_tree(aside)
    return True
