"""Files in a folder of this machine's disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from torchyard.base import files
from torchyard.data.types import Entry


class FolderFiles:
    """`Files` below one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entry(self, path: str) -> Entry | None:
        found = self.local(path)
        return _entry(found, path) if found.is_file() else None

    def is_folder(self, path: str) -> bool:
        return self.local(path).is_dir()

    def walk(self, prefix: str) -> Iterator[Entry]:
        top = self.local(prefix)
        for path, _ in files.walk(top):
            yield _entry(top / path, path)

    def fetch(self, wanted: Sequence[tuple[str, Path]]) -> None:
        for path, target in wanted:
            shutil.copyfile(self.local(path), target)

    def writing(self, path: str) -> AbstractContextManager[files.Writing]:
        return files.whole(self.local(path))

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
    return Entry(path, known.st_size, f"{known.st_mtime_ns}-{known.st_ino}")
