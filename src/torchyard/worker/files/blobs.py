"""Place content-addressed files on this node.

Owns: reading manifests, placing a blob as a file: linked, copied or fetched over HTTP.
Leaves: where files go to node_folders.py.
Always: a file fetched over HTTP is verified by its hash; an unreachable server only delays it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from torchyard.shared import descriptors
from torchyard.shared.connection import Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.shared.retry_delays import retry

if TYPE_CHECKING:
    from torchyard.worker.files.node_cache import NodeCache

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
    """A blob to be placed as the file `target`; with `link` as a hard link if possible."""

    sha256: str
    target: Path
    mode: int
    link: bool = False


class Blobs:
    """Read blobs from the server's folder if this node can access it, otherwise over HTTP.

    Args:
        cache: where those that came over HTTP are kept, on a node that has one.
    """

    def __init__(
        self,
        link: Connection,
        folder: str,
        give_up: Callable[[], bool],
        cache: NodeCache | None = None,
    ) -> None:
        self._link = link
        self._folder = Path(folder) if folder else None
        self._give_up = give_up
        self._cache = cache

    def manifest(self, snapshot: str) -> list[SnapshotFile]:
        """The files of a snapshot.

        Raises:
            Failure: it is missing, or a path would leave the snapshot's folder.
        """
        if self._folder is not None:
            try:
                text = self._path(snapshot).read_bytes()
            except FileNotFoundError as error:
                raise _missing(snapshot) from error
        elif self._cache is not None:
            text = self._cached(snapshot).read_bytes()
        else:
            parts: list[bytes] = []
            self._fetch(snapshot, parts.append, parts.clear)
            text = b"".join(parts)
        return [_file(entry) for entry in json.loads(text)["files"]]

    def create_files(self, placements: Sequence[Placement]) -> None:
        """Create every file, and the folders that it needs."""
        for folder in {placement.target.parent for placement in placements}:
            folder.mkdir(parents=True, exist_ok=True)
        if self._folder is None:
            self._fetch_all(placements)
            return
        for placement in placements:
            if self._give_up():
                return
            try:
                _place_from_folder(self._path(placement.sha256), placement)
            except FileNotFoundError as error:
                raise _missing(placement.sha256) from error

    def _path(self, sha256: str) -> Path:
        assert self._folder is not None
        return self._folder / sha256[:2] / sha256

    def _fetch_all(self, placements: Sequence[Placement]) -> None:
        pending = list(placements)
        errors: list[BaseException] = []

        def fetch_some() -> None:
            while pending and not errors and not self._give_up():
                try:
                    placement = pending.pop()
                except IndexError:
                    return
                try:
                    self._fetch_to(placement)
                except BaseException as error:
                    errors.append(error)

        count = min(_FETCHERS, len(pending))
        threads = [threading.Thread(target=fetch_some, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def _fetch_to(self, placement: Placement) -> None:
        if self._cache is None:
            self._write(placement.sha256, placement.target, placement.mode)
        else:
            # Never a link: what a script changes must not be in the cache.
            copy_file(self._cached(placement.sha256), placement.target, placement.mode)

    def _cached(self, sha256: str) -> Path:
        assert self._cache is not None
        return self._cache.blob(sha256, lambda file: self._write(sha256, file), self._give_up)

    def _write(self, sha256: str, target: Path, mode: int = 0o600) -> None:
        with open(target, "wb") as file:

            def restart() -> None:
                file.seek(0)
                file.truncate()

            self._fetch(sha256, file.write, restart)
            os.fchmod(file.fileno(), mode)

    def _fetch(
        self, sha256: str, write: Callable[[bytes], Any], restart: Callable[[], Any]
    ) -> None:
        import hashlib  # Takes 10 ms to import, and is only needed over HTTP.

        def once() -> None:
            restart()
            digest = hashlib.sha256()

            def keep(block: bytes) -> None:
                digest.update(block)
                write(block)

            self._link.download(f"/blobs/{sha256}", keep)
            if digest.hexdigest() != sha256:
                raise OSError(f"blob {sha256} was damaged in transit")

        try:
            retry(once, self._give_up)
        except Refused as error:
            raise _missing(sha256) from error


def relative_path(path: str) -> PurePosixPath:
    """Check that `path` is relative and stays below its folder.

    Raises:
        Failure: the path is absolute, leaves its folder or has a name that no disk can hold.
    """
    relative = PurePosixPath(path)
    sizes = [len(part.encode("utf-8", "replace")) for part in relative.parts]
    if (
        not relative.parts
        or relative.is_absolute()
        or ".." in relative.parts
        or "\0" in path
        or any("\ud800" <= character <= "\udfff" for character in path)
        # No disk can hold such names, so every attempt to write one would fail.
        or max(sizes) > _NAME_MOST_BYTES
        or sum(sizes) + len(sizes) > _PATH_MOST_BYTES
    ):
        raise Failure(
            "invalid_snapshot",
            f"path `{path}` in the snapshot is not a valid path below its folder",
            "upload the code or the input again",
        )
    return relative


def _file(entry: dict[str, Any]) -> SnapshotFile:
    path = str(relative_path(str(entry["path"])))
    mode = int(str(entry.get("mode", "0644")), 8) & 0o777
    return SnapshotFile(path, str(entry["sha256"]), int(entry.get("size", 0)), mode)


def _place_from_folder(source: Path, placement: Placement) -> None:
    if placement.link:
        try:
            os.link(source, placement.target)
            return
        except FileNotFoundError:
            raise
        except OSError:
            pass  # another file system, or one without hard links: copy instead
    copy_file(source, placement.target, placement.mode)


def copy_file(source: Path, target: Path, mode: int) -> None:
    """Copy a file in the cheapest way that the file system supports."""
    with open(source, "rb") as reader, open(target, "wb") as writer:
        descriptors.copy_all(reader.fileno(), writer.fileno())
        os.fchmod(writer.fileno(), mode)


def _missing(sha256: str) -> Failure:
    return Failure(
        "blob_missing",
        f"blob `{sha256}` is missing on the server",
        "submit the job again to upload missing files",
    )
