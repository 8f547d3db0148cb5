"""Who did what, when, from where, and how it ended.

Owns: the folder `audit/` of the server's home, one file of JSON lines per day; what a line says.
Leaves: choosing the requests to auditing.py, who may read the log to people_routes.py, the chain of
hashes to base/audit_chain.py, copies to audit_sink.py.
Always: a line contains no token, query or body, only what a route notes itself; a line is written
whole, before the request is answered, and linked to the line before it, whichever server of this
machine wrote that; files older than `KEPT_DAYS` are deleted.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from starlette.types import Scope

from torchyard.base import audit_chain
from torchyard.base.clock import Clock, to_text
from torchyard.shared import locks
from torchyard.workspaces.audit_sink import Sink
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Identity, TokenKind

KEPT_DAYS = 400
_NOTE = "torchyard.audit"
_PATH_LENGTH = 500
_ABOUT_LENGTH = 300
_log = logging.getLogger(__name__)


class Audit:
    """The lines of one home folder; safe for several threads and several servers.

    Args:
        sink: gets a copy of each line.

    Attributes:
        written, failed: how many lines were written, and could not be.
    """

    def __init__(self, home: Path, clock: Clock, sink: Sink | None = None) -> None:
        self._folder = home / "audit"
        self._clock = clock
        self.sink = sink
        self.written = self.failed = 0
        self._lock = threading.Lock()
        self._day = ""
        self._file = -1
        self._lock_folder, self._lock_file = home / "locks", -1
        # Up to where this process knows the chain; other servers of this machine write, too.
        self._link = audit_chain.Link()
        self._known_bytes = -1
        # Servers on several machines may share a home; each writes its own files.
        self._host = re.sub(r"[^\w-]", "_", socket.gethostname())[:40] or "server"

    def write(self, line: Mapping[str, Any]) -> None:
        """Add a line with the time. If it can't be written, the server's log says so."""
        with self._lock:
            dated = {"at": to_text(self._clock.now()), **line}
            try:
                with self._alone():
                    # Not before: else a line of yesterday could come behind one of today.
                    now = self._clock.now()
                    dated["at"] = to_text(now)
                    text = self._append(now, dated)
                self.written += 1
            except OSError as error:
                self.failed += 1
                text = json.dumps(dated, ensure_ascii=False).encode("utf-8", "backslashreplace")
                _log.error("the audit could not be written (%s): %s", error, text.decode())
            if self.sink is not None:
                self.sink.send(text)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other server of this machine writes, not even into the file of another day."""
        if self._lock_file < 0:
            self._lock_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock_file = locks.open_lock(self._lock_folder / f"audit.{self._host}")
        locks.lock(self._lock_file)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _append(self, now: datetime, line: Mapping[str, Any]) -> bytes:
        file = self._opened(now)
        size_bytes = os.fstat(file).st_size
        if size_bytes != self._known_bytes:
            self._link = audit_chain.tail(self._own_files())
        text, link = audit_chain.seal(line, self._host, self._link)
        # Behind half a line, which a full disk has left, this one begins again.
        head = b"" if self._ends_whole(file, size_bytes) else b"\n"
        record = head + text + b"\n"
        self._known_bytes = -1
        if os.write(file, record) != len(record):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._link, self._known_bytes = link, size_bytes + len(record)
        return text

    def _ends_whole(self, file: int, size_bytes: int) -> bool:
        if size_bytes in (0, self._known_bytes):
            return True
        return os.pread(file, 1, size_bytes - 1) == b"\n"

    def _own_files(self) -> list[Path]:
        """Newest first."""
        return sorted(self._folder.glob(f"????-??-??.{self._host}.jsonl"), reverse=True)

    def read(
        self,
        *,
        since: datetime | None = None,
        user: str = "",
        workspace: str = "",
        limit: int = 100,
    ) -> list[dict[str, Any]]:
        """The newest `limit` matching lines, newest first.

        Args:
            workspace: only requests to this one; empty for all.
        """
        selected: list[dict[str, Any]] = []
        for day, files in self._days():
            if since is not None and day < f"{since:%Y-%m-%d}":
                break
            lines = [line for file in files for line in _lines(file)]
            lines.sort(key=lambda line: str(line["at"]), reverse=True)
            for line in lines:
                if since is not None and line["at"] < to_text(since):
                    break
                if user and line.get("user") != user:
                    continue
                if workspace and line.get("workspace") != workspace:
                    continue
                selected.append(line)
                if len(selected) == limit:
                    return selected
        return selected

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            if self._lock_file >= 0:
                os.close(self._lock_file)
            self._day, self._file, self._known_bytes, self._lock_file = "", -1, -1, -1
            if self.sink is not None:
                self.sink.close()

    def _opened(self, now: datetime) -> int:
        # The chain goes on in the newest file, also when the clock was set back over midnight.
        day = max(f"{now:%Y-%m-%d}", self._day)
        if day != self._day:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            day = max([day, *(file.name[:10] for file in self._own_files()[:1])])
            file = self._folder / f"{day}.{self._host}.jsonl"
            opened = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            if self._file >= 0:
                os.close(self._file)
            self._day, self._file, self._known_bytes = day, opened, -1
            self._drop_old(now)
        return self._file

    def _drop_old(self, now: datetime) -> None:
        last = f"{now - timedelta(days=KEPT_DAYS):%Y-%m-%d}"
        for day, files in self._days():
            if day < last:
                for file in files:
                    file.unlink(missing_ok=True)

    def _days(self) -> Iterator[tuple[str, list[Path]]]:
        """Newest first."""
        by_day: dict[str, list[Path]] = {}
        for file in self._folder.glob("????-??-??.*.jsonl"):
            by_day.setdefault(file.name[:10], []).append(file)
        yield from sorted(by_day.items(), reverse=True)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with open(file, "rb") as opened:
        for text in opened:
            try:
                line = json.loads(text)
            except ValueError:
                continue  # Half a line, written when the disk was full.
            if isinstance(line, dict) and isinstance(line.get("at"), str):
                yield line


