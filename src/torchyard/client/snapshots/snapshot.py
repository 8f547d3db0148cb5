"""Take a snapshot of a folder: hash its files, write its manifest.

Owns: hashing, what may be believed of the index, the manifest.
Leaves: which files to walk.py, remembering to index.py, sending to upload.py.
Always: a file is believed unchanged only when size, times and inode are as they were AND it was
already older than `_RACY_NS` when it was hashed: a file written again within one tick of the
file system's clock can keep all of them (git's racy rule).
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torchyard.base.errors import InvalidInput
from torchyard.client.snapshots import ignore_rules, index
from torchyard.client.snapshots.index import Index
from torchyard.client.snapshots.walk import Found, LeftOut, Limits, single, walk

_RACY_NS = 2_000_000_000
_SMALL_BYTES = 64 << 10
_KEPT_BYTES = 32 << 20


@dataclass(frozen=True)
class Content:
    """The bytes of one file: where they are and what they hashed to; they themselves if kept."""

    sha256: str
    size_bytes: int
    path: str
    place: str
    kept: bytes | None = None


@dataclass(frozen=True)
class Snapshot:
    """A folder (or one file) at one moment. `root` is what the manifest's paths begin at, all but
    those `outside`, whose files are elsewhere.

    `kept` are the bytes of small files that were hashed for it, by sha256, a limited number;
    `is_new` says that every file was, since nothing was remembered.
    """

    root: Path
    manifest: bytes
    outside: Mapping[str, str] = field(default_factory=dict)
    kept: Mapping[str, bytes] = field(default_factory=dict, compare=False)
    is_new: bool = field(default=False, compare=False)

    def contents(self) -> list[Content]:
        return [
            Content(
                file["sha256"],
                file["size"],
                file["path"],
                self.outside.get(file["path"]) or os.path.join(self.root, file["path"]),
                self.kept.get(file["sha256"]),
            )
            for file in json.loads(self.manifest)["files"]
        ]


def find(
    path: Path, limits: Limits, *, ignore: bool = False, left_out: LeftOut | None = None
) -> list[Found]:
    """What a snapshot of `path` would hold; nothing is read but the folder's entries.

    Args:
        ignore: leave out what the folder's `.amlignore` or `.gitignore` says.
        left_out: what is added to.

    Raises:
        InvalidInput: something in the folder can't be part of a snapshot.
        LimitExceeded: the folder holds more than `limits`.
    """
    if path.is_dir():
        return walk(path, ignore_rules.read(path) if ignore else None, limits, left_out)
    return single(path)


def take(
    path: Path,
    entries: list[Found],
    index_folder: Path | None = None,
    outside: Mapping[str, str] | None = None,
) -> Snapshot:
    """Snapshot the folder or file at `path`, of which `find` has just found `entries`.

    Args:
        index_folder: where to remember hashes between calls; None hashes everything.
        outside: where those of the entries are that don't lie below `path`.

    Raises:
        InvalidInput: a file can't be read, or changed since it was found.
    """
    root, outside = path if path.is_dir() else path.parent, outside or {}
    index_file = index.file_for(index_folder, path) if index_folder is not None else None
    remembered = index.load(index_file)
    looks = index.looks_of(entries)
    if looks and looks == remembered.looks and remembered.manifest:
        return Snapshot(root, remembered.manifest, outside)
    now_ns = time.time_ns()
    hashes_by_look = remembered.by_look()
    hashing, top = Hashing(), os.fspath(root)
    hashes = [
        hashes_by_look.get(file)
        or hashing.hash(outside.get(file[0]) or os.path.join(top, file[0]), file)
        for file in entries
    ]
    manifest = _manifest(entries, hashes)
    if index_file is not None:
        believed = [
            (file, sha256)
            for file, sha256 in zip(entries, hashes, strict=True)
            if file in hashes_by_look or max(file[2], file[3]) < now_ns - _RACY_NS
        ]
        is_complete = len(believed) == len(entries)
        index.save(
            index_file,
            Index(
                index.looks_of([file for file, _ in believed]),
                bytes.fromhex("".join(sha256 for _, sha256 in believed)),
                manifest if is_complete else b"",
            ),
        )
    return Snapshot(root, manifest, outside, hashing.kept, is_new=not hashes_by_look)


def _manifest(entries: list[Found], hashes: list[str]) -> bytes:
    """The form that base/blobs.py writes too, so that both ends come to one id."""
    files = [
        {"mode": "0755" if executable else "0644", "path": path, "sha256": sha256, "size": size}
        for (path, size, _, _, _, executable), sha256 in zip(entries, hashes, strict=True)
    ]
    return json.dumps({"files": files}, separators=(",", ":"), ensure_ascii=False).encode()


class Hashing:
    """Reads files once, and keeps what is small and may be sent next."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self._left_bytes = _KEPT_BYTES

    def hash(self, place: str, file: Found) -> str:
        """The sha256 of the file at `place` as `walk` saw it."""
        path, size, mtime_ns, *_ = file
        is_small = size <= min(_SMALL_BYTES, self._left_bytes)
        digest = hashlib.sha256()
        size_bytes = 0
        try:
            with open(place, "rb", buffering=0) as content:
                # One byte more: a small file that has grown since is told from one that has not.
                while chunk := content.read(size + 1 if is_small else 1 << 20):
                    digest.update(chunk)
                    size_bytes += len(chunk)
                    if size_bytes == size:
                        break
                after = os.fstat(content.fileno())
        except OSError as error:
            raise InvalidInput(
                f"`{path}` can't be read ({error.strerror or error})",
                "make it readable, or name it in `.amlignore`",
            ) from error
        if size_bytes != size or after.st_size != size or after.st_mtime_ns != mtime_ns:
            raise InvalidInput(
                f"`{path}` changed while it was read",
                "submit again when nothing writes to it, or name it in `.amlignore`",
            )
        sha256 = digest.hexdigest()
        if is_small and chunk and len(chunk) == size:
            self.kept[sha256] = chunk
            self._left_bytes -= size
        return sha256
