"""Content-addressed files, brought to this node.

Owns: reading manifests, placing a blob as a file: linked, copied or fetched over HTTP.
Leaves: where files go to layout.py.
Always: a file that came over HTTP has the hash it was asked for; what a server that is away
delays is waited for.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry

_BLOCK = 1 << 20
_FETCHERS = 4
_NAME_MOST_BYTES = 255
_PATH_MOST_BYTES = 3000


@dataclass(frozen=True)
class SnapshotFile:
    """One line of a manifest."""

    path: str
    sha256: str
    size: int
    mode: int


@dataclass(frozen=True)
class Placement:
    """A blob that shall be the file `target`; `link` asks for a hard link where one can be had."""

    sha256: str
    target: Path
    mode: int
    link: bool = False


class Blobs:
    """Blobs from the server's folder when this node can see it, else over HTTP."""

    def __init__(self, link: Connection, folder: str, give_up: Callable[[], bool]) -> None:
        self._link = link
        self._folder = Path(folder) if folder else None
        self._give_up = give_up

    def manifest(self, snapshot: str) -> list[SnapshotFile]:
        """The files of a snapshot.

        Raises:
            Failure: it is missing, or a path would leave the folder it is placed in.
        """
        if self._folder is not None:
            try:
                text = self._path(snapshot).read_bytes()
            except FileNotFoundError as error:
                raise _missing(snapshot) from error
        else:
            parts: list[bytes] = []
            self._fetch(snapshot, parts.append, parts.clear)
            text = b"".join(parts)
        return [_file(entry) for entry in json.loads(text)["files"]]

    def place(self, placements: Sequence[Placement]) -> None:
        """Make every file; their folders are made too."""
        for folder in {placement.target.parent for placement in placements}:
            folder.mkdir(parents=True, exist_ok=True)
        if self._folder is None:
            self._fetch_all(placements)
            return
        for placement in placements:
            if self._give_up():
                return
            try:
                _from_folder(self._path(placement.sha256), placement)
            except FileNotFoundError as error:
                raise _missing(placement.sha256) from error

    def _path(self, sha256: str) -> Path:
        assert self._folder is not None
        return self._folder / sha256[:2] / sha256

    def _fetch_all(self, placements: Sequence[Placement]) -> None:
        waiting = list(placements)
        errors: list[BaseException] = []

        def fetch_some() -> None:
            while waiting and not errors and not self._give_up():
                try:
                    placement = waiting.pop()
                except IndexError:
                    return
                try:
                    self._fetch_to(placement)
                except BaseException as error:
                    errors.append(error)

        count = min(_FETCHERS, len(waiting))
        threads = [threading.Thread(target=fetch_some, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _fetch_to(self, placement: Placement) -> None:
        with open(placement.target, "wb") as file:

            def again() -> None:
                file.seek(0)
                file.truncate()

            self._fetch(placement.sha256, file.write, again)
            os.fchmod(file.fileno(), placement.mode)

    def _fetch(self, sha256: str, write: Callable[[bytes], Any], again: Callable[[], Any]) -> None:
        import hashlib  # Not needed, and 10 ms of the ranks' start, where blobs are files.

        def once() -> None:
            again()
            digest = hashlib.sha256()

            def keep(block: bytes) -> None:
                digest.update(block)
                write(block)

            self._link.download(f"/blobs/{sha256}", keep)
            if digest.hexdigest() != sha256:
                raise OSError(f"blob {sha256} arrived damaged")

        try:
            retry(once, self._give_up)
        except Refused as error:
            raise _missing(sha256) from error


def inside(path: str) -> PurePosixPath:
    """`path` as a relative path that stays below its folder.

    Raises:
        Failure: it does not.
    """
    pure = PurePosixPath(path)
    sizes = [len(part.encode("utf-8", "replace")) for part in pure.parts]
    if (
        not pure.parts
        or pure.is_absolute()
        or ".." in pure.parts
        or "\0" in path
        or any("\ud800" <= character <= "\udfff" for character in path)
        # No disk has such names: writing one would fail again and again.
        or max(sizes) > _NAME_MOST_BYTES
        or sum(sizes) + len(sizes) > _PATH_MOST_BYTES
    ):
        raise Failure(
            "invalid_snapshot",
            f"snapshot path `{path}` would leave its folder",
            "upload the code or the input again",
        )
    return pure


def _file(entry: dict[str, Any]) -> SnapshotFile:
    path = str(inside(str(entry["path"])))
    mode = int(str(entry.get("mode", "0644")), 8) & 0o777
    return SnapshotFile(path, str(entry["sha256"]), int(entry.get("size", 0)), mode)


def _from_folder(source: Path, placement: Placement) -> None:
    if placement.link:
        try:
            os.link(source, placement.target)
            return
        except FileNotFoundError:
            raise
        except OSError:
            pass  # Another file system, or one without hard links: a copy does.
    copy_file(source, placement.target, placement.mode)


def copy_file(source: Path, target: Path, mode: int) -> None:
    """Copy bytes by the cheapest way the file system has."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        _copy(reader.fileno(), writer.fileno())
        os.fchmod(writer.fileno(), mode)


def _copy(reader: int, writer: int) -> None:
    try:
        while os.copy_file_range(reader, writer, 1 << 30):
            pass
        # Some file systems report 0 at once: what is left, if anything, goes through memory.
    except (AttributeError, OSError):
        pass
    while True:
        block = os.read(reader, _BLOCK)
        if not block:
            return
        view = memoryview(block)
        while view:
            view = view[os.write(writer, view) :]


def _missing(sha256: str) -> Failure:
    return Failure(
        "blob_missing",
        f"the server has no blob `{sha256}`",
        "submit the job again: that uploads what is missing",
    )
