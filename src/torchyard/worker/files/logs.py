"""Ship log files to the server while they grow.

Owns: which files are followed, how far each has been delivered, when to look again.
Leaves: writing the files to the ranks, what a token is to shared/masking.py.
Always: memory is one chunk; the server's word on how much it has is what counts, so that nothing
is lost or doubled when an answer was; nobody who writes a log ever waits for the server.
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
from torchyard.worker.files.uploads import in_utf8, refused

_CHUNK_BYTES = 1 << 20
# A log's first lines are waited for by a person; later ones may come in larger pieces.
_FIRST_S, _AWAITED_S = 5.0, 60.0
_FAST_S, _FLOWING_S, _QUIET_S = 0.05, 0.1, 0.25
_FOLDERS_EVERY_S = 0.5
_GROWTH_EVERY_S = 1.0
_RETRY_S, _LONGEST_RETRY_S = 0.2, 3.0


class _File:
    """One followed file. `base` is the log's size at the server when this file began in it."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.position = 0
        self.base = 0
        self.inode = 0
        self.limit: int | None = None
        self.refusal: Failure | None = None
        # The job's quota is used up: only that the file grows is told, now and then.
        self.full = False
        self.told_at_s = 0.0


class LogShipper:
    """Follows files in a daemon thread.

    Args:
        link: the line to the server.
        folder: what relative paths are relative to.
        masker: replaces what must not leave the node; this server's tokens unless told more.
    """

    def __init__(
        self, link: Connection, folder: Path, masker: masking.Masker = masking.TOKENS
    ) -> None:
        self._link = link
        self._folder = folder
        self._masker = masker
        self._look_back = masker.longest - 1
        self._files: dict[str, _File] = {}
        self._folders: list[tuple[Path, str]] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._finishing = threading.Event()
        self._stopped = threading.Event()
        self._over: AttemptOver | None = None
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
        """Ship every file below `folder`, also those to come, as `prefix/<relative path>`."""
        with self._lock:
            self._folders.append((self._folder / folder, prefix.rstrip("/")))
            self._next_scan = 0.0
        self._wake.set()

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> bool:
        """Deliver what is on disk now, then stop; True when all of it was delivered.

        Raises:
            AttemptOver: the server disowned the attempt.
            Failure: the server refuses a log; all others were delivered.
        """
        self._finishing.set()
        self._wake.set()
        if self._thread.ident is None:
            self._thread.start()
        self._thread.join(timeout_s)
        self._stopped.set()
        self._wake.set()
        if self._over is not None:
            raise self._over
        refusals = [file.refusal for file in self._followed() if file.refusal is not None]
        if self._delivered and refusals:
            raise refusals[0]
        return self._delivered

    # The thread

    def _run(self) -> None:
        fast_until, seen, retry_s = time.monotonic() + _AWAITED_S, False, _RETRY_S
        try:
            while not self._stopped.is_set():
                finishing = self._finishing.is_set()
                try:
                    moved, more = self._pass(finishing)
                except OSError:
                    # The server is away: the files wait on disk.
                    self._pause(retry_s, finishing)
                    retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
                    continue
                retry_s = _RETRY_S
                if finishing and not more:
                    self._delivered = True
                    return
                if moved and not seen:
                    fast_until, seen = time.monotonic() + _FIRST_S, True
                if not more:
                    early = time.monotonic() < fast_until
                    self._pause(_FAST_S if early else _FLOWING_S if moved else _QUIET_S, finishing)
        except AttemptOver as over:
            self._over = over

    def _pause(self, seconds: float, finishing: bool) -> None:
        if finishing:
            self._stopped.wait(seconds)
        else:
            self._wake.wait(seconds)
            self._wake.clear()

    def _pass(self, finishing: bool) -> tuple[bool, bool]:
        """Ship a chunk of each file; whether something moved, and whether more is ready."""
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
        """Find new files; when finishing once more, whatever the time."""
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
                    log = f"{prefix}/{in_utf8(path.relative_to(folder))}"
                    if log not in self._files and not path.is_symlink():
                        self.watch(path, log)

    def _ship(self, file: _File, finishing: bool) -> tuple[bool, bool]:
        """Ship the file's next chunk; whether it moved, and whether more is ready."""
        try:
            status = os.stat(file.path)
        except OSError:
            return False, False
        if not stat.S_ISREG(status.st_mode):
            return False, False
        if file.full:
            if not finishing:
                self._tell_growth(file, status.st_size)
            return False, False
        if status.st_size < file.position or status.st_ino != file.inode:
            _start_anew(file, status.st_ino)
        if finishing and file.limit is None:
            # What a process that outlived the job still writes is not waited for.
            file.limit = status.st_size
        end = status.st_size if file.limit is None else min(file.limit, status.st_size)
        if end <= file.position:
            return False, False
        content = self._read(file, end, finishing)
        if not content:
            return False, False
        before = file.base + file.position
        self._send(file, content)
        left = end - file.position
        shipped = file.refusal is not None or file.full
        more = left > (0 if finishing else self._look_back) and not shipped
        return file.base + file.position != before, more

    def _read(self, file: _File, end: int, finishing: bool) -> bytes:
        """The masked bytes from the file's position, at most a chunk of them.

        What may be the start of a token stays behind until its rest is there; before the chunk
        and after it as many bytes are looked at as a token may reach over.
        """
        first = max(0, file.position - self._look_back)
        try:
            window = _read(file.path, first, min(end - first, _CHUNK_BYTES + 2 * self._look_back))
        except OSError:
            return b""
        at_end = first + len(window) >= end
        keep = 0 if finishing and at_end else self._masker.unfinished(window)
        if not at_end:
            keep = max(keep, len(window) - (file.position - first) - _CHUNK_BYTES)
        return self._masker.mask(window)[file.position - first : len(window) - keep]

    def _tell_growth(self, file: _File, size: int) -> None:
        """So that a job that prints is not taken for one that hangs."""
        now = time.monotonic()
        if size != file.position and now >= file.told_at_s + _GROWTH_EVERY_S:
            file.position, file.told_at_s = size, now
            self._send(file, b"")

    def _send(self, file: _File, content: bytes) -> None:
        offset = file.base + file.position
        query = {"path": file.name, "offset": offset}
        try:
            answer = self._link.send("PUT", "/logs", content, query)
            size = answer["size"]
            if answer.get("full"):
                file.full = True
                file.position += len(content)
                return
        except Refused as refusal:
            if refusal.status != 409 or not isinstance(refusal.body.get("size"), int):
                file.refusal = refused(f"log `{file.name}`", refusal)
                print(file.refusal.message, file=sys.stderr, flush=True)
                return
            size = refusal.body["size"]
        if size < file.base:
            # The server has less than when this file began: what came before is gone.
            file.base = size
        else:
            file.position = size - file.base


def _start_anew(file: _File, inode: int) -> None:
    """The writer cut the file or put another in its place: its content is added to the log."""
    if file.inode:
        file.base += file.position
        file.position = 0
        file.limit = None
    file.inode = inode


def _read(path: Path, first: int, size: int) -> bytes:
    with open(path, "rb", buffering=0) as opened:
        opened.seek(first)
        pieces = []
        while size > 0:
            piece = opened.read(size)
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
    return b"".join(pieces)
