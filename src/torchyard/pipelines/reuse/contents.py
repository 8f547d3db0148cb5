"""What data holds, as one text that is equal for equal files.

Owns: the files of an input with their checksums, and their digest.
Leaves: where files lie to data/actions.py, files of code to snapshots.
Always: times of files, their owners and the folder that they lie in count for nothing, as far as
the datastore tells what they hold.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.data import actions as data
from torchyard.data.folders import FolderFiles
from torchyard.data.types import Checksum, Entry
from torchyard.jobs.services import FileServices


def files_of(services: FileServices, workspace: str, path: str) -> dict[str, str]:
    """The sha256 of each file by its path, or the datastore's own mark where nobody knows it.

    Args:
        path: pinned.

    Raises:
        NotFound: nothing is there any more.
        Unreachable: the datastore does not answer.
    """
    if path.startswith(SNAPSHOT_PREFIX):
        snapshot = services.blobs.of(workspace).snapshot(path.removeprefix(SNAPSHOT_PREFIX))
        return {each.path: each.sha256 for each in snapshot.files}
    location = data.locate(services.db, services.datastores, workspace, path)
    known = data.checksums_of(services.db, workspace, location)
    single = location.files.entry(location.path) if location.path.strip("/") else None
    if single is not None:
        name = location.path.rpartition("/")[2]
        return {name: _content(location, single, location.path, known, "")}
    top = f"{location.path.rstrip('/')}/" if location.path.strip("/") else ""
    return {
        entry.path: _content(location, entry, f"{top}{entry.path}", known, entry.path)
        for entry in location.files.walk(location.path)
    }


def digest(found: Mapping[str, str]) -> str:
    """One text for all of them."""
    return hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()


def _content(
    location: data.DataLocation,
    entry: Entry,
    path: str,
    known: Mapping[str, Checksum],
    below: str,
) -> str:
    checksum = known.get(below)
    if checksum is not None and checksum.mark == entry.mark:
        return checksum.sha256
    if not isinstance(location.files, FolderFiles):
        return f"{entry.size_bytes} {entry.mark}"
    hashed = hashlib.sha256()
    with files.reading(location.files.open(path)) as reader:
        while chunk := reader.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()
