"""Folders and files on their way to the server and back.

Owns: the requests of an upload and of a restore.
Leaves: walking, hashing and the order of things to snapshots/.
Always: only what the server lacks is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.http import Transport
from torchyard.base.settings import Settings

if TYPE_CHECKING:
    from torchyard.client.snapshots.job_files import JobFiles
    from torchyard.client.snapshots.local_paths import LocalPath
    from torchyard.client.snapshots.snapshot import Content, Hashing, Snapshot
    from torchyard.client.snapshots.upload import Progress
    from torchyard.client.snapshots.walk import Found, Limits


class Snapshots:
    """Folders and files at one moment, kept by their content."""

    def __init__(self, transport: Transport, here: str, settings: Settings) -> None:
        self._transport = transport
        self._here = here
        self._index_folder = settings.home / "cache" / "snapshots"
        self._settings = settings

    @property
    def limits(self) -> Limits:
        """For code folders."""
        from torchyard.client.snapshots.walk import Limits

        return Limits(self._settings.snapshot_max_files, self._settings.snapshot_max_mb * 1_000_000)

    def take(self, path: Path, progress: Progress | None = None) -> Snapshot:
        """Snapshot the folder or file at `path`, all of it.

        A server of this machine is handed its large files, stores and hashes them.
        """
        from torchyard.client.snapshots import snapshot
        from torchyard.client.snapshots.walk import Limits

        entries = snapshot.find(path, Limits())
        hashing = self._hashing(entries, progress)
        return snapshot.take(path, entries, self._index_folder, hashing=hashing)

    def _hashing(self, entries: Iterable[Found], progress: Progress | None) -> Hashing:
        from torchyard.client.snapshots.snapshot import LARGE_BYTES, CommandStopped, Hashing

        if not self._transport.files_socket:
            return Hashing()
        from torchyard.client import handing

        total_bytes = sum(entry[1] for entry in entries if entry[1] > LARGE_BYTES)
        sent_bytes = 0
        lock = Lock()

        def add(piece_bytes: int) -> None:
            nonlocal sent_bytes
            if hashing.is_stopped.is_set():
                raise CommandStopped
            with lock:
                sent_bytes += piece_bytes
                if progress is not None:
                    progress(sent_bytes, total_bytes)

        def hand(path: str, descriptor: int) -> str | None:
            try:
                return handing.store(self._transport, self._here, descriptor, add)
            except Conflict as error:
                raise InvalidInput(
                    f"`{path}` changed while it was read",
                    "submit again when nothing writes to it",
                ) from error

        hashing = Hashing(hand)
        return hashing

    def send(self, snapshot: Snapshot, progress: Progress | None = None) -> str:
        """Upload what the server lacks of `snapshot`; returns its id."""
        from torchyard.client.snapshots.upload import upload

        try:
            return upload(snapshot, self, progress)
        except BaseException:
            # A body that was interrupted half-way leaves the connection unusable.
            self._transport.close()
            raise

    def send_job_files(self, files: JobFiles, progress: Progress | None = None) -> dict[str, Any]:
        """Upload what a job document names on this machine; returns the document to post.

        Everything is read before anything is sent: a file that can't be read leaves nothing behind,
        but large files that a server of this machine has read by then, which nothing names.
        """
        # Nodes of a pipeline share folders; `find` walks each of them once.
        shared = {(path.place, id(path.entries)): path for path in files.paths}
        entries = [entry for path in shared.values() for entry in path.entries]
        hashing = self._hashing(entries, progress)
        taken = {key: path.take(self._index_folder, hashing) for key, path in shared.items()}
        sent: dict[bytes, str] = {}

        def sent_id(path: LocalPath) -> str:
            snapshot = taken[path.place, id(path.entries)]
            if snapshot.manifest not in sent:
                sent[snapshot.manifest] = self.send(snapshot, progress)
            return sent[snapshot.manifest]

        return files.with_snapshots(sent_id)

    def get(self, snapshot_id: str) -> dict[str, Any]:
        """The manifest: `files`, each with path, sha256, size, mode."""
        manifest: dict[str, Any] = self._transport.get(f"{self._here}/snapshots/{snapshot_id}")
        return manifest

    def restore(self, snapshot_id: str, folder: Path, *, overwrite: bool = False) -> list[Path]:
        """Put the snapshot's files into `folder`; returns them.

        Raises:
            Conflict: a file is there with another content; nothing was written.
        """
        from torchyard.client.downloads import below
        from torchyard.client.snapshots.restore import restore

        manifest = self.get(snapshot_id)
        for file in manifest["files"]:
            # It could hold hooks, which run when the user next says `git`.
            if {".git", "git~1"} & set(file["path"].lower().split("/")):
                raise InvalidInput(
                    f"the snapshot holds `{file['path']}`, which is not code", "nothing was written"
                )
        targets = [below(folder, file["path"]) for file in manifest["files"]]
        return restore(manifest, targets, self._blob, overwrite=overwrite)

    def missing(self, hashes: list[str]) -> list[str]:
        answer = self._transport.post(f"{self._here}/blobs/missing", {"sha256": hashes})
        return list(answer["missing"])

    def put_large(self, contents: Sequence[Content], add: Callable[[int], None]) -> None:
        from torchyard.client.snapshots import large_files

        large_files.send_all(self._transport, f"{self._here}/blobs", contents, add)

    def put_bundle(self, bundle: bytes) -> None:
        self._transport.send("POST", f"{self._here}/blobs", bundle, len(bundle))

    def put_snapshot(self, manifest: bytes) -> str:
        path = f"{self._here}/snapshots"
        stored = self._transport.send("PUT", path, manifest, content_type="application/json")
        return str(stored["id"])

    def _blob(self, sha256: str) -> Iterator[bytes]:
        with self._transport.stream(f"{self._here}/blobs/{sha256}") as answer:
            while chunk := answer.read(1 << 20):
                yield chunk
