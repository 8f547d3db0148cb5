"""Files of several places as one folder, as SDK v1's datasets of several paths name them.

Owns: the layout: a web file at `HOST/PATH`, a datastore's at `DATASTORE/PATH`; which files of a
folder a pattern fits.
Leaves: the files to their places.
Always: nothing is written there; each file has one name, however many paths name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.files import Writing
from torchyard.data.types import Entry, Files

_MOST_PARTS = 100
FileLocation = tuple[Files, str]
"""Files, and a path below them."""


@dataclass(frozen=True)
class Part:
    """The file or folder `path` of `files`, which lies at `name` in the folder that is made.

    Args:
        name: as `name_of` gives it.
        uri: for messages.
        pattern: of the files of a folder, in the words of a shell, where `**` is any number of
            folders; empty for all files.
    """

    name: str
    files: Files
    path: str
    uri: str
    pattern: str = ""

    def holds(self, below: str) -> bool:
        """Whether a file of the folder belongs to it."""
        return not self.pattern or matches(self.pattern, below)


class SeveralFiles:
    """`Files` of several places."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts

    def entry(self, path: str) -> Entry | None:
        match = self._find(path)
        if match is None:
            return None
        entry = match[0].entry(match[1])
        return entry and Entry(path, entry.size_bytes, entry.mark, entry.modified_at)

    def is_folder(self, path: str) -> bool:
        return next(self.walk(path), None) is not None

    def walk(self, prefix: str) -> Iterator[Entry]:
        above = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        entries = {
            entry.path: entry
            for part in self._parts
            for entry in _entries(part)
            if entry.path.startswith(above)
        }
        start = len(above)
        for path in sorted(entries):
            entry = entries[path]
            yield Entry(path[start:], entry.size_bytes, entry.mark, entry.modified_at)

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        for path, target in pairs:
            files, inner = self._existing(path)
            files.fetch([(inner, target)])

    def read(self, path: str, start: int = 0, limit: int | None = None) -> Iterator[bytes]:
        files, inner = self._existing(path)
        return files.read(inner, start, limit)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise _read_only()

    def delete(self, path: str) -> None:
        raise _read_only()

    def local(self, path: str, person: str = "") -> Path | None:
        return None

    def _existing(self, path: str) -> FileLocation:
        match = self._find(path)
        if match is None:
            raise NotFound(f"`{path}` does not exist in the dataset")
        return match

    def _find(self, path: str) -> FileLocation | None:
        for part in self._parts:
            if path == part.name:
                return part.files, part.path
            below = path[len(part.name) + 1 :]
            if path.startswith(f"{part.name}/") and part.holds(below):
                return part.files, f"{part.path.rstrip('/')}/{below}".strip("/")
        return None


def matches(pattern: str, path: str) -> bool:
    """Whether a pattern such as `**/train-*.gz` fits a whole path; in linear time of each."""
    parts = pattern.split("/")
    if len(parts) > _MOST_PARTS:
        return False
    # How many parts of the pattern may be used up by the part of the path read so far.
    used = _without_folders(parts, {0})
    for part in path.split("/"):
        used = _without_folders(
            parts,
            {
                number if parts[number] == "**" else number + 1
                for number in used
                if number < len(parts)
                and (parts[number] == "**" or fnmatchcase(part, parts[number]))
            },
        )
    return len(parts) in used


def _without_folders(parts: Sequence[str], used: set[int]) -> set[int]:
    """Also what is used up where a `**` stands for no folder."""
    for number in range(len(parts)):
        if number in used and parts[number] == "**":
            used.add(number + 1)
    return used


def name_of(path: str) -> str:
    """Where the files of a path lie in the folder."""
    if path.startswith("azureml://datastores/"):
        store, _, below = path.removeprefix("azureml://datastores/").partition("/paths/")
        return _plain(f"{store}/{below}")
    parts = urlsplit(path)
    return _plain(f"{parts.hostname or 'data'}/{unquote(parts.path)}")


def _plain(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", ".", ".."))


def _entries(part: Part) -> Iterator[Entry]:
    single = None if part.pattern else part.files.entry(part.path)
    if single is not None:
        yield Entry(part.name, single.size_bytes, single.mark, single.modified_at)
        return
    is_empty = True
    for entry in part.files.walk(part.path):
        is_empty = False
        if part.holds(entry.path):
            path = f"{part.name}/{entry.path}"
            yield Entry(path, entry.size_bytes, entry.mark, entry.modified_at)
    if is_empty:
        raise NotFound(
            f"there is nothing at `{part.uri}`, which the dataset names",
            "correct its path, or leave it out and register the dataset again",
        )


def _read_only() -> InvalidInput:
    return InvalidInput("a dataset of several paths can't be changed", "name a datastore")
