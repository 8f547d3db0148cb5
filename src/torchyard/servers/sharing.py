"""Several servers of one home, or a single one.

Owns: what a server needs in addition when it shares a home; which servers exclude each other.
Leaves: the lease to lease.py, notifications to notifications.py, the lock on the home to server.py.
Always: sharing needs a database that several servers can use; a single server starts only when no
other server is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy.engine import URL

from torchyard.base import machine
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.base.home.node_folder import NodeFolder
from torchyard.servers import lease as leases
from torchyard.servers import store
from torchyard.servers.files import ServerFiles
from torchyard.servers.lease import Lease
from torchyard.servers.notifications import Notifier


@dataclass(frozen=True)
class Sharing:
    """Runs from `start` to `stop`; `db` is its own."""

    lease: Lease
    notifier: Notifier
    db: Database

    def start(self) -> None:
        """Make this server known to the others and to commands."""
        self.lease.take()
        self.notifier.start()
        self.lease.start()

    def stop(self) -> None:
        self.lease.stop()
        self.notifier.stop()
        self.db.close()


def check_shareable(home: Path, url: URL) -> None:
    """
    Raises:
        InvalidInput: several servers can't share this database.
    """
    if url.get_backend_name() != "postgresql":
        raise InvalidInput(
            f"`--shared` needs PostgreSQL, and the records of `{home}` are in a file",
            "choose one with `--database postgresql://user@host/name`, or omit `--shared`",
            code="not_shareable",
        )


def share(
    db: Database,
    home: Path,
    url: str,
    on_change: Callable[[], None],
    on_key: Callable[[str], None],
    on_gap: Callable[[], None],
    node: NodeFolder | None = None,
) -> Sharing:
    """
    Args:
        node: what jobs reach of this machine; see files.py.
        url: where this server listens.
        on_change: called when there may be something to take over.
        on_key, on_gap: as in `Notifier`.
    """
    own_db = db.apart()
    lease = Lease(own_db, ServerFiles(home, node), url, on_change)
    return Sharing(lease, Notifier(own_db, on_key, on_gap), own_db)


def claim_alone(db: Database, home: Path, node: NodeFolder | None = None) -> None:
    """Take the home and its database for this server alone.

    Raises:
        Conflict: another server is alive.
    """
    others = leases.living_servers(db)
    if others:
        other = others[0]
        raise Conflict(
            f"the server at {other.url} on {machine.host_of(other.machine)} shares this database",
            "start this server with `--shared`, or stop the other one first",
            code="served",
        )
    with db.read() as connection:
        has_dead_servers = bool(store.all_of(connection))
    if has_dead_servers:
        with db.write() as connection:
            store.drop_all(connection)
    ServerFiles(home, node).forget_others()
