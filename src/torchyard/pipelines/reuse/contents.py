"""What data holds, as one text that is equal for equal files.

Owns: the files of an input with their checksums, and their digest.
Leaves: where files lie to data/actions.py, files of code to snapshots.
Always: times of files, their owners and the folder that they lie in count for nothing, as far as
somebody knows what the files hold; more than some gigabytes that nobody has read are not read here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.data import actions as data
from torchyard.data.folders import FolderFiles
from torchyard.data.types import Entry
from torchyard.jobs.services import FileServices

_MOST_READ_BYTES = 4 << 30


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
    found: dict[str, str] = {}
    unread: list[tuple[str, str, Entry]] = []
    for name, below, entry in _entries(location):
        checksum = known.get(below)
        if checksum is not None and checksum.mark == entry.mark:
            found[name] = checksum.sha256
        else:
            unread.append((name, below, entry))
    size_bytes = sum(entry.size_bytes for _, _, entry in unread)
    reads = isinstance(location.files, FolderFiles) and size_bytes <= _MOST_READ_BYTES
    for name, below, entry in unread:
        found[name] = (
            _sha256(location, below) if reads else f"{entry.size_bytes} bytes, {entry.mark}"
        )
    return found


def _entries(location: data.DataLocation) -> Iterator[tuple[str, str, Entry]]:
    """Each file with what it is called, and its path below the place, empty for the place."""
    single = location.files.entry(location.path) if location.path.strip("/") else None
    if single is not None:
        yield location.path.rpartition("/")[2], "", single
        return
    for entry in location.files.walk(location.path):
        yield entry.path, entry.path, entry


def _sha256(location: data.DataLocation, below: str) -> str:
    assert isinstance(location.files, FolderFiles)
    top = location.path.rstrip("/")
    path = "/".join(filter(None, (top, below)))
    hashed = hashlib.sha256()
    with files.reading(location.files.open(path)) as reader:
        while chunk := reader.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()


def digest(found: Mapping[str, str]) -> str:
    """One text for all of them."""
    return hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest()
