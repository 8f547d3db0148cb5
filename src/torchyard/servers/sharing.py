"""Several servers of one home, or one alone.

Owns: what a server needs besides its rooms when it shares a home; what can't be mixed.
Leaves: the lease to lease.py, news to wire.py, the lock on the home to server.py.
Always: sharing needs a database that servers can share; a server that wants to be alone begins only
when no other one lives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL

from torchyard.base import machine
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.servers import lease as leases
from torchyard.servers import store
from torchyard.servers.files import ServerFiles
from torchyard.servers.lease import Lease
from torchyard.servers.wire import Wire


@dataclass(frozen=True)
class Sharing:
    """Runs from `start` to `stop`; `db` is its own."""

    lease: Lease
    wire: Wire
    db: Database

    def start(self) -> None:
        """From now on the others know of this server, and commands find it."""
        self.lease.take()
        self.wire.start()
        self.lease.start()

    def stop(self) -> None:
        self.lease.stop()
        self.wire.stop()
        self.db.close()


def refuse_unshareable(home: Path, url: URL) -> None:
    """
    Raises:
        InvalidInput: several servers can't have this database.
    """
    if url.get_backend_name() != "postgresql":
        raise InvalidInput(
            f"`--shared` needs PostgreSQL, and the records of `{home}` are in a file",
            "name one with `--database postgresql://user@host/name`, or leave `--shared` out",
            code="not_shareable",
        )


def made(
    db: Database,
    home: Path,
    url: str,
    on_change: Callable[[], None],
    heard: Callable[[str], None],
    missed: Callable[[], None],
) -> Sharing:
    """
    Args:
        url: where this server listens.
        on_change: called when there may be something to take over.
        heard, missed: as `Wire` has them.
    """
    own = db.apart()
    lease = Lease(own, ServerFiles(home), url, on_change)
    return Sharing(lease, Wire(own, heard, missed), own)


def be_alone(db: Database, home: Path) -> None:
    """The home and its database are this server's alone from now on.

    Raises:
        Conflict: another server lives.
    """
    others = leases.others_on(db)
    if others:
        one = others[0]
        raise Conflict(
            f"the server at {one.url} on {machine.host_of(one.machine)} shares this database",
            "start this one with `--shared`, or stop that one first",
            code="served",
        )
    with db.read() as connection:
        left = bool(store.all_of(connection))
    if left:
        with db.write() as connection:
            store.drop_all(connection)
    ServerFiles(home).be_alone()