def begin(scope: Scope) -> dict[str, Any]:
    """Attach an empty note to a request; access.py and the routes fill it in."""
    note: dict[str, Any] = {}
    scope[_NOTE] = note
    return note


def note_permission(scope: Scope, permission: Permission) -> None:
    """Note the permission that the route requires."""
    note = scope.get(_NOTE)
    if note is not None:
        note["permission"] = permission


def note_identity(
    scope: Scope, identity: Identity, permission: Permission, role_scope: str
) -> None:
    """Note who sent the request, and which permission it needs."""
    note = scope.get(_NOTE)
    if note is None:
        return
    note["permission"] = permission
    note["user"] = identity.user
    note["workspace"] = role_scope or identity.workspace
    if identity.kind in (TokenKind.MACHINE, TokenKind.INVITATION):
        note["token"] = identity.subject
    elif identity.kind is not TokenKind.PERSON:
        note["job"] = identity.subject.rpartition("/")[2]
    elif identity.token:
        note["token"] = identity.token


def note_about(scope: Scope, **about: Any) -> None:
    """Note details of what a route does: names and numbers, never a secret."""
    note = scope.get(_NOTE)
    if note is not None:
        note.setdefault("about", {}).update(about)


def line_of(
    note: Mapping[str, Any], method: str, path: str, status: int, address: str
) -> dict[str, Any]:
    """The line for a request that was answered with `status`."""
    line: dict[str, Any] = {"user": note.get("user", "")}
    line |= {key: note[key] for key in ("job", "token") if note.get(key)}
    permission = note.get("permission")
    line |= {
        "did": permission.name.lower() if isinstance(permission, Permission) else "",
        "method": method,
        "path": path[:_PATH_LENGTH],
        "workspace": note.get("workspace", ""),
        "outcome": outcome(status),
        "status": status,
        "from": address,
    }
    if note.get("about"):
        line["about"] = {key: _short(value) for key, value in note["about"].items()}
    return line


def _short(value: Any) -> Any:
    return value[:_ABOUT_LENGTH] if isinstance(value, str) else value


def outcome(status: int) -> str:
    if status in (401, 403, 413):
        return "refused"
    return "done" if status < 400 else "failed"
