"""Files by their content: sha256 is the name.

Owns: one folder of blobs, snapshots (manifests of files, themselves blobs).
Leaves: whose folder it is to blob_folders.py, permissions to the packages that keep blobs.
Always: a blob's bytes have its name as their sha256, or it is not there; a snapshot is accepted
only when all its blobs are; every use of a blob or a snapshot renews it, and only old ones are
removed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchyard.base import disk, files
from torchyard.base.bodies import json_values
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.shared import descriptors, locks

_SHA256 = re.compile(r"^[0-9a-f]{64}\Z")
_SHA256_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
# How a document names an uploaded snapshot: `snapshot:<id>`.
SNAPSHOT_PREFIX = "snapshot:"
# Asked for again within so many seconds, a blob is still as new as it was.
_NEW_S = 60.0
_REMOVED_AT_ONCE = 200
_HASHED_BYTES = 256 << 10
_CREATING = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTRIES_A_PIECE = 500
# 100,000 files and more, see data/routes.py; each has four values, and commas in its path.
_MANIFEST_MOST_BYTES = 40 << 20
_MANIFEST_MOST_VALUES = 1_500_000


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """One file of a snapshot; `mode` in octal digits."""

    path: str
    sha256: str
    size: int
    mode: str = "0644"


@dataclass(frozen=True)
class Snapshot:
    """A folder at one moment; its id is the sha256 of its manifest."""

    id: str
    files: tuple[SnapshotFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)


class Arriving:
    """A file of the server's own that is filled from another one, and hashed behind that.

    What is hashed is what has been written, whatever happens to the other file meanwhile. Copying
    and hashing may be done in two threads at once; both go on to have the file when it is dropped.
    """

    def __init__(self, draft: Path) -> None:
        self.draft = draft
        self.file = files.OpenFile(draft.name, os.open(draft, os.O_RDWR | _CREATING, 0o600))
        self.digest = hashlib.sha256()
        self.copied_bytes = self.hashed_bytes = 0

    def clone(self, source: files.OpenFile, size_bytes: int) -> None:
        """Have all bytes at once, on a disk that can share them."""
        if descriptors.clone(source.descriptor, self.file.descriptor):
            self.copied_bytes = min(size_bytes, os.fstat(self.file.descriptor).st_size)

    def copy(self, source: files.OpenFile, size_bytes: int) -> None:
        """Copy up to so many bytes more; fewer only at the end of the source."""
        end = self.copied_bytes + size_bytes
        while self.copied_bytes < end:
            count = descriptors.copy_range(
                source.descriptor,
                self.file.descriptor,
                self.copied_bytes,
                end - self.copied_bytes,
            )
            if not count:
                return
            self.copied_bytes += count

    def hash(self, end: int) -> None:
        """Hash what was written before `end`."""
        buffer = memoryview(bytearray(min(_HASHED_BYTES, end - self.hashed_bytes)))
        while self.hashed_bytes < end:
            part = buffer[: end - self.hashed_bytes]
            count = os.preadv(self.file.descriptor, [part], self.hashed_bytes)
            if not count:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.draft))
            self.digest.update(part[:count])
            self.hashed_bytes += count


@dataclass(frozen=True)
class Blobs:
    """The blobs of one workspace, or those that the server has for builds."""

    folder: Path

    def path(self, sha256: str) -> Path:
        return Path(self._path(sha256))

    def _path(self, sha256: str) -> str:
        """As `path`; of thousands of blobs, a `Path` each is what most of the time goes to."""
        if not _SHA256.fullmatch(sha256):
            raise InvalidInput(f"`{sha256[:80]}` is not a sha256", "write 64 hexadecimal digits")
        return f"{self.folder}/{sha256[:2]}/{sha256}"

    def has(self, sha256: str) -> bool:
        return self._found(sha256) is not None

    def missing(self, hashes: Iterable[str]) -> list[str]:
        """Those of `hashes` that are not here, in their order, each once; the rest is new now."""
        with self._lock_folder(shared=True):
            return [sha256 for sha256 in dict.fromkeys(hashes) if not self._renew(sha256)]

    def put(self, sha256: str, chunks: Iterable[bytes]) -> None:
        """Store one blob.

        Raises:
            InvalidInput: the bytes are not those of `sha256`; nothing is kept.
        """
        with self.writing(sha256) as writing:
            for chunk in chunks:
                writing.write(chunk)
            check(sha256, writing.stored.sha256)

    def put_all(self, contents: Iterable[tuple[str, bytes]]) -> None:
        """Store small blobs, whose bytes are in memory, all under one lock.

        Raises:
            InvalidInput: the bytes of one are not those of its sha256; those before it are kept.
        """
        token = secrets.token_hex(6)
        with disk.writing(self.folder), self._lock_folder(shared=True):
            for sha256, content in contents:
                check(sha256, hashlib.sha256(content).hexdigest())
                target = self._path(sha256)
                draft = f"{self.folder}/{sha256[:2]}/.{sha256[:50]}.{token}.part"
                try:
                    _write(draft, content)
                    os.rename(draft, target)
                except BaseException:
                    Path(draft).unlink(missing_ok=True)
                    raise

    def writing(self, sha256: str) -> AbstractContextManager[files.Writing]:
        """Open a blob for writing; the caller checks the bytes before the block ends."""
        return files.write_atomically(
            self.path(sha256), mode=0o444, guard=self._lock_folder(shared=True)
        )

    @contextmanager
    def arriving(self) -> Iterator[Arriving]:
        """A file whose sha256 is known only when all of it is here; nothing is left unless `keep`
        has it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / files.draft_name("handed")
        with disk.writing(draft):
            arriving = Arriving(draft)
            try:
                yield arriving
            finally:
                draft.unlink(missing_ok=True)

    def keep(self, arriving: Arriving) -> str:
        """Store what has arrived under its sha256, which is returned."""
        sha256 = arriving.digest.hexdigest()
        self.adopt(arriving.draft, arriving.file.descriptor, sha256)
        return sha256

    def adopt(self, draft: Path, descriptor: int, sha256: str) -> None:
        """Make the open file `draft`, which has that sha256, the blob; removed if one is there."""
        target = self._path(sha256)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.fchmod(descriptor, 0o444)
        with self._lock_folder(shared=True):
            if self._renew(sha256):
                draft.unlink()
            else:
                os.rename(draft, target)

    def put_bytes(self, content: bytes) -> str:
        """Store `content` and return its sha256."""
        sha256 = hashlib.sha256(content).hexdigest()
        if self.missing([sha256]):
            self.put(sha256, [content])
        return sha256

    def put_file(self, file: Path) -> str:
        """Store a file of this machine and return its sha256."""
        digest = hashlib.sha256()
        with open(file, "rb") as opened:
            for chunk in files.chunks(opened):
                digest.update(chunk)
        sha256 = digest.hexdigest()
        if self.missing([sha256]):
            with open(file, "rb") as opened:
                self.put(sha256, files.chunks(opened))
        return sha256

    def take(self, source: Blobs, hashes: Iterable[str]) -> None:
        """Have those of `hashes` that `source` has, as further names of the same files."""
        for sha256 in self.missing(hashes):
            if not source.has(sha256):
                continue
            target = self.path(sha256)
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.with_name(files.draft_name(sha256))
            try:
                os.link(source.path(sha256), draft)
            except OSError:  # a file system without hard links
                self.put_file(source.path(sha256))
                continue
            with self._lock_folder(shared=True):
                os.replace(draft, target)
            draft.unlink(missing_ok=True)  # it stays if both are the same file by now

    def put_snapshot(self, manifest: Mapping[str, Any]) -> Snapshot:
        """Accept a manifest whose blobs are all here.

        Args:
            manifest: `files` is gone through once.

        Raises:
            InvalidInput: the manifest is not one, or blobs are missing (code `blobs_missing`).
        """
        snapshot_files = _files_of(manifest)
        absent = self.missing(file.sha256 for file in snapshot_files)
        if absent:
            raise InvalidInput(
                f"{len(absent)} blobs of the snapshot are missing, `{absent[0]}` first",
                "upload them, then send the manifest again",
                code="blobs_missing",
            )
        digest = hashlib.sha256()
        for piece in manifest_pieces(snapshot_files):
            digest.update(piece)
        sha256 = digest.hexdigest()
        if self.missing([sha256]):
            self.put(sha256, manifest_pieces(snapshot_files))
        return Snapshot(sha256, snapshot_files)

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """Read a snapshot.

        Raises:
            NotFound: it was never uploaded, or is gone.
        """
        snapshot = self._read(snapshot_id)
        absent = self.missing([snapshot_id, *(file.sha256 for file in snapshot.files)])
        if absent:
            raise NotFound(
                f"snapshot `{snapshot_id[:12]}…` is incomplete", "upload the folder again"
            )
        return snapshot

    def parts(self, snapshot_id: str) -> set[str]:
        """The blobs of a snapshot, itself included; empty when there is no such snapshot.

        Raises:
            OSError: it is there and can't be read.
        """
        try:
            return {snapshot_id, *(file.sha256 for file in self._read(snapshot_id).files)}
        except NotFound:
            return set()
        except InvalidInput:
            return {snapshot_id}  # a file, and no snapshot

    def all(self) -> Iterator[tuple[str, os.stat_result]]:
        """Each blob's sha256 and status on disk; `st_mtime` is the time of its last use."""
        for folder in sorted(self.folder.glob("[0-9a-f][0-9a-f]")):
            for entry in os.scandir(folder):
                if _SHA256.fullmatch(entry.name):
                    yield entry.name, entry.stat()

    def remove(self, hashes: Iterable[str], before_s: float) -> set[str]:
        """Remove those that were not used since `before_s`; returns the removed."""
        hashes_to_remove, removed = list(hashes), set()
        for start in range(0, len(hashes_to_remove), _REMOVED_AT_ONCE):
            # A reader of a blob waits for this, and then finds it removed or renewed.
            with self._lock_folder():
                for sha256 in hashes_to_remove[start : start + _REMOVED_AT_ONCE]:
                    path = self.path(sha256)
                    if path.exists() and path.stat().st_mtime < before_s:
                        path.unlink()
                        removed.add(sha256)
        return removed

    @contextmanager
    def _lock_folder(self, shared: bool = False) -> Iterator[None]:
        """The lock on the folder itself, among all servers that share it."""
        try:
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            locks.lock(descriptor, shared)
            yield
        finally:
            os.close(descriptor)

    def _renew(self, sha256: str) -> bool:
        """Whether the blob is here; it is new from now on."""
        try:
            status = self._found(sha256)
            if status is None:
                return False
            if status.st_mtime < time.time() - _NEW_S:
                os.utime(self._path(sha256))
        except FileNotFoundError:
            return False
        return True

    def _found(self, sha256: str) -> os.stat_result | None:
        """A blob's status on disk. A power cut may leave an empty file, which does not count."""
        try:
            status = os.stat(self._path(sha256))
        except FileNotFoundError:
            return None
        return status if status.st_size or sha256 == _SHA256_OF_NOTHING else None

    def _read(self, snapshot_id: str) -> Snapshot:
        path = self.path(snapshot_id)
        try:
            if not self.has(snapshot_id):
                raise FileNotFoundError(path)
            if path.stat().st_size > _MANIFEST_MOST_BYTES:
                raise InvalidInput("it is longer than any manifest")
            snapshot_files = _files_of(parse_manifest(path.read_bytes()))
        except InvalidInput as error:
            raise InvalidInput(
                f"`{snapshot_id[:12]}…` is a file and no snapshot", "name the snapshot's own id"
            ) from error
        except FileNotFoundError:
            raise NotFound(
                f"snapshot `{snapshot_id[:12]}…` does not exist", "upload the folder again"
            ) from None
        return Snapshot(snapshot_id, snapshot_files)


