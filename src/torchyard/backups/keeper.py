"""Make the backups that the server's owner has scheduled, and prove each.

Owns: when one is due, its name, how many are kept.
Leaves: making and proving it to a program of its own, by which server to jobs/keeping.py.
Always: one server of a home makes one backup at a time, with the lowest priority; an older backup
is removed only after a newer one was proved, and one that was not proved counts for none; a server
that stops ends the backup, and the next one begins it again.
"""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from starlette.datastructures import State

from torchyard.base import leash, settings
from torchyard.base.home import backup_record
from torchyard.base.home.backup_record import Record, Scheduled
from torchyard.jobs import keeping as keepers
from torchyard.jobs.keeping import kept_by
from torchyard.jobs.services import Services
from torchyard.servers.backup_settings import BackupSettings

_LOOK_EVERY_S = 60.0
_POLL_S = 0.5
_MADE_AT = re.compile(r"\d{8}T\d{6}Z\.tar")
_UNPROVED = ".unproved"
_log = logging.getLogger(__name__)


@asynccontextmanager
async def keeping(services: Services, state: State) -> AsyncIterator[None]:
    """Make the scheduled backups of a server, within the block."""
    schedule: BackupSettings | None = state.backup_settings
    if schedule is None:
        yield
        return
    async with kept_by(Keeper(services, schedule)):
        yield


def due_at(record: Record, schedule: BackupSettings) -> datetime | None:
    """When the next backup is due, a day after one that failed; None for at once."""
    last = record.scheduled
    if last is None:
        return None
    return last.at + timedelta(days=1 if last.error else schedule.days)


class Keeper(keepers.Keeper):
    def __init__(self, services: Services, schedule: BackupSettings) -> None:
        super().__init__(services, "backups", threads=1)
        self._schedule = schedule

    def run_due(self) -> bool:
        """Make the backup if it is due; whether it was."""
        now = self._services.clock.now()
        due = due_at(backup_record.read(self._services.home), self._schedule)
        if due is not None and due > now:
            return False
        target = self._schedule.folder / f"{self._prefix}{now:%Y%m%dT%H%M%SZ}.tar"
        error = self._back_up(target)
        if error is None:
            return True
        backup_record.note_scheduled(self._services.home, Scheduled(now, error))
        if error:
            _log.warning("the scheduled backup to `%s` failed: %s", target, error)
            self._set_aside(target)
        else:
            self._remove_old()
        return True

    def _keep(self) -> None:
        self._wakeup.clear()
        if not self.run_due():
            self._wakeup.wait(_LOOK_EVERY_S)

    def _hear(self, key: str) -> None:
        """Nothing of what is signalled is of backups."""

    @property
    def _prefix(self) -> str:
        """Several homes may have the same folder."""
        return f"torchyard-{self._services.for_nodes.server_id[:8]}-"

    def _back_up(self, target: Path) -> str | None:
        """What went wrong, empty if it was proved; None when the server stops first."""
        words = [sys.executable, "-m", "torchyard.backups", "backup", "--prove", "--low-priority"]
        words += ["--home", str(self._services.home)]
        if self._schedule.passphrase_file is not None:
            words += ["--passphrase-file", str(self._schedule.passphrase_file)]
        url = self._services.db.url.render_as_string(hide_password=False)
        with subprocess.Popen(
            leash.command([*words, str(target)]),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=settings.with_secrets(url, self._schedule.secrets_key),
            start_new_session=True,
        ) as process:
            while True:
                try:
                    out, errors = process.communicate(timeout=_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if self._stopping.is_set():
                        leash.end(process)
                        return None
        if process.returncode == 0:
            done = json.loads(out)
            _log.info("backed up to `%s`: %d files, proved", target, done["files"])
            return ""
        lines = [line for line in errors.splitlines() if line.startswith("error: ")]
        return lines[-1].removeprefix("error: ") if lines else f"exit code {process.returncode}"

    def _remove_old(self) -> None:
        """Those beyond the number that is kept, oldest first."""
        for path in [*self._made()[: -self._schedule.keep], *self._made(_UNPROVED)]:
            path.unlink()

    def _set_aside(self, target: Path) -> None:
        """Keep the newest backup that was not proved, which does not count as one."""
        for path in self._made(_UNPROVED):
            path.unlink()
        if not target.exists():
            return
        aside = target.with_name(f"{target.name}{_UNPROVED}")
        target.rename(aside)
        last = backup_record.read(self._services.home).backup
        if last is not None and last.path == str(target):
            backup_record.note_backup(self._services.home, replace(last, path=str(aside)))

    def _made(self, ending: str = "") -> list[Path]:
        """The backups of this home, the oldest first."""
        prefix = self._prefix
        return sorted(
            path
            for path in self._schedule.folder.iterdir()
            if path.name.startswith(prefix)
            and path.name.endswith(ending)
            and _MADE_AT.fullmatch(path.name[len(prefix) :].removesuffix(ending))
        )
