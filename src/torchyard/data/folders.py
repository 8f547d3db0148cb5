"""Files in a folder of this machine's disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timezone
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import NotFound
from torchyard.data.types import Entry


class FolderFiles:
    """`Files` below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entry(self, path: str) -> Entry | None:
        found = self.local(path)
        with suppress(FileNotFoundError):  # it went meanwhile
            return _entry(found, path) if found.is_file() else None
        return None

    def is_folder(self, path: str) -> bool:
        return self.local(path).is_dir()

    def walk(self, prefix: str) -> Iterator[Entry]:
        top = self.local(prefix)
        for path, _ in files.walk(top):
            with suppress(FileNotFoundError):  # it went meanwhile
                yield _entry(top / path, path)

    def fetch(self, wanted: Sequence[tuple[str, Path]]) -> None:
        for path, target in wanted:
            shutil.copyfile(self.local(path), target)

    def ordered(self, prefix: str, after: str = "", fold: bool = False) -> Iterator[Entry | str]:
        """Every file whose path begins with `prefix` and comes behind `after`, by path.

        Folders are opened as they are come to, so the first of a million files costs little.

        Args:
            fold: files in folders below the prefix are told by their folder alone, with a slash.
        """
        yield from _ordered(self._folder, "", prefix, after, fold)

    def read(self, path: str, start: int = 0, most: int | None = None) -> Iterator[bytes]:
        try:
            file = open(self.local(path), "rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise NotFound(f"`{path}` does not exist in its folder") from error
        file.seek(start)
        return files.chunks(file, most)

    def writing(self, path: str) -> AbstractContextManager[files.Writing]:
        target = self.local(path)
        if target.is_dir():
            _drop_hollow(target)
        return files.whole(target)

    def delete(self, path: str) -> None:
        found = self.local(path)
        if found.is_dir():
            shutil.rmtree(found)
        else:
            found.unlink(missing_ok=True)

    def local(self, path: str) -> Path:
        clean = path.strip("/")
        return files.inside(self._folder, clean) if clean else self._folder


def _entry(file: Path, path: str) -> Entry:
    known = os.stat(file)
    modified_at = datetime.fromtimestamp(known.st_mtime, timezone.utc)
    return Entry(path, known.st_size, f"{known.st_mtime_ns}-{known.st_ino}", modified_at)


def _drop_hollow(folder: Path) -> None:
    """Folders that hold no file are nobody's; one that holds any stays."""
    for root, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(root)


def _ordered(
    folder: Path, above: str, prefix: str, after: str, fold: bool
) -> Iterator[Entry | str]:
    for name in _names(folder):
        path = above + name
        if not name.endswith("/"):
            if path.startswith(prefix) and path > after:
                with suppress(OSError):  # it went meanwhile
                    yield _entry(folder / name, path)
            continue
        if not path.startswith(prefix) and not prefix.startswith(path):
            continue
        if path <= after and not after.startswith(path):
            continue
        folded = fold and not prefix.startswith(path)
        below = _ordered(folder / name, path, prefix, after, fold and not folded)
        if not folded:
            yield from below
        elif next(below, None) is not None:
            yield path


def _names(folder: Path) -> list[str]:
    """Of the whole files and, with a slash, of the folders; as their paths are sorted."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir():
                    if not entry.is_symlink():
                        found.append(f"{name}/")
                elif entry.is_file() and not files.is_draft(name):
                    found.append(name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)
