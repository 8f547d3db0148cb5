"""Take a snapshot of a folder: hash its files, write its manifest.

Owns: hashing, the index that saves hashing what has not changed, the manifest.
Leaves: which files to walk.py, sending to upload.py.
Always: a file is believed unchanged only when size, times and inode are as they were AND it was
already older than `_RACY_NS` when it was hashed: a file written again within one tick of the
file system's clock can keep all of them (git's racy rule).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.snapshots import ignore_rules
from torchyard.snapshots.walk import Found, Limits, single, walk

_RACY_NS = 2_000_000_000
_INDEX_VERSION = 1

Known = dict[str, list[int | str]]
"""By path: size, mtime, ctime, inode, sha256."""


@dataclass(frozen=True)
class Content:
    """The bytes of one file: where they are and what they hashed to."""

    sha256: str
    size_bytes: int
    path: str
    place: str


@dataclass(frozen=True)
class Snapshot:
    """A folder (or one file) at one moment."""

    manifest: dict[str, Any]
    contents: tuple[Content, ...]

    @property
    def size_bytes(self) -> int:
        return sum(content.size_bytes for content in self.contents)


def take(
    place: Path, limits: Limits, index_folder: Path | None = None, *, ignore: bool = False
) -> Snapshot:
    """Snapshot the folder or file at `place`.

    Args:
        index_folder: where to remember hashes between calls; None hashes everything.
        ignore: leave out what the folder's `.amlignore` or `.gitignore` says.

    Raises:
        InvalidInput: something in the folder can't be part of a snapshot.
        LimitExceeded: the folder holds more than `limits`.
    """
    found = find(place, limits, ignore=ignore)
    index_file = _index_file(index_folder, place) if index_folder is not None else None
    known = _load(index_file)
    now_ns = time.time_ns()
    hashes: list[str] = []
    fresh = False
    remembered: Known = {}
    for file in found:
        entry = known.get(file.path)
        if entry is not None and entry[:4] == [
            file.size_bytes,
            file.mtime_ns,
            file.ctime_ns,
            file.inode,
        ]:
            sha256 = str(entry[4])
            remembered[file.path] = entry
        else:
            sha256 = _hash(file)
            if max(file.mtime_ns, file.ctime_ns) < now_ns - _RACY_NS:
                fresh = True
                remembered[file.path] = [
                    file.size_bytes,
                    file.mtime_ns,
                    file.ctime_ns,
                    file.inode,
                    sha256,
                ]
        hashes.append(sha256)
    if index_file is not None and (fresh or len(remembered) != len(known)):
        _save(index_file, remembered)
    files = [
        {"mode": file.mode, "path": file.path, "sha256": sha256, "size": file.size_bytes}
        for file, sha256 in zip(found, hashes, strict=True)
    ]
    contents = tuple(
        Content(sha256, file.size_bytes, file.path, file.place)
        for file, sha256 in zip(found, hashes, strict=True)
    )
    return Snapshot({"files": files}, contents)


def find(place: Path, limits: Limits, *, ignore: bool = False) -> list[Found]:
    """What a snapshot of `place` would hold; nothing is read but the folder's entries."""
    if place.is_dir():
        return walk(place, ignore_rules.read(place) if ignore else None, limits)
    return single(place)


def _hash(file: Found) -> str:
    """The sha256 of the file as `walk` saw it."""
    try:
        with open(file.place, "rb", buffering=0) as content:
            digest = hashlib.sha256()
            size_bytes = 0
            while chunk := content.read(1 << 20):
                digest.update(chunk)
                size_bytes += len(chunk)
            after = os.fstat(content.fileno())
    except OSError as error:
        raise InvalidInput(
            f"`{file.path}` can't be read ({error.strerror or error})",
            "make it readable, or name it in `.amlignore`",
        ) from error
    if size_bytes != file.size_bytes or after.st_mtime_ns != file.mtime_ns:
        raise InvalidInput(
            f"`{file.path}` changed while it was read",
            "submit again when nothing writes to it, or name it in `.amlignore`",
        )
    return digest.hexdigest()


def _index_file(index_folder: Path, place: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(place))).hexdigest()[:32]
    return index_folder / f"{name}.json"


def _load(index_file: Path | None) -> Known:
    if index_file is None:
        return {}
    try:
        body = json.loads(index_file.read_bytes())
        known: Known = body["files"] if body["version"] == _INDEX_VERSION else {}
    except (OSError, ValueError, KeyError, TypeError):
        # Only a cache: without it everything is hashed again.
        return {}
    return known if isinstance(known, dict) else {}


def _save(index_file: Path, known: Known) -> None:
    temporary = index_file.with_name(f".{index_file.name}.{secrets.token_hex(4)}")
    content = json.dumps({"version": _INDEX_VERSION, "files": known}, separators=(",", ":"))
    try:
        index_file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(content)
        os.replace(temporary, index_file)
    except OSError:
        # A full or read-only disk costs the next snapshot its speed, and nothing else.
        temporary.unlink(missing_ok=True)
