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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from threading import Event
from typing import BinaryIO

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.client.snapshots import ignore_rules, index
from torchyard.client.snapshots.index import Index
from torchyard.client.snapshots.walk import Found, LeftOut, Limits, single, walk

_RACY_NS = 2_000_000_000
_SMALL_BYTES = 64 << 10
LARGE_BYTES = 1 << 20
"""Larger files are sent, or handed over, one by one."""
_MOST_THREADS = 4
_KEPT_BYTES = 32 << 20

Hand = Callable[[str, int], "str | None"]
"""Has the server store the open file of a path; its sha256, or None where it must be sent."""


class CommandStopped(Exception):
    """Another file's error, or the user, ended what this file was read for."""


@dataclass(frozen=True)
class Content:
    """The bytes of one file: where they are and what they hashed to; they themselves if kept."""

    sha256: str
    size_bytes: int
    path: str
    place: str
    kept: bytes | None = None

    def opened(self) -> BinaryIO:
        """
        Raises:
            Conflict: it is gone.
        """
        try:
            return open(self.place, "rb")
        except OSError as error:
            raise self.changed() from error

    def changed(self) -> Conflict:
        return Conflict(
            f"`{self.path}` changed while the snapshot was sent",
            "submit again when nothing writes to it",
        )


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
    hashing: Hashing | None = None,
) -> Snapshot:
    """Snapshot the folder or file at `path`, of which `find` has just found `entries`.

    Args:
        index_folder: where to remember hashes between calls; None hashes everything.
        hashing: what reads the files; the same for all that one command sends.
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
    believed_before = frozenset(hashes_by_look)
    hashing, top = hashing or Hashing(), os.fspath(root)
    unknown = [
        (outside.get(file[0]) or os.path.join(top, file[0]), file)
        for file in entries
        if file not in hashes_by_look
    ]
    hashes_by_look.update(hashing.hash_all(unknown))
    hashes = [hashes_by_look[file] for file in entries]
    manifest = _manifest(entries, hashes)
    if index_file is not None:
        believed = [
            (file, sha256)
            for file, sha256 in zip(entries, hashes, strict=True)
            if file in believed_before or max(file[2], file[3]) < now_ns - _RACY_NS
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
    return Snapshot(root, manifest, outside, hashing.kept, is_new=remembered is index.NOTHING)


def _manifest(entries: list[Found], hashes: list[str]) -> bytes:
    """The form that base/blobs.py writes too, so that both ends come to one id."""
    files = [
        {"mode": "0755" if executable else "0644", "path": path, "sha256": sha256, "size": size}
        for (path, size, _, _, _, executable), sha256 in zip(entries, hashes, strict=True)
    ]
    return json.dumps({"files": files}, separators=(",", ":"), ensure_ascii=False).encode()


class Hashing:
    """Reads files once: keeps what is small and may be sent next, has large ones read beside each
    other.

    Args:
        hand: has a server of this machine store and hash large files.

    Attributes:
        is_stopped: the command ends without what is still being read.
    """

    def __init__(self, hand: Hand | None = None) -> None:
        self.kept: dict[str, bytes] = {}
        self._left_bytes = _KEPT_BYTES
        self._hand = hand
        self.is_stopped = Event()

    def hash_all(self, files: Sequence[tuple[str, Found]]) -> dict[Found, str]:
        """The sha256 of each file, which is at a place as `walk` saw it."""
        large = [each for each in files if each[1][1] > LARGE_BYTES]
        small = [each for each in files if each[1][1] <= LARGE_BYTES]
        hashes = {file: self.hash(place, file) for place, file in small}
        if len(large) < 2:
            return hashes | {file: self.hash(place, file) for place, file in large}
        from concurrent.futures import ThreadPoolExecutor  # Few commands have several large files.

        with ThreadPoolExecutor(min(len(large), os.cpu_count() or 1, _MOST_THREADS)) as threads:
            hashing = [(file, threads.submit(self.hash, place, file)) for place, file in large]
            try:
                return hashes | {file: future.result() for file, future in hashing}
            except BaseException:
                self.is_stopped.set()
                for _, future in hashing:
                    future.cancel()
                raise

    def hash(self, place: str, file: Found) -> str:
        path, size, mtime_ns, *_ = file
        is_small = size <= min(_SMALL_BYTES, self._left_bytes)
        try:
            with open(place, "rb", buffering=0) as content:
                sha256, kept = self._read(content, file, is_small)
                after = os.fstat(content.fileno())
        except OSError as error:
            raise InvalidInput(
                f"`{path}` can't be read ({error.strerror or error})",
                "make it readable, or name it in `.amlignore`",
            ) from error
        if not sha256 or after.st_size != size or after.st_mtime_ns != mtime_ns:
            raise InvalidInput(
                f"`{path}` changed while it was read",
                "submit again when nothing writes to it, or name it in `.amlignore`",
            )
        if is_small and kept:
            self.kept[sha256] = kept
            self._left_bytes -= size
        return sha256

    def _read(self, content: FileIO, file: Found, is_small: bool) -> tuple[str, bytes]:
        """The sha256, empty for a file that is not as long as it was; the bytes of a small one."""
        path, size, *_ = file
        if self._hand is not None and size > LARGE_BYTES:
            sha256 = self._hand(path, content.fileno())
            if sha256 is not None:
                return sha256, b""
        digest = hashlib.sha256()
        size_bytes, chunk = 0, b""
        # One byte more: a small file that has grown since is told from one that has not.
        piece_bytes = size + 1 if is_small else 1 << 20
        while not self.is_stopped.is_set() and (chunk := content.read(piece_bytes)):
            digest.update(chunk)
            size_bytes += len(chunk)
            if size_bytes == size:
                break
        is_whole = size_bytes == size
        return digest.hexdigest() if is_whole else "", chunk if len(chunk) == size else b""
