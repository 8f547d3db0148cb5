"""Checkpoints as they lie in storage.

Owns: names of files, records, which versions are whole, reading and deleting them.
Leaves: when something is written to the writer and its process.
Always: nobody coordinates. Each rank adds records of its own, and a reader decides by them.

Each `Checkpoint` that a script makes is a version: a folder `TAG/VERSION`, with one file of
torch.save for each object and the folder `.nebula`:

- `object.NAME`, written when the object is durable: its size, CRC-32, and how many there will be;
- `open.RANK`, written before a rank saves, where no number of files says when all are there;
- `released.RANK`, written when the rank adds nothing more and all that it saved is durable.

A version is whole when it has as many objects as announced; without a number, when one rank has
released it, and so has every rank that opened it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from torchyard.train.checkpoint import folders
from torchyard.train.checkpoint.checksum_stream import ChecksumStream
from torchyard.train.checkpoint.errors import CheckpointError
from torchyard.train.checkpoint.folders import FileSum

_RECORDS = ".nebula"
_DELETED = ".deleted-"
_SAFE = " =+,@()[]{}"


@dataclass(frozen=True)
class Version:
    """`name` sorts by time and is the same on all ranks; `count` is None where none was given."""

    root: Path
    tag: str
    name: str
    count: int | None
    is_best: bool = False

    @property
    def folder(self) -> Path:
        return self.root / file_name(self.tag) / self.name

    def file(self, object_name: str) -> Path:
        return self.folder / file_name(object_name)


@dataclass(frozen=True)
class WholeVersion:
    """A whole checkpoint, and its objects by their names."""

    version: Version
    objects: dict[str, FileSum]


def file_name(name: str) -> str:
    """A name that is safe in a file system, and the same for most tags and objects."""
    quoted = quote(name, safe=_SAFE)
    return "%2E" + quoted[1:] if quoted.startswith(".") else quoted


def open_version(version: Version, rank: int) -> None:
    """Say that a rank will save to it; without it, the version could be whole too early."""
    if version.count is None:
        _record(version, f"open.{rank}", {})


def release(version: Version, rank: int) -> None:
    """Say that all of a rank's objects are durable and none will follow."""
    if version.count is None:
        _record(version, f"released.{rank}", {})


def is_released(version: Version, rank: int) -> bool:
    return (version.folder / _RECORDS / f"released.{rank}").exists()


def forget(version: Version, rank: int) -> None:
    """Take back `open_version` of a version that is not written."""
    with contextlib.suppress(OSError):
        (version.folder / _RECORDS / f"open.{rank}").unlink()
        (version.folder / _RECORDS).rmdir()
        version.folder.rmdir()
        version.folder.parent.rmdir()


def add_object(version: Version, name: str, write: Callable[[Any], None]) -> None:
    """Make an object durable; `write` gets an open file, and its bytes are summed.

    Raises:
        OSError: such as a full disk.
    """
    version.folder.mkdir(parents=True, exist_ok=True)
    file = version.file(name)
    part = file.with_name(f".{file.name}.part")
    try:
        with open(part, "wb", buffering=0) as stream:
            with ChecksumStream(stream) as summed:
                summed.fill(write)
            os.fsync(stream.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()  # makes room where the disk is full
        raise
    os.rename(part, file)
    folders.sync_folder(version.folder)
    body = {
        "size_bytes": summed.size_bytes, "crc32": summed.crc32,
        "count": version.count, "is_best": version.is_best,
    }  # fmt: skip
    _record(version, f"object.{file.name}", body)


def read(version: Version) -> WholeVersion | None:
    """None where it is not whole."""
    records = version.folder / _RECORDS
    names = set(_names(records))
    objects, counts, is_best = {}, set(), False
    for name in names:
        if name.startswith("object."):
            body = _read_record(records / name)
            if body is None:
                return None
            key = name.removeprefix("object.")
            objects[unquote(key)] = FileSum(body["size_bytes"], body["crc32"])
            counts.add(body["count"])
            is_best = is_best or bool(body["is_best"])
            if _size_bytes(version.folder / key) != body["size_bytes"]:
                return None
    if not objects or not _is_complete(names, len(objects), counts):
        return None
    count = None if None in counts else max(counts)
    return WholeVersion(Version(version.root, version.tag, version.name, count, is_best), objects)


def whole_versions(root: Path, tag: str | None = None) -> list[WholeVersion]:
    """The newest whole version of each tag, or of one, from the oldest to the newest."""
    tags = [file_name(tag)] if tag is not None else _names(root)
    newest = []
    for folder in tags:
        if folder.startswith("."):
            continue
        for name in reversed(_names(root / folder)):
            complete = read(Version(root, unquote(folder), name, None))
            if complete is not None:
                newest.append(complete)
                break
    return sorted(newest, key=lambda complete: complete.version.name)


def verify(complete: WholeVersion, name: str) -> Path:
    """Return the file of an object whose bytes are those that were written.

    Raises:
        CheckpointError: there is no such object, or the file was changed.
    """
    version = complete.version
    if name not in complete.objects:
        raise CheckpointError(
            f"checkpoint `{version.tag}` in {version.root} has no `{name}`",
            f"it has: {', '.join(sorted(complete.objects))}",
        )
    file = version.file(name)
    try:
        actual = folders.file_sum(file)
    except OSError as error:
        raise CheckpointError(f"{file} can't be read: {error.strerror}") from error
    if actual != complete.objects[name]:
        raise CheckpointError(
            f"checkpoint `{version.tag}` in {version.root} is damaged: `{name}` is not as it was "
            "written",
            "load another one; `list_checkpoints()` names them",
        )
    return file


def remove(root: Path, tag: str, older_than: str | None = None) -> None:
    """Delete the versions of a tag, or those before one; none is left half."""
    folder = root / file_name(tag)
    for name in _names(folder):
        if older_than is None or name < older_than:
            folders.remove(folder / name)
    with contextlib.suppress(OSError):
        folder.rmdir()


def _is_complete(names: set[str], objects: int, counts: set[int | None]) -> bool:
    if None not in counts:
        return objects >= max(count for count in counts if count is not None)
    opened = {name.partition(".")[2] for name in names if name.startswith("open.")}
    released = {name.partition(".")[2] for name in names if name.startswith("released.")}
    return bool(released) and opened <= released


def _record(version: Version, name: str, body: dict[str, Any]) -> None:
    records = version.folder / _RECORDS
    records.mkdir(parents=True, exist_ok=True)
    part = records / f".{name}.{os.getpid()}.part"
    folders.write_durably(part, json.dumps(body).encode())
    os.rename(part, records / name)
    folders.sync_folder(records)


def _read_record(path: Path) -> dict[str, Any] | None:
    try:
        body = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return body if isinstance(body, dict) else None


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith(_DELETED))
    except (FileNotFoundError, NotADirectoryError):
        return []
