"""Blobs that no record names, in each workspace and among what builds use.

Owns: which are named where, their sizes, removing the others.
Leaves: what records name to references.py, files to base/blobs.py.
Always: a workspace keeps what its own records name, builds what any record does; a file counts
once, however many names it has.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.blobs import Blobs
from torchyard.jobs.cleanup import references
from torchyard.jobs.services import FileServices


@dataclass(frozen=True)
class Survey:
    """`named` has (snapshot, size in bytes, who names it), `unnamed` (size, time of the last use
    in seconds since 1970) of each file.
    """

    named: list[tuple[str, int, list[str]]]
    unnamed: list[tuple[int, float]]


def survey(services: FileServices) -> Survey:
    with services.db.read() as connection:
        named = references.snapshots(connection)
    users: dict[str, set[str]] = defaultdict(set)
    for (_, snapshot), by in named.items():
        users[snapshot].update(by)
    sizes: dict[str, int] = defaultdict(int)
    unnamed: list[tuple[int, float]] = []
    count = _CountedOnce()
    for blobs, snapshots in _folders(services.blobs, named):
        statuses = dict(blobs.all())
        left = dict(statuses)
        for snapshot in sorted(snapshots):
            parts = [left.pop(sha256) for sha256 in blobs.parts(snapshot) if sha256 in left]
            if snapshot in statuses:
                sizes[snapshot] += sum(count.size_bytes(status) for status in parts)
        unnamed += [(count.size_bytes(status), status.st_mtime) for status in left.values()]
    kept = [(snapshot, size, sorted(users[snapshot])) for snapshot, size in sorted(sizes.items())]
    return Survey(kept, unnamed)


def remove(services: FileServices, before_s: float) -> int:
    """Remove those that were not used since `before_s`; returns how many."""
    # Listed before the records are read: what is uploaded later is not in the lists.
    everything = [(blobs, [sha256 for sha256, _ in blobs.all()]) for blobs in _all(services.blobs)]
    with services.db.read() as connection:
        names = dict(_folders(services.blobs, references.snapshots(connection)))
    removed = 0
    for blobs, hashes in everything:
        parts: set[str] = set()
        for snapshot in names.get(blobs, ()):
            parts |= blobs.parts(snapshot)
        unnamed = [sha256 for sha256 in hashes if sha256 not in parts]
        removed += len(blobs.remove(unnamed, before_s))
    return removed


def _folders(
    store: BlobFolders, named: Iterable[tuple[str, str]]
) -> Iterator[tuple[Blobs, set[str]]]:
    """Each folder of blobs with the snapshots that keep theirs in it."""
    by_workspace: dict[str, set[str]] = defaultdict(set)
    for workspace, snapshot in named:
        by_workspace[workspace].add(snapshot)
    yield store.of_builds, set().union(*by_workspace.values())
    for workspace in store.workspaces():
        yield store.of(workspace), by_workspace[workspace] | by_workspace[""]


def _all(store: BlobFolders) -> Iterator[Blobs]:
    return (blobs for blobs, _ in _folders(store, ()))


class _CountedOnce:
    """Sizes of files of which some have several names: only the first counts."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()

    def size_bytes(self, status: os.stat_result) -> int:
        if status.st_nlink == 1:
            return status.st_size
        identity = (status.st_dev, status.st_ino)
        is_new = identity not in self._seen
        self._seen.add(identity)
        return status.st_size if is_new else 0
