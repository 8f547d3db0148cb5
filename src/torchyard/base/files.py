"""Files on the server's own disk.

Owns: paths that stay in their folder, writes that are whole or not there.
Leaves: what is kept where to the rooms.
Always: a name from outside never reaches a file outside its folder.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from torchyard.base.errors import InvalidInput


@dataclass(frozen=True)
class Stored:
    """What was written."""

    sha256: str
    size_bytes: int


def safe_relative(path: str) -> str:
    """`path` as a clean relative path with forward slashes.

    Raises:
        InvalidInput: it is empty, absolute, climbs with `..`, or holds a NUL byte.
    """
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or "\0" in path or parts[0].endswith(":"):
        raise InvalidInput(
            f"`{path}` is not a path inside its folder", "use a relative path without `..`"
        )
    return "/".join(parts)


def inside(folder: Path, path: str) -> Path:
    """The file `path` names below `folder`, links resolved.

    Raises:
        InvalidInput: it lies outside.
    """
    target = folder / safe_relative(path)
    if not target.resolve().is_relative_to(folder.resolve()):
        raise InvalidInput(f"`{path}` leads out of its folder", "use a path without links")
    return target


class Writing:
    """A file on its way: bytes go to a temporary name, and their hash is kept."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, chunk: bytes) -> None:
        self._file.write(chunk)
        self._hash.update(chunk)
        self.size_bytes += len(chunk)

    @property
    def stored(self) -> Stored:
        return Stored(self._hash.hexdigest(), self.size_bytes)


@contextmanager
def whole(target: Path, mode: int = 0o644) -> Iterator[Writing]:
    """Write `target` under a temporary name and rename it at the end of the block.

    An error in the block leaves what stood at `target` before.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        with open(temporary, "wb") as file:
            yield Writing(file)
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def copy(source: Path, target: Path) -> Stored:
    """Put `source`'s bytes at `target`, whole, and return their hash."""
    with whole(target) as writing, open(source, "rb") as file:
        while chunk := file.read(1 << 20):
            writing.write(chunk)
    return writing.stored


def walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Every whole file below `folder` as (relative path, size in bytes), sorted."""
    found = []
    for root, _, names in os.walk(folder):
        for name in names:
            if name.startswith(".") and name.endswith(".part"):
                continue
            path = Path(root) / name
            found.append((path.relative_to(folder).as_posix(), path.stat().st_size))
    return iter(sorted(found))
