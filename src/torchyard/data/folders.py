"""Files in a folder of this machine's disk.

Owns: reading, writing and listing them.
Leaves: which folders may be used to datastores.py.
Always: no link leads out of a folder, in one that jobs can write to also none that is put there
after a name was checked: what was opened is checked again.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from torchyard.base import disk, files
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data.types import Entry


class FolderFiles:
    """`Files` below one folder.

    Args:
        is_foreign: other users than the server's may change the folder while it is used.
    """

    def __init__(self, folder: Path, is_foreign: bool = False) -> None:
        self._folder = folder
        self.real = folder.resolve()
        self._is_foreign = is_foreign

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
            with self._open(path) as file:
                shutil.copyfile(_opened(file.fileno()), target)

    def ordered(self, prefix: str, after: str = "", fold: bool = False) -> Iterator[Entry | str]:
        """Every file whose path begins with `prefix` and sorts after `after`, by path.

        Folders are opened one after another, so the first of a million files costs little.

        Args:
            fold: yield a folder below the prefix, with a slash, in place of the files in it.
        """
        yield from _ordered(self._folder, "", prefix, after, fold)

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        try:
            file = self._open(path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise NotFound(f"`{path}` does not exist in its folder") from error
        file.seek(start)
        return files.chunks(file, limit)

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
        with self._pin_target(target, make=True) as pinned:
            with files.write_atomically(pinned, mode=mode & 0o666) as writing:
                for folder in new:
                    with self._folder_open(folder) as descriptor:
                        os.chmod(_opened(descriptor), mode & 0o777)
                yield writing

    def delete(self, path: str) -> None:
        target = self.local(path)
        with suppress(FileNotFoundError), self._pin_target(target) as pinned:
            if pinned.is_dir():
                shutil.rmtree(pinned)
            else:
                pinned.unlink()

    def _open(self, path: str) -> BinaryIO:
        file = open(self.local(path), "rb")
        try:
            self._check(file.fileno(), path)
        except BaseException:
            file.close()
            raise
        return file

    @contextmanager
    def _pin_target(self, target: Path, make: bool = False) -> Iterator[Path]:
        """The target by its folder as it was opened, so that no link can come between."""
        if not self._is_foreign:
            yield target
            return
        if make:
            with disk.writing(target):
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                except (FileExistsError, NotADirectoryError) as error:
                    raise files.in_the_way(target) from error
        with self._folder_open(target.parent) as descriptor:
            yield _opened(descriptor) / target.name

    @contextmanager
    def _folder_open(self, folder: Path) -> Iterator[int]:
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._check(descriptor, folder.name)
            yield descriptor
        finally:
            os.close(descriptor)

    def _check(self, descriptor: int, path: str) -> None:
        """
        Raises:
            InvalidInput: what is open lies elsewhere.
        """
        if self._is_foreign and not Path(os.readlink(_opened(descriptor))).is_relative_to(
            self.real
        ):
            raise InvalidInput(f"`{path}` leads out of its folder", "use a path without links")

    def local(self, path: str) -> Path:
        clean = path.strip("/")
        return files.inside(self._folder, clean) if clean else self._folder


def _opened(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


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