def check(expected: str, arrived: str) -> None:
    """
    Raises:
        InvalidInput: the sha256 of a blob's bytes is not its name.
    """
    if expected != arrived:
        raise InvalidInput(
            f"blob `{expected[:12]}…` arrived as `{arrived[:12]}…`",
            "the file changed while it was sent; send it again",
        )


def _write(draft: str, content: bytes) -> None:
    """A new file, in a folder that is made if it is missing."""
    try:
        descriptor = os.open(draft, os.O_WRONLY | _CREATING, 0o444)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(draft), exist_ok=True)
        descriptor = os.open(draft, os.O_WRONLY | _CREATING, 0o444)
    try:
        os.fchmod(descriptor, 0o444)
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)


def parse_manifest(content: bytes) -> dict[str, Any]:
    """What a manifest's text says; `files` is a list.

    Raises:
        InvalidInput: it is not a manifest.
    """
    if json_values.most_values(content) > _MANIFEST_MOST_VALUES:
        raise _not_valid("it has too many values")
    try:
        manifest = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _not_valid(f"it is not JSON ({error})") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), list):
        raise _not_valid("it has no list `files`")
    return manifest


def _not_valid(reason: str) -> InvalidInput:
    return InvalidInput(
        f"the snapshot's manifest is not valid: {reason}",
        "each file needs `path`, `sha256` and `size`",
    )


