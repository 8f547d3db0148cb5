"""The node's cache of remote data.

Owns: the folder of the copies (see base/home/node_folder.py), copying into it, verifying them.
Leaves: what a path means to actions.py, mounting it for a rank to worker/.
Always: a folder of the cache is complete or absent, and never changes; its name is computed from
the source's listing, so equal data is copied once, however many jobs use it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path

from torchyard.base import disk, files
from torchyard.base.db import Database
from torchyard.base.errors import DiskFull, InvalidInput, NotFound, TorchyardError, Unreachable
from torchyard.base.files import Readable
from torchyard.data import actions
from torchyard.data.actions import DataLocation
from torchyard.data.datastores import BUILT_IN, Datastores
from torchyard.data.folders import FolderFiles
from torchyard.data.types import Checksum, Entry
from torchyard.shared import access_lists, locks
from torchyard.shared.sizes import size_text

# Files are fetched in groups; cancellation is checked between two groups.
_GROUP = 200
_KEY_DIGITS = 32
_GROUP_BYTES = 256 << 20
_FOLDER_TYPES = ("uri_folder", "mltable")
_GONE = "check the path, and whether the files were moved"


class FetchCanceled(Exception):
    """The caller canceled the copy."""


@dataclass(frozen=True)
class Fetched:
    """Data on this machine: jobs find it at `path`; the server reads it at `below` in `files`."""

    path: Path
    files: FolderFiles
    below: str


class Fetcher:
    """The node's cache. Keeps nothing in memory: several programs may use one folder.

    Args:
        is_separate: jobs can't enter the server's home: what lies in it is linked into the cache,
            and a copy is read by those alone who were let.
    """

    def __init__(
        self, folder: Path, db: Database, stores: Datastores, is_separate: bool = False
    ) -> None:
        self._folder = folder
        self._is_separate = is_separate
        self._db = db
        self._stores = stores

    def ready(
        self, workspace: str, type: str, path: str, since: datetime, person: str = ""
    ) -> Fetched | None:
        """Data that is on this machine, fetched after `since`; cheap.

        Args:
            person: whose job reads it.

        Raises:
            TorchyardError: as `fetch`.
        """
        location = actions.locate(self._db, self._stores, workspace, path)
        in_place = self._reachable(location, person)
        if in_place is not None:
            return in_place if in_place.files.exists(in_place.below) else None
        try:
            note = json.loads(self._note(workspace, path).read_text())
        except FileNotFoundError:
            return None
        copied = self._copied_to(note["key"], note["file"])
        is_new = note["at"] >= since.timestamp()
        return copied if is_new and copied.files.exists(copied.below) else None

    def fetch(
        self,
        workspace: str,
        type: str,
        path: str,
        now: datetime,
        canceled: Callable[[], bool] = lambda: False,
        person: str = "",
    ) -> Fetched:
        """Copy the data to this machine unless it is here.

        Raises:
            NotFound: there is nothing at `path`.
            InvalidInput: it is a file and the type a folder, or the other way round.
            Unreachable: its datastore does not answer, or the copy is damaged.
            FetchCanceled: `canceled` returned True.
        """
        location = actions.locate(self._db, self._stores, workspace, path)
        in_place = self._reachable(location, person)
        if in_place is not None:
            if not in_place.files.exists(in_place.below):
                raise NotFound(f"there is nothing at `{location.uri}` any more", _GONE)
            is_file = in_place.files.entry(in_place.below) is not None
            _check_type(type, location, is_file)
            return in_place
        single = None if type in _FOLDER_TYPES else location.files.entry(location.path)
        if single is not None:
            name = location.uri.partition("?")[0].rstrip("/").rpartition("/")[2] or "file"
            entries = [Entry("", single.size_bytes, single.mark)]
            targets = [name]
        else:
            entries = list(location.files.walk(location.path))
            targets = [entry.path for entry in entries]
            if not entries:
                _check_type(type, location, location.files.entry(location.path) is not None)
                raise NotFound(f"there is nothing at `{location.uri}`", _GONE)
            _check_type(type, location, False)
        file = targets[0] if single is not None else "."
        with self._copied(workspace, location, entries, targets, canceled) as folder:
            # The time of its last use: `yard gc` removes copies that are long unused.
            os.utime(folder, (now.timestamp(), now.timestamp()))
            self._remember(workspace, path, folder.name, file, now)
        return self._copied_to(folder.name, file)

    def file(self, workspace: str, location: DataLocation, path: str) -> Readable:
        """One file below a place; copies it unless it is here.

        Raises:
            NotFound: the file does not exist.
            InvalidInput: it is a link, or lies behind one.
        """
        inner = f"{location.path.rstrip('/')}/{path}".strip("/") if path else location.path
        if isinstance(location.files, FolderFiles):
            try:
                return location.files.open(inner)
            except NotFound:
                raise NotFound(f"`{path}` does not exist in `{location.uri}`") from None
        uri = f"{location.uri.rstrip('/')}/{path}" if path else location.uri
        single = DataLocation(location.files, inner, uri, location.store)
        entry = location.files.entry(inner)
        if entry is None:
            raise NotFound(f"`{path}` does not exist in `{location.uri}`")
        name = inner.rpartition("/")[2] or "file"
        entries = [Entry("", entry.size_bytes, entry.mark)]
        with self._copied(workspace, single, entries, [name], lambda: False) as folder:
            os.utime(folder)
        return folder / name

    @contextmanager
    def finding(
        self, workspace: str, location: DataLocation
    ) -> Iterator[Callable[[str], Readable]]:
        """What finds one file after another as `file` does, in a folder that is opened once."""
        if not isinstance(location.files, FolderFiles):
            yield partial(self.file, workspace, location)
            return
        top = location.path.rstrip("/")
        with location.files.opener() as open_next:

            def find(path: str) -> Readable:
                try:
                    return open_next(f"{top}/{path}".strip("/"))
                except NotFound:
                    raise NotFound(f"`{path}` does not exist in `{location.uri}`") from None

            yield find

    def let_read(self, file: Path, user: int) -> bool:
        """Let a Unix account read a copy; False for other files, or without access lists.

        Args:
            file: as `fetch` returned it.
        """
        if not self._is_separate or not file.is_relative_to(self._folder):
            return False
        name = file.relative_to(self._folder).parts[0]
        folder = self._folder / name
        with self._locked(name):
            readers = access_lists.readers(folder)
            if user in readers:
                return True
            try:
                access_lists.let_read(folder, {*readers, user})
            except OSError:
                return False  # no access lists there: the node gets the files from the server
        return True

    def _reachable(self, location: DataLocation, person: str) -> Fetched | None:
        """The data in its own place, if jobs can go there."""
        if self._is_separate and location.store in BUILT_IN:
            return None
        path = location.files.local(location.path, person)
        if path is None:
            return None
        assert isinstance(location.files, FolderFiles), location.uri
        return Fetched(path, location.files, location.path)

    def _copied_to(self, key: str, file: str) -> Fetched:
        folder = self._folder / key
        return Fetched(folder / file, FolderFiles(folder), "" if file == "." else file)

    def copies(self) -> Iterator[tuple[str, Path]]:
        """(name, folder) of each copy; a folder's mtime is the time of its last use."""
        for folder in sorted(self._folder.glob("[0-9a-f]" * _KEY_DIGITS)):
            yield folder.name, folder

    def remove(self, name: str, used_at_s: float) -> bool:
        """Remove a copy unless it was used after `used_at_s`."""
        folder = self._folder / name
        with self._locked(name):
            if not folder.exists() or folder.stat().st_mtime > used_at_s:
                return False
            draft = folder.with_name(f"{name}.part")
            _remove(draft)
            os.rename(folder, draft)
            _remove(draft)
        return True

    @contextmanager
    def _copied(
        self,
        workspace: str,
        location: DataLocation,
        entries: Sequence[Entry],
        targets: Sequence[str],
        canceled: Callable[[], bool],
    ) -> Iterator[Path]:
        """The folder with the copies, locked against removal during the block."""
        folder = self._folder / _key(location, entries)
        draft = folder.with_name(f"{folder.name}.part")
        with self._locked(folder.name, canceled):
            if all(entry.mark for entry in entries):
                if not folder.exists():
                    self._copy(workspace, location, entries, targets, draft, canceled)
                    os.rename(draft, folder)
                yield folder
                return
            # Only the bytes tell whether the data changed; jobs may still read the previous copy.
            self._copy(workspace, location, entries, targets, draft, canceled)
            folder = self._folder / _key(location, _summed(entries, targets, draft))
            with self._locked(folder.name, canceled):
                if folder.exists():
                    _remove(draft)
                else:
                    os.rename(draft, folder)
                yield folder

    def _copy(
        self,
        workspace: str,
        location: DataLocation,
        entries: Sequence[Entry],
        targets: Sequence[str],
        draft: Path,
        canceled: Callable[[], bool],
    ) -> None:
        """Copy into `draft`, which may be left over from a killed program."""
        _remove(draft)
        draft.mkdir(parents=True)
        checksums = actions.checksums_of(self._db, workspace, location)
        try:
            _check_free_space(draft, location, entries)
            pairs = [
                (entry, files.inside(draft, target))
                for entry, target in zip(entries, targets, strict=True)
            ]
            for folder in {target.parent for _, target in pairs}:
                folder.mkdir(parents=True, exist_ok=True)
            for group in _groups(pairs):
                if canceled():
                    raise FetchCanceled
                self._fetch_group(location, group)
                for entry, target in group:
                    _check(location, entry, target, checksums.get(entry.path))
            _seal(draft, 0o700 if self._is_separate else 0o755)
        except BaseException as error:
            _remove(draft)
            if isinstance(disk.meaning(error), DiskFull):
                raise _no_space(location, entries, draft.parent) from error
            raise

    def _fetch_group(self, location: DataLocation, group: Sequence[tuple[Entry, Path]]) -> None:
        pairs = [(_below(location.path, entry.path), target) for entry, target in group]
        if self._is_separate and location.store in BUILT_IN:
            pairs = [pair for pair in pairs if not _linked(location, *pair)]
        location.files.fetch(pairs)

    def _remember(self, workspace: str, path: str, key: str, file: str, now: datetime) -> None:
        note = {"key": key, "file": file, "at": now.timestamp(), "path": path}
        with files.write_atomically(self._note(workspace, path)) as writing:
            writing.write(json.dumps(note).encode())

    def _note(self, workspace: str, path: str) -> Path:
        name = hashlib.sha256(f"{workspace}\0{path}".encode()).hexdigest()[:32]
        return self._folder / "notes" / f"{name}.json"

    @contextmanager
    def _locked(self, key: str, canceled: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Hold the lock of a key among all programs that share the cache."""
        folder = self._folder / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with locks.hold(folder / key, canceled) as is_held:
            if not is_held:
                raise FetchCanceled
            yield


def _key(location: DataLocation, entries: Sequence[Entry]) -> str:
    marks = [(entry.path, entry.size_bytes, entry.mark) for entry in entries]
    text = json.dumps([location.source or location.uri, location.path, sorted(marks)])
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


def _summed(entries: Sequence[Entry], targets: Sequence[str], folder: Path) -> list[Entry]:
    """The entries with the sha256 of their copies as marks, for sources that have no marks."""
    return [
        replace(entry, size_bytes=(folder / target).stat().st_size, mark=_sum(folder / target))
        for entry, target in zip(entries, targets, strict=True)
    ]


def _sum(file: Path) -> str:
    with open(file, "rb") as reader:
        digest = hashlib.sha256()
        while chunk := reader.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _groups(pairs: Sequence[tuple[Entry, Path]]) -> Iterator[list[tuple[Entry, Path]]]:
    group: list[tuple[Entry, Path]] = []
    size = 0
    for pair in pairs:
        if group and (len(group) >= _GROUP or size + pair[0].size_bytes > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(pair)
        size += pair[0].size_bytes
    if group:
        yield group


def _below(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path}".strip("/") if path else folder


def _check(location: DataLocation, entry: Entry, target: Path, checksum: Checksum | None) -> None:
    """
    Raises:
        Unreachable: the copy is not what the place has.
    """
    size = target.stat().st_size
    if entry.size_bytes and size != entry.size_bytes:
        raise Unreachable(
            f"`{location.uri}` sent {size} of {entry.size_bytes} bytes of `{entry.path}`",
            "try again",
        )
    if checksum is None or (entry.mark and entry.mark != checksum.mark):
        return  # its sum is unknown, or somebody has changed the file since
    copied = _sum(target)
    if copied != checksum.sha256:
        raise Unreachable(
            f"`{entry.path or target.name}` of `{location.uri}` arrived damaged: its sha256 is "
            f"`{copied[:12]}…`, not `{checksum.sha256[:12]}…`",
            "the datastore may have lost data; write it again",
            code="checksum_mismatch",
        )


def _check_free_space(folder: Path, location: DataLocation, entries: Sequence[Entry]) -> None:
    needed = sum(entry.size_bytes for entry in entries)
    if needed > shutil.disk_usage(folder).free:
        raise _no_space(location, entries, folder)


def _no_space(location: DataLocation, entries: Sequence[Entry], folder: Path) -> TorchyardError:
    needed = sum(entry.size_bytes for entry in entries)
    free = shutil.disk_usage(folder).free
    return TorchyardError(
        f"no space left on `cache`: `{location.uri}` has {size_text(needed)}, and "
        f"{size_text(free)} are free on this machine",
        "free space with `yard gc`, or use `mode: direct`",
        code=DiskFull.code,
    )


def _check_type(type: str, location: DataLocation, is_file: bool) -> None:
    if is_file and type in _FOLDER_TYPES:
        raise InvalidInput(
            f"`{location.uri}` is a file, and the input is of type `{type}`",
            "write `type: uri_file`",
        )
    if not is_file and type == "uri_file":
        raise InvalidInput(
            f"`{location.uri}` is a folder, and the input is of type `uri_file`",
            "write `type: uri_folder`",
        )


def _linked(location: DataLocation, path: str, target: Path) -> bool:
    """Whether a hard link costs no copy: files of a built-in datastore never change in place."""
    source = location.files.local(path)
    try:
        assert source is not None
        os.link(source, target, follow_symlinks=False)
    except OSError:
        return False
    return True


def _seal(folder: Path, mode: int) -> None:
    for current, _, names in os.walk(folder, topdown=False):
        for name in names:
            os.chmod(os.path.join(current, name), 0o444)
        os.chmod(current, 0o555)
    os.chmod(folder, mode)  # a folder without write bits could not be renamed by its owner


def _remove(folder: Path) -> None:
    if not folder.exists():
        return
    for current, _, _ in os.walk(folder):
        os.chmod(current, 0o700)
    shutil.rmtree(folder)
