"""A server's right to look after what is its own, among several that share a home.

Owns: who this server is, renewing that, finding out which others are gone, what the home's files
say of it.
Leaves: what a server looks after to jobs/, the files themselves to files.py.
Always: a lease is over by the database's clock, or because its process is seen to be gone; who
was itself away for a while takes nobody for gone before a whole term; a server whose lease was
taken goes on as another one, with nothing of its own.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from torchyard.base import machine
from torchyard.base.db import Database
from torchyard.base.errors import TorchyardError
from torchyard.servers import store
from torchyard.servers.files import ServerFiles
from torchyard.servers.types import LeaseLost, Server
from torchyard.shared import processes

_log = logging.getLogger(__name__)

TERM_S = 5.0
RENEW_EVERY_S = 1.0
_WATCH_EVERY_S = 0.1
_LOST = (
    "this server was taken for dead: another one looks after what it did",
    "it goes on as a new one",
)


class Standing(Protocol):
    """What a server knows of itself and its like. `id` is empty when it is the only one."""

    @property
    def id(self) -> str: ...

    def owns(self, owner: str | None) -> bool:
        """Whether what `owner` looked after last is this server's."""
        ...

    def check(self, connection: Connection) -> None:
        """Make sure of it for the length of a write transaction.

        Raises:
            LeaseLost: another server may have taken over.
        """
        ...

    def confirm(self) -> None:
        """The same without asking the database, right before what can't be undone.

        Raises:
            LeaseLost: too much time has gone by since it was last renewed.
        """
        ...

    def living(self, connection: Connection) -> list[Server]:
        """Who has a lease, itself included."""
        ...


class Alone:
    """The only server of its home: everything is its own."""

    id = ""

    def owns(self, owner: str | None) -> bool:
        return True

    def check(self, connection: Connection) -> None:
        pass

    def confirm(self) -> None:
        pass

    def living(self, connection: Connection) -> list[Server]:
        return []


class Lease:
    """One of several.

    Args:
        url: where this server listens.
        on_change: called when another server is gone, or this one goes on as a new one.
        here: the machine, as base/machine.py calls it.
        now: the time at the database.
        is_alive: whether a process of this machine lives; asked with pid and start time.
    """

    def __init__(
        self,
        db: Database,
        files: ServerFiles,
        url: str,
        on_change: Callable[[], None],
        here: str = "",
        now: Callable[[Connection], datetime] = store.now,
        is_alive: Callable[[int, int], bool] = machine.is_alive,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._files = files
        self._url = url
        self._on_change = on_change
        self._here = here or machine.here()
        self._now = now
        self._is_alive = is_alive
        self._monotonic = monotonic
        self._me: Server | None = None
        # By this machine's clock: when the lease was renewed last, and since when without a break.
        self._renewed_at = -TERM_S
        self._steady_since = 0.0
        self._looked_at = 0.0
        self._others: list[Server] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    @property
    def id(self) -> str:
        assert self._me is not None, "the lease was not taken yet"
        return self._me.id

    def owns(self, owner: str | None) -> bool:
        return owner == self.id

    def check(self, connection: Connection) -> None:
        if not store.is_there(connection, self.id):
            raise LeaseLost(*_LOST)

    def confirm(self) -> None:
        if self._monotonic() - self._renewed_at >= TERM_S:
            raise LeaseLost(*_LOST)

    def living(self, connection: Connection) -> list[Server]:
        return store.all_of(connection)

    def take(self) -> None:
        """Become a server that the others know; `server.json` names it."""
        began = self._monotonic()
        with self._db.write() as connection:
            now = self._now(connection)
            pid = os.getpid()
            me = Server(
                uuid.uuid4().hex,
                self._url,
                self._here,
                pid,
                processes.start_time(pid),
                now,
                now,
            )
            store.add(connection, me)
        old, self._me = self._me, me
        self._renewed_at = self._steady_since = began
        self._files.announce(me)
        self._files.name(me)
        if old is not None:
            self._files.withdraw(old.id)

    def start(self) -> None:
        """Renew the lease from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Give it back; others take over at once."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10)
        if self._me is None:
            return
        self._files.withdraw(self.id)
        others: list[Server] = []
        try:
            with self._db.write() as connection:
                store.drop_named(connection, self.id)
                others = store.all_of(connection)
        except TorchyardError as error:
            _log.warning("the lease ends by itself: %s", error.message)
        if self._files.named() == self.id:
            if others:
                self._files.name(others[-1])
            else:
                self._files.unname()

    def look(self) -> None:
        """Renew it, and see who else is gone."""
        began = self._looked_at = self._monotonic()
        if began - self._renewed_at >= TERM_S / 2:
            self._steady_since = began
        # Beside all writers: one that is stopped in the middle must cost nobody its lease.
        with self._db.engine.begin() as connection:
            renewed = store.renew(connection, self.id, self._now(connection))
        if not renewed:
            _log.warning(_LOST[0])
            self.take()
            self._on_change()
            return
        self._renewed_at = began
        self._see_who_is_gone(began - self._steady_since >= TERM_S)

    def _see_who_is_gone(self, is_steady: bool) -> None:
        with self._db.read() as connection:
            known, now = store.all_of(connection), self._now(connection)
        gone = [one for one in known if one.id != self.id and self._is_gone(one, now, is_steady)]
        dropped = []
        if gone:
            with self._db.write() as connection:
                dropped = [one.id for one in gone if store.drop(connection, one)]
        living = [one for one in known if one.id not in dropped]
        self._others = [one for one in living if one.id != self.id]
        self._tell(living)
        if dropped:
            for one in gone:
                _log.warning("server %s (pid %d) at %s is gone", one.id[:8], one.pid, one.url)
            self._on_change()

    def _is_gone(self, other: Server, now: datetime, is_steady: bool) -> bool:
        if is_steady and now - other.seen_at > timedelta(seconds=TERM_S):
            return True
        if not machine.is_seen(other.machine, self._here):
            return False
        # Of an earlier boot, or its process has ended: that is certain, and needs no term.
        return other.machine != self._here or not self._is_alive(other.pid, other.start_time)

    def _tell(self, living: list[Server]) -> None:
        """Bring the files in line with who lives."""
        ids = {one.id for one in living}
        self._files.keep_only(ids)
        if not self._files.is_announced(self.id):
            assert self._me is not None
            self._files.announce(self._me)
        if self._files.named() not in ids:
            assert self._me is not None
            self._files.name(self._me)

    def _one_died(self) -> bool:
        """Whether a process that is seen from here has ended since the last look."""
        return any(
            one.machine == self._here and not self._is_alive(one.pid, one.start_time)
            for one in self._others
        )

    def _run(self) -> None:
        while not self._stopping.wait(_WATCH_EVERY_S):
            if self._monotonic() - self._looked_at < RENEW_EVERY_S and not self._one_died():
                continue
            try:
                self.look()
            except (TorchyardError, SQLAlchemyError, OSError) as error:
                # Not renewed: `confirm` says so once the term is over.
                _log.info("the lease could not be renewed: %s", error)
            except Exception:
                _log.exception("the lease could not be renewed")


def others_on(db: Database) -> list[Server]:
    """Who has a living lease on this database; asked by a server that wants to be alone."""
    with db.read() as connection:
        begin = store.now(connection) - timedelta(seconds=TERM_S)
        fresh = [one for one in store.all_of(connection) if one.seen_at > begin]
    return [
        one
        for one in fresh
        if not machine.is_seen(one.machine)
        or machine.is_alive(one.pid, one.start_time, one.machine)
    ]
