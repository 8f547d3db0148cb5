"""Ship log files to the server while they grow.

Owns: which files are followed, how far each has been delivered, when to poll again.
Leaves: writing the files to the ranks, what a token is to shared/masking.py.
Always: memory is limited to one chunk; the server's offset is authoritative, so that a lost
response loses and duplicates nothing; a process that writes a log never waits for the server.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from pathlib import Path

from torchyard.shared import masking
from torchyard.shared.connection import AttemptOver, Connection, Refused
from torchyard.shared.failures import Failure
from torchyard.worker.files.uploads import refusal_failure, utf8_path

_CHUNK_BYTES = 1 << 20
# Someone may be waiting for a log's first lines; later ones can be sent in larger chunks.
_FAST_AFTER_FIRST_S, _FAST_LIMIT_S = 5.0, 60.0
_FAST_S, _FLOWING_S, _IDLE_S = 0.05, 0.1, 0.25
_FOLDERS_EVERY_S = 0.5
_GROWTH_EVERY_S = 1.0
_RETRY_S, _MAX_RETRY_S = 0.2, 3.0


class _File:
    """A followed file. `base` is the size of the server's log at the start of this file."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.position = 0
        self.base = 0
        self.inode = 0
        self.limit: int | None = None
        self.refusal: Failure | None = None
        # The job's log quota is used up: only the file's growth is reported, now and then.
        self.full = False
        self.reported_at_s = 0.0


