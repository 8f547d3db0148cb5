"""Files in a folder of this machine's disk."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
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
        file = self.local(path)
        with suppress(FileNotFoundError):  # it was removed meanwhile
            return _entry(file, path) if file.is_file() else None
        return None

    def is_folder(self, path: str) -> bool:
        return self.local(path).is_dir()

    def walk(self, prefix: str) -> Iterator[Entry]:
        top = self.local(prefix)
        for path, _ in files.walk(top):
            with suppress(FileNotFoundError):  # it was removed meanwhile
                yield _entry(top / path, path)

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        for path, target in pairs:
            shutil.copyfile(self.local(path), target)

    def ordered(self, prefix: str, after: str = "", fold: bool = False) -> Iterator[Entry | str]:
        """Every file whose path begins with `prefix` and sorts after `after`, by path.

        Folders are opened one after another, so the first of a million files costs little.

        Args:
            fold: yield a folder below the prefix, with a slash, in place of the files in it.
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
            _remove_empty_folders(target)
        return self._writing(target)

    @contextmanager
    def _writing(self, target: Path) -> Iterator[files.Writing]:
        # As readable as the datastore's folder, whose users may be others than the server's.
        mode = stat.S_IMODE(self._folder.stat().st_mode) if self._folder.is_dir() else 0o700
        new = [folder for folder in target.parents if not folder.exists()]
        with files.whole(target, mode=mode & 0o666) as writing:
            for folder in new:
                folder.chmod(mode & 0o777)
            yield writing

    def delete(self, path: str) -> None:
        target = self.local(path)
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)

    def local(self, path: str) -> Path:
        clean = path.strip("/")
        return files.inside(self._folder, clean) if clean else self._folder


def _entry(file: Path, path: str) -> Entry:
    stat = os.stat(file)
    modified_at = datetime.fromtimestamp(stat.st_mtime, timezone.utc)
    return Entry(path, stat.st_size, f"{stat.st_mtime_ns}-{stat.st_ino}", modified_at)


def _remove_empty_folders(folder: Path) -> None:
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
                with suppress(OSError):  # it was removed meanwhile
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
    """Complete files and, with a slash, folders; sorted as their paths are."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir():
                    if not entry.is_symlink():
                        names.append(f"{name}/")
                elif entry.is_file() and not files.is_draft(name):
                    names.append(name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names)
