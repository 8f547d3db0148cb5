"""Checkpoints as they lie in a folder.

Owns: names of files, the manifest, listing, verifying and deleting.
Leaves: who writes what to commits; the contents of the files to torch.distributed.checkpoint.
Always: a folder is a checkpoint if its manifest is there, which is renamed into place last.

A checkpoint is a folder `step-00000100` (`step-00000100.1` when the step was saved again) with

- `.metadata` and `__RANK_0.distcp`, as torch.distributed.checkpoint writes and reads them;
- `manifest.json`, with the size and CRC-32 of each of them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.train.checkpoint import checksums
from torchyard.train.checkpoint.errors import CheckpointError

# A newer format keeps the manifest's keys: else it is taken for no checkpoint, and not refused.
FORMAT = 1
MANIFEST = "manifest.json"
_PART = ".manifest.part"
TEMPORARY = ".saving-"
_DELETED = ".deleted-"
_NAME = re.compile(r"step-(\d+)(?:\.(\d+))?")
# Threads that read files at once.
_READERS = 4


@dataclass(frozen=True)
class FileSum:
    """Size and CRC-32 of one file."""

    size_bytes: int
    crc32: int


@dataclass(frozen=True)
class CheckpointInfo:
    """A whole checkpoint: `ranks` wrote it, `created_at` is UTC in ISO 8601.

    `saved_at` is when the state was copied, in ms since 1970; it was durable at `created_at`.
    `save_id` tells two checkpoints of one step apart.
    """

    step: int
    path: Path
    ranks: int
    created_at: str
    saved_at: int
    metric: float | None
    save_id: str
    format: int
    files: Mapping[str, FileSum]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files.values())


def checkpoints(folder: Path) -> dict[int, CheckpointInfo]:
    """Every whole checkpoint by its step, in the order of steps."""
    newest: dict[int, tuple[int, CheckpointInfo]] = {}
    for path in _entries(folder):
        match = _NAME.fullmatch(path.name)
        info = read_manifest(path) if match else None
        if match is None or info is None:
            continue
        number = int(match.group(2) or 0)
        if info.step not in newest or newest[info.step][0] < number:
            newest[info.step] = (number, info)
    return {step: newest[step][1] for step in sorted(newest)}


def committed(folder: Path, save_id_prefix: str) -> CheckpointInfo | None:
    """The checkpoint that a save has become."""
    for path in _entries(folder):
        if _NAME.fullmatch(path.name):
            info = read_manifest(path)
            if info is not None and info.save_id.startswith(save_id_prefix):
                return info
    return None


def finish_commit(folder: Path, save_id_prefix: str) -> None:
    """Go on where a writer was killed between its last two renames."""
    for path in _entries(folder):
        if _NAME.fullmatch(path.name):
            info = read_manifest(path, _PART)
            if info is not None and info.save_id.startswith(save_id_prefix):
                _rename_manifest(path)


def read_manifest(path: Path, name: str = MANIFEST) -> CheckpointInfo | None:
    """None where the folder is not a whole checkpoint."""
    try:
        document = json.loads((path / name).read_bytes())
        body = document["checkpoint"]
        if document["crc32"] != _body_crc32(body):
            return None
        files = {
            name: FileSum(file["size_bytes"], file["crc32"]) for name, file in body["files"].items()
        }
        return CheckpointInfo(
            step=int(body["step"]), path=path, ranks=int(body["ranks"]),
            created_at=body["created_at"], saved_at=int(body["saved_at"]),
            metric=body["metric"], save_id=body["save_id"],
            format=int(body["format"]), files=files,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def commit(info: CheckpointInfo, folder: Path) -> None:
    """Make `folder`, whose files are durable, the checkpoint at `info.path`."""
    _write_part(info, folder)
    os.rename(folder, info.path)
    sync_folder(info.path.parent)
    _rename_manifest(info.path)


def write_manifest(info: CheckpointInfo, folder: Path) -> None:
    """Make `folder`, whose files are durable, a checkpoint where it is."""
    _write_part(info, folder)
    _rename_manifest(folder)


def _write_part(info: CheckpointInfo, folder: Path) -> None:
    body = {
        "format": info.format, "step": info.step, "ranks": info.ranks,
        "created_at": info.created_at, "saved_at": info.saved_at,
        "metric": info.metric, "save_id": info.save_id,
        "files": {name: asdict(file) for name, file in info.files.items()},
    }  # fmt: skip
    text = json.dumps({"checkpoint": body, "crc32": _body_crc32(body)}, indent=1)
    write_durably(folder / _PART, text.encode())
    sync_folder(folder)


def _rename_manifest(path: Path) -> None:
    os.rename(path / _PART, path / MANIFEST)
    sync_folder(path)


def final_path(folder: Path, step: int) -> Path:
    """Where a checkpoint of this step goes; the newest of one step has the highest number."""
    numbers = [
        int(match[2] or 0)
        for path in _entries(folder)
        if (match := _NAME.fullmatch(path.name)) and int(match[1]) == step
    ]
    suffix = f".{max(numbers) + 1}" if numbers else ""
    return folder / f"step-{step:08d}{suffix}"


def verify(info: CheckpointInfo) -> None:
    """Compare every file with the manifest.

    Raises:
        CheckpointError: the format is newer, or a file is missing, cut off or changed.
    """
    if info.format > FORMAT:
        raise CheckpointError(
            f"checkpoint {info.path} has format {info.format}, newer than {FORMAT}, the newest "
            "that this version reads",
            "update torchyard-train",
        )
    # Checksums are computed without Python's lock.
    with ThreadPoolExecutor(_READERS) as pool:
        paths = [info.path / name for name in info.files]
        problems = list(pool.map(_difference, paths, info.files.values()))
    for name, problem in zip(info.files, problems, strict=True):
        if problem:
            raise CheckpointError(
                f"checkpoint {info.path} is damaged: `{name}` {problem}",
                "load another step; `checkpoint.list()` names them",
            )


def delete(folder: Path, step: int) -> bool:
    """Delete the checkpoint of a step, False without one; a killed deletion leaves none half."""
    deleted = False
    for path in _entries(folder):
        match = _NAME.fullmatch(path.name)
        if match and int(match.group(1)) == step:
            deleted = (read_manifest(path) is not None) or deleted
            remove(path)
    return deleted


def remove(path: Path) -> None:
    """Remove a folder so that nobody takes what is left of it for a checkpoint."""
    target = path.with_name(_DELETED + path.name)
    shutil.rmtree(target, ignore_errors=True)
    try:
        os.rename(path, target)
    except FileNotFoundError:
        return
    shutil.rmtree(target, ignore_errors=True)


def remove_stale(folder: Path, session: str, step: int) -> None:
    """Remove what killed writers left, and what newer saves of the same steps replaced.

    Those of this session are kept from `step` on.
    """
    complete = {info.path for info in checkpoints(folder).values()}
    for path in _entries(folder):
        is_temporary = path.name.startswith(TEMPORARY) and (
            f"-{session}-" not in path.name or path.name < f"{TEMPORARY}{step:08d}"
        )
        is_partial = (
            bool(_NAME.fullmatch(path.name))
            and path not in complete
            # A manifest that can't be read is damage for people to look at, not a killed save.
            and (read_manifest(path) is not None or not (path / MANIFEST).exists())
        )
        if is_temporary or path.name.startswith(_DELETED) or is_partial:
            shutil.rmtree(path, ignore_errors=True)


def write_durably(path: Path, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sum_of(content: bytes) -> FileSum:
    return FileSum(len(content), zlib.crc32(content))


def file_sum(path: Path) -> FileSum:
    return FileSum(*checksums.file_crc32(path))


def _difference(path: Path, expected: FileSum) -> str:
    try:
        size_bytes = path.stat().st_size
        if size_bytes != expected.size_bytes:
            return f"has {size_bytes} bytes instead of {expected.size_bytes}"
        is_same = file_sum(path) == expected
    except OSError as error:
        return f"can't be read ({error.strerror})"
    return "" if is_same else "has another checksum than when it was written"


def _body_crc32(body: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(body, sort_keys=True).encode())


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except FileNotFoundError:
        return []
