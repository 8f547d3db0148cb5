"""Files of several places as one folder, as SDK v1's datasets of several paths name them.

Owns: the layout: a web file at `HOST/PATH`, a datastore's at `DATASTORE/PATH`.
Leaves: the files to their places.
Always: nothing is written there; each file has one name, however many paths name it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.files import Writing
from torchyard.data.types import Entry

if TYPE_CHECKING:
    from torchyard.data.actions import Place


class SeveralFiles:
    """`Files` of several places.

    Args:
        places: by the path of each in the folder, as `name_of` gives it.
    """

    def __init__(self, places: Mapping[str, Place]) -> None:
        self._places = places

    def entry(self, path: str) -> Entry | None:
        found = self._find(path)
        if found is None:
            return None
        place, inner = found
        entry = place.files.entry(inner)
        return entry and Entry(path, entry.size_bytes, entry.mark, entry.modified_at)

    def is_folder(self, path: str) -> bool:
        return next(self.walk(path), None) is not None

    def walk(self, prefix: str) -> Iterator[Entry]:
        above = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        entries = {
            entry.path: entry
            for name, place in self._places.items()
            for entry in _entries(name, place)
            if entry.path.startswith(above)
        }
        start = len(above)
        for path in sorted(entries):
            entry = entries[path]
            yield Entry(path[start:], entry.size_bytes, entry.mark, entry.modified_at)

    def fetch(self, pairs: Sequence[tuple[str, Path]]) -> None:
        for path, target in pairs:
            place, inner = self._existing(path)
            place.files.fetch([(inner, target)])

    def read(self, path: str, start: int = 0, most: int | None = None) -> Iterator[bytes]:
        place, inner = self._existing(path)
        return place.files.read(inner, start, most)

    def writing(self, path: str) -> AbstractContextManager[Writing]:
        raise _read_only()

    def delete(self, path: str) -> None:
        raise _read_only()

    def local(self, path: str) -> Path | None:
        return None

    def _existing(self, path: str) -> tuple[Place, str]:
        found = self._find(path)
        if found is None:
            raise NotFound(f"`{path}` does not exist in the dataset")
        return found

    def _find(self, path: str) -> tuple[Place, str] | None:
        for name, place in self._places.items():
            if path == name:
                return place, place.path
            if path.startswith(f"{name}/"):
                return place, f"{place.path.rstrip('/')}/{path[len(name) + 1 :]}".strip("/")
        return None


def name_of(path: str) -> str:
    """Where the files of a path lie in the folder."""
    if path.startswith("azureml://datastores/"):
        store, _, below = path.removeprefix("azureml://datastores/").partition("/paths/")
        return _plain(f"{store}/{below}")
    parts = urlsplit(path)
    return _plain(f"{parts.hostname or 'data'}/{unquote(parts.path)}")


def _plain(path: str) -> str:
    return "/".join(part for part in path.split("/") if part not in ("", ".", ".."))


def _entries(name: str, place: Place) -> Iterator[Entry]:
    single = place.files.entry(place.path)
    if single is not None:
        yield Entry(name, single.size_bytes, single.mark, single.modified_at)
        return
    for entry in place.files.walk(place.path):
        yield Entry(f"{name}/{entry.path}", entry.size_bytes, entry.mark, entry.modified_at)


def _read_only() -> InvalidInput:
    return InvalidInput("a dataset of several paths can't be changed", "name a datastore")
