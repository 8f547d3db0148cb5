"""A server's lease on its attempts, among several servers that share a home.

Owns: this server's identity, renewing its lease, noticing that other servers died, the home's
files about it.
Leaves: what a server owns to jobs/, the files themselves to files.py.
Always: a lease ends by the database's clock, or because its process is seen to be gone; a server
that was itself stalled declares nobody dead for a whole term; a server whose lease was ended
continues as a new one, which owns nothing.
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
    "this server was declared dead: another one has taken over its attempts",
    "it continues as a new server",
)


class Membership(Protocol):
    """This server among those of its home. `id` is empty when it is the only one."""

    @property
    def id(self) -> str: ...

    def owns(self, owner: str | None) -> bool:
        """Whether what `owner` last owned is this server's."""
        ...

    def check(self, connection: Connection) -> None:
        """Verify the lease for the length of a write transaction.

        Raises:
            LeaseLost: another server may have taken over.
        """
        ...

    def confirm(self) -> None:
        """The same without the database, right before what can't be undone.

        Raises:
            LeaseLost: too much time has passed since the lease was renewed.
        """
        ...

    def living(self, connection: Connection) -> list[Server]:
        """The servers that have a lease, this one included."""
        ...


class SingleServer:
    """The only server of its home: it owns everything."""

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
    """The membership of one of several servers.

    Args:
        url: where this server listens.
        on_change: called when another server died, or this one continues as a new one.
        here: the machine, as base/machine.py calls it.
        now: the time at the database.
        is_alive: whether a process of this machine lives, by pid and start time.
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
        # By this machine's clock: the last renewal, and since when there was none too late.
        self._renewed_at = -TERM_S
        self._steady_since = 0.0
        self._last_try_at = 0.0
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
        """Take a lease as a new server; `server.json` names it."""
        started_at = self._monotonic()
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
        previous, self._me = self._me, me
        self._renewed_at = self._steady_since = started_at
        self._files.announce(me)
        self._files.name(me)
        if previous is not None:
            self._files.withdraw(previous.id)

    def start(self) -> None:
        """Renew the lease from now on."""
        self._thread.start()

    def stop(self) -> None:
        """End the lease; others take over at once."""
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
            _log.warning("the lease expires by itself: %s", error.message)
        if self._files.read_named_id() == self.id:
            if others:
                self._files.name(others[-1])
            else:
                self._files.unname()

    def renew(self) -> None:
        """Renew the lease, and drop the servers that died."""
        started_at = self._last_try_at = self._monotonic()
        if started_at - self._renewed_at >= TERM_S / 2:
            self._steady_since = started_at
        # Not in line with other writers: one that is stopped halfway must end nobody's lease.
        with self._db.engine.begin() as connection:
            renewed = store.renew(connection, self.id, self._now(connection))
        if not renewed:
            _log.warning(_LOST[0])
            self.take()
            self._on_change()
            return
        self._renewed_at = started_at
        self._drop_dead(started_at - self._steady_since >= TERM_S)

    def _drop_dead(self, is_steady: bool) -> None:
        with self._db.read() as connection:
            servers, now = store.all_of(connection), self._now(connection)
        dead = [
            server
            for server in servers
            if server.id != self.id and self._is_dead(server, now, is_steady)
        ]
        dropped = []
        if dead:
            with self._db.write() as connection:
                dropped = [server.id for server in dead if store.drop(connection, server)]
        living = [server for server in servers if server.id not in dropped]
        self._others = [server for server in living if server.id != self.id]
        self._update_files(living)
        if dropped:
            for server in dead:
                _log.warning(
                    "server %s (pid %d) at %s is gone", server.id[:8], server.pid, server.url
                )
            self._on_change()

    def _is_dead(self, other: Server, now: datetime, is_steady: bool) -> bool:
        if is_steady and now - other.seen_at > timedelta(seconds=TERM_S):
            return True
        if not machine.is_seen(other.machine, self._here):
            return False
        # From an earlier boot, or its process has ended: that is certain, whatever its term.
        return other.machine != self._here or not self._is_alive(other.pid, other.start_time)

    def _update_files(self, living: list[Server]) -> None:
        """Have the files name the living servers."""
        ids = {server.id for server in living}
        self._files.keep_only(ids)
        if not self._files.is_announced(self.id):
            assert self._me is not None
            self._files.announce(self._me)
        if self._files.read_named_id() not in ids:
            assert self._me is not None
            self._files.name(self._me)

    def _another_died(self) -> bool:
        """Whether a process of this machine has ended since the last renewal."""
        return any(
            other.machine == self._here and not self._is_alive(other.pid, other.start_time)
            for other in self._others
        )

    def _run(self) -> None:
        while not self._stopping.wait(_WATCH_EVERY_S):
            if self._monotonic() - self._last_try_at < RENEW_EVERY_S and not self._another_died():
                continue
            try:
                self.renew()
            except (TorchyardError, SQLAlchemyError, OSError) as error:
                # Not renewed: `confirm` raises once the term is over.
                _log.info("the lease could not be renewed: %s", error)
            except Exception:
                _log.exception("the lease could not be renewed")


def living_servers(db: Database) -> list[Server]:
    """The servers with a valid lease on this database, read before a single server starts."""
    with db.read() as connection:
        oldest = store.now(connection) - timedelta(seconds=TERM_S)
        servers = [server for server in store.all_of(connection) if server.seen_at > oldest]
    return [
        server
        for server in servers
        if not machine.is_seen(server.machine)
        or machine.is_alive(server.pid, server.start_time, server.machine)
    ]