class LogShipper:
    """Follows files in a daemon thread.

    Args:
        link: the connection to the server.
        folder: the base of relative paths.
        masker: replaces secrets; by default only this server's tokens.
    """

    def __init__(
        self, link: Connection, folder: Path, masker: masking.Masker = masking.TOKENS
    ) -> None:
        self._link = link
        self._folder = folder
        self._masker = masker
        self._overlap = masker.longest - 1
        self._files: dict[str, _File] = {}
        self._folders: list[tuple[Path, str]] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._finishing = threading.Event()
        self._stopped = threading.Event()
        self._attempt_over: AttemptOver | None = None
        self._delivered = False
        self._next_scan = 0.0
        self._scanned_last = False
        self._thread = threading.Thread(target=self._run, name="log-shipper", daemon=True)

    def watch(self, file: Path, name: str) -> None:
        """Ship this file, which need not exist yet, as the log `name`."""
        with self._lock:
            self._files.setdefault(name, _File(self._folder / file, name))
        self._wake.set()

    def watch_folder(self, folder: Path, prefix: str) -> None:
        """Ship every file below `folder`, also files created later, as `prefix/<relative path>`."""
        with self._lock:
            self._folders.append((self._folder / folder, prefix.rstrip("/")))
            self._next_scan = 0.0
        self._wake.set()

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        """Deliver what is on disk now, then stop; return True if everything was delivered.

        Raises:
            AttemptOver: the attempt is over on the server.
            Failure: the server refused a log; all others were delivered.
        """
        self._finishing.set()
        self._wake.set()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(timeout_s)
        self._stopped.set()
        self._wake.set()
        if self._attempt_over is not None:
            raise self._attempt_over
        refusals = [file.refusal for file in self._followed() if file.refusal is not None]
        if self._delivered and refusals:
            raise refusals[0]
        return self._delivered

    # The thread

    def _run(self) -> None:
        fast_until, has_output, retry_s = time.monotonic() + _FAST_LIMIT_S, False, _RETRY_S
        try:
            while not self._stopped.is_set():
                finishing = self._finishing.is_set()
                try:
                    moved, more = self._ship_all(finishing)
                except OSError:
                    # The server is unreachable: the files wait on disk.
                    self._pause(retry_s, finishing)
                    retry_s = min(retry_s * 2, _MAX_RETRY_S)
                    continue
                retry_s = _RETRY_S
                if finishing and not more:
                    self._delivered = True
                    return
                if moved and not has_output:
                    fast_until, has_output = time.monotonic() + _FAST_AFTER_FIRST_S, True
                if not more:
                    is_early = time.monotonic() < fast_until
                    self._pause(
                        _FAST_S if is_early else _FLOWING_S if moved else _IDLE_S, finishing
                    )
        except AttemptOver as error:
            self._attempt_over = error

    def _pause(self, seconds: float, finishing: bool) -> None:
        if finishing:
            self._stopped.wait(seconds)
        else:
            self._wake.wait(seconds)
            self._wake.clear()

    def _ship_all(self, finishing: bool) -> tuple[bool, bool]:
        """Ship a chunk of each file; return whether something moved, and whether more is ready."""
        self._scan(finishing)
        moved = more = False
        for file in self._followed():
            if self._stopped.is_set():
                break
            if file.refusal is None:
                file_moved, file_more = self._ship(file, finishing)
                moved, more = moved or file_moved, more or file_more
        return moved, more

    def _followed(self) -> list[_File]:
        with self._lock:
            return list(self._files.values())

    def _scan(self, finishing: bool) -> None:
        """Find new files; once more when finishing, regardless of the interval."""
        now = time.monotonic()
        with self._lock:
            folders = list(self._folders)
            if now < self._next_scan and not (finishing and not self._scanned_last):
                return
            self._scanned_last = finishing
            self._next_scan = float("inf") if finishing else now + _FOLDERS_EVERY_S
        for folder, prefix in folders:
            for parent, _, names in os.walk(folder):
                for name in names:
                    path = Path(parent, name)
                    log = f"{prefix}/{utf8_path(path.relative_to(folder))}"
                    if log not in self._files and not path.is_symlink():
                        self.watch(path, log)

    def _ship(self, file: _File, finishing: bool) -> tuple[bool, bool]:
        """Ship the file's next chunk; return whether it moved, and whether more is ready."""
        try:
            status = os.stat(file.path)
        except OSError:
            return False, False
        if not stat.S_ISREG(status.st_mode):
            return False, False
        if file.full:
            if not finishing:
                self._report_growth(file, status.st_size)
            return False, False
        if status.st_size < file.position or status.st_ino != file.inode:
            _restart(file, status.st_ino)
        if finishing and file.limit is None:
            # Output of processes that outlive the job is not waited for.
            file.limit = status.st_size
        end = status.st_size if file.limit is None else min(file.limit, status.st_size)
        if end <= file.position:
            return False, False
        content = self._read(file, end, finishing)
        if not content:
            return False, False
        old_size = file.base + file.position
        self._send(file, content)
        remaining = end - file.position
        shipped = file.refusal is not None or file.full
        more = remaining > (0 if finishing else self._overlap) and not shipped
        return file.base + file.position != old_size, more

    def _read(self, file: _File, end: int, finishing: bool) -> bytes:
        """The masked bytes from the file's position, at most one chunk.

        What may be the start of a secret is held back until its rest is there. The chunk is read
        with an overlap on both sides, so that secrets across its borders are masked too.
        """
        first = max(0, file.position - self._overlap)
        try:
            window = _read(file.path, first, min(end - first, _CHUNK_BYTES + 2 * self._overlap))
        except OSError:
            return b""
        at_end = first + len(window) >= end
        keep = 0 if finishing and at_end else self._masker.unfinished(window)
        if not at_end:
            keep = max(keep, len(window) - (file.position - first) - _CHUNK_BYTES)
        return self._masker.mask(window)[file.position - first : len(window) - keep]

    def _report_growth(self, file: _File, size: int) -> None:
        """Report that the file grows, so that a job that prints is not considered hung."""
        now = time.monotonic()
        if size != file.position and now >= file.reported_at_s + _GROWTH_EVERY_S:
            file.position, file.reported_at_s = size, now
            self._send(file, b"")

    def _send(self, file: _File, content: bytes) -> None:
        offset = file.base + file.position
        query = {"path": file.name, "offset": offset}
        try:
            response = self._link.send("PUT", "/logs", content, query)
            size = response["size"]
            if response.get("full"):
                file.full = True
                file.position += len(content)
                return
        except Refused as refusal:
            if refusal.status != 409 or not isinstance(refusal.body.get("size"), int):
                file.refusal = refusal_failure(f"log `{file.name}`", refusal)
                print(file.refusal.message, file=sys.stderr, flush=True)
                return
            size = refusal.body["size"]
        if size < file.base:
            # The server has less than before this file: what came before is gone.
            file.base = size
        else:
            file.position = size - file.base


def _restart(file: _File, inode: int) -> None:
    """Append from the start of a file that its writer truncated or replaced."""
    if file.inode:
        file.base += file.position
        file.position = 0
        file.limit = None
    file.inode = inode


def _read(path: Path, first: int, size: int) -> bytes:
    with open(path, "rb", buffering=0) as file:
        file.seek(first)
        chunks = []
        while size > 0:
            chunk = file.read(size)
            if not chunk:
                break
            chunks.append(chunk)
            size -= len(chunk)
    return b"".join(chunks)
