"""Files by their content: sha256 is the name.

Owns: the folder `blobs/`, snapshots (manifests of files, themselves blobs).
Leaves: who may read what to the rooms.
Always: a blob's bytes have its name as their sha256, or it is not there; a snapshot is accepted
only when all its blobs are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.errors import InvalidInput, NotFound

_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True)
class SnapshotFile:
    """One file of a snapshot; `mode` in octal digits."""

    path: str
    sha256: str
    size: int
    mode: str = "0644"


@dataclass(frozen=True)
class Snapshot:
    """A folder at one moment; its id is the sha256 of its manifest."""

    id: str
    files: tuple[SnapshotFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size for file in self.files)


class Blobs:
    """The blob folder of one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, sha256: str) -> Path:
        if not _SHA256.match(sha256):
            raise InvalidInput(f"`{sha256[:80]}` is no sha256", "write 64 hexadecimal digits")
        return self.folder / sha256[:2] / sha256

    def has(self, sha256: str) -> bool:
        return self.path(sha256).exists()

    def missing(self, hashes: Iterable[str]) -> list[str]:
        """Those of `hashes` that are not here, in their order, each once."""
        return [sha256 for sha256 in dict.fromkeys(hashes) if not self.has(sha256)]

    def put(self, sha256: str, chunks: Iterable[bytes]) -> None:
        """Store one blob.

        Raises:
            InvalidInput: the bytes are not those of `sha256`; nothing is kept.
        """
        target = self.path(sha256)
        with files.whole(target, mode=0o444) as writing:
            for chunk in chunks:
                writing.write(chunk)
            if writing.stored.sha256 != sha256:
                raise InvalidInput(
                    f"blob `{sha256[:12]}…` arrived as `{writing.stored.sha256[:12]}…`",
                    "the file changed while it was sent; send it again",
                )

    def put_bytes(self, content: bytes) -> str:
        """Store `content` and return its sha256."""
        import hashlib

        sha256 = hashlib.sha256(content).hexdigest()
        if not self.has(sha256):
            self.put(sha256, [content])
        return sha256

    def put_snapshot(self, manifest: Mapping[str, Any]) -> Snapshot:
        """Accept a manifest whose blobs are all here.

        Raises:
            InvalidInput: the manifest is not one, or blobs are missing (code `blobs_missing`).
        """
        snapshot_files = _files_of(manifest)
        absent = self.missing(file.sha256 for file in snapshot_files)
        if absent:
            raise InvalidInput(
                f"{len(absent)} blobs of the snapshot are missing, `{absent[0]}` first",
                "upload them, then send the manifest again",
                code="blobs_missing",
            )
        content = manifest_bytes(snapshot_files)
        return Snapshot(self.put_bytes(content), snapshot_files)

    def snapshot(self, snapshot_id: str) -> Snapshot:
        """Read a snapshot.

        Raises:
            NotFound: it was never uploaded.
        """
        path = self.path(snapshot_id)
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            raise NotFound(
                f"snapshot `{snapshot_id[:12]}…` does not exist", "upload the folder again"
            ) from None
        return Snapshot(snapshot_id, _files_of(manifest))


def manifest_bytes(snapshot_files: Iterable[SnapshotFile]) -> bytes:
    """The one form of a manifest: sorted by path, compact."""
    ordered = sorted(snapshot_files, key=lambda file: file.path)
    body = {"files": [asdict(file) for file in ordered]}
    return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _files_of(manifest: Mapping[str, Any]) -> tuple[SnapshotFile, ...]:
    try:
        return tuple(
            SnapshotFile(
                files.safe_relative(str(entry["path"])),
                str(entry["sha256"]),
                int(entry["size"]),
                _mode(entry.get("mode", "0644")),
            )
            for entry in manifest["files"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"the snapshot's manifest is not valid: {error!r}",
            "each file needs `path`, `sha256` and `size`",
        ) from error


def _mode(text: Any) -> str:
    return "0755" if int(str(text), 8) & 0o100 else "0644"