def manifest_pieces(snapshot_files: Iterable[SnapshotFile]) -> Iterator[bytes]:
    """The one form of a manifest, bit by bit: sorted by path, compact."""
    encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
    ordered = sorted(snapshot_files, key=lambda file: file.path)
    yield b'{"files":['
    for start in range(0, len(ordered), _ENTRIES_A_PIECE):
        entries = [
            encode({"mode": file.mode, "path": file.path, "sha256": file.sha256, "size": file.size})
            for file in ordered[start : start + _ENTRIES_A_PIECE]
        ]
        yield (("," if start else "") + ",".join(entries)).encode()
    yield b"]}"


def _files_of(manifest: Mapping[str, Any]) -> tuple[SnapshotFile, ...]:
    try:
        snapshot_files = tuple(
            SnapshotFile(
                files.safe_relative(str(entry["path"])),
                str(entry["sha256"]),
                int(entry["size"]),
                _mode(entry.get("mode", "0644")),
            )
            for entry in manifest["files"]
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _not_valid(repr(error)) from error
    paths = {file.path for file in snapshot_files}
    folders = {parent for path in paths for parent in _parents(path)}
    if len(paths) != len(snapshot_files) or paths & folders:
        raise InvalidInput(
            "the snapshot's manifest has two entries of one path", "name each file once"
        )
    return snapshot_files


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def _mode(text: Any) -> str:
    return "0755" if int(str(text), 8) & 0o100 else "0644"
