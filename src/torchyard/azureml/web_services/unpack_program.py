"""Unpack a client's tar file, in a process of its own: `python -m … FOLDER LIMITS <ARCHIVE`.

Owns: reading the archive at standard input; what it may take of memory, time and disk.
Leaves: starting it, and what its answer means, to archives.py.
Always: the answer at standard output is one JSON document: `files`, each `[path, number, mode]` of
the file FOLDER/number, or `refused`, `[code, message, hint]`. Nothing else is written.
"""

from __future__ import annotations

import gzip
import json
import resource
import sys
import tarfile
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from torchyard.base.errors import InvalidInput, LimitExceeded, TorchyardError
from torchyard.base.files import safe_relative
from torchyard.shared.archives import BoundedTarInfo

_CHUNK_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Limits:
    """What an archive may hold, and its reading may take."""

    size_bytes: int
    files: int
    processor_s: int
    memory_bytes: int


def main(folder: Path, limits: Limits) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CPU, (limits.processor_s, limits.processor_s))
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    try:
        return {"files": _unpack(sys.stdin.buffer, folder, limits)}
    except TorchyardError as error:
        return {"refused": [error.code, error.message, error.hint]}
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error, MemoryError) as error:
        message = str(error)[:200] or type(error).__name__
        return {"refused": ["", f"the archive of the code can't be read: {message}", ""]}


def _unpack(archive: IO[bytes], folder: Path, limits: Limits) -> list[tuple[str, int, str]]:
    is_packed = archive.read(2) == _GZIP
    archive.seek(0)
    plain = folder / "archive"
    with gzip.open(archive) if is_packed else archive as source:
        _copy(source, plain, limits.size_bytes, limits)
    with tarfile.open(plain, mode="r:", tarinfo=BoundedTarInfo) as opened:
        members = []
        for member in opened:
            members.append(member)
            if len(members) > limits.files:
                raise LimitExceeded(f"the code has more than {limits.files} files and folders")
        # A name that comes twice is its last one, as when tar unpacks.
        last = {safe_relative(item.name): item for item in members if not item.isdir()}
        left, files = limits.size_bytes, []
        for number, (path, member) in enumerate(last.items()):
            left -= _copy(_content(opened, member), folder / str(number), left, limits)
            files.append((path, number, "0755" if member.mode & 0o100 else "0644"))
        return files


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    try:
        content = archive.extractfile(member)
    except (KeyError, RecursionError):
        content = None
    if content is None:
        raise InvalidInput(
            f"`{member.name[:200]}` of the code is not a file",
            "give a `source_directory` without sockets, devices and links that lead out of it",
        )
    return content


def _copy(source: IO[bytes] | gzip.GzipFile, target: Path, left: int, limits: Limits) -> int:
    """The number of bytes copied; the source is closed."""
    copied = 0
    with source, open(target, "xb") as file:
        while chunk := source.read(_CHUNK_BYTES):
            copied += len(chunk)
            if copied > left:
                raise LimitExceeded(
                    f"the code has more than {limits.size_bytes >> 20} MiB",
                    "register large files as a model, and leave them out of `source_directory`",
                )
            file.write(chunk)
    return copied


def words(folder: Path, limits: Limits) -> list[str]:
    """How to run it."""
    return [sys.executable, "-m", __name__, str(folder), json.dumps(asdict(limits))]


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Limits(**json.loads(sys.argv[2])))))
