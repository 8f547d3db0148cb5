"""Notifications from one server to the others of its database.

Owns: PostgreSQL's NOTIFY and LISTEN, reconnecting after a break.
Leaves: what a key stands for to the caller.
Always: sending does not wait for the database; after a break `on_gap` is called, because
notifications sent meanwhile are lost.

Source: https://www.postgresql.org/docs/current/sql-notify.html
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable
from typing import Any

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from torchyard.base.db import Database

_log = logging.getLogger(__name__)

_CHANNEL = "torchyard"
_RETRY_S = 1.0
_POLL_S = 1.0
_NOTIFY = text("SELECT pg_notify(:channel, key) FROM unnest(CAST(:keys AS text[])) AS key")


class Notifier:
    """
    Args:
        on_key: called with each key that another server sent.
        on_gap: called when keys may have been lost.
    """

    def __init__(
        self, db: Database, on_key: Callable[[str], None], on_gap: Callable[[], None]
    ) -> None:
        self._db = db
        self._on_key = on_key
        self._on_gap = on_gap
        # This server's own notifications come back to it, too.
        self._sender = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._pending: set[str] = set()
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("notifier", self._send), ("notifications", self._listen))
        ]

    def notify(self, key: str) -> None:
        """Send the key to the other servers, soon; a key that is pending is sent once."""
        with self._lock:
            self._pending.add(key)
        self._due.set()

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._due.set()
        for thread in self._threads:
            thread.join(5)

    def _send(self) -> None:
        while True:
            self._due.wait()
            self._due.clear()
            with self._lock:
                keys, self._pending = self._pending, set()
            if keys:
                self._send_now(keys)
            elif self._stopping.is_set():
                return

    def _send_now(self, keys: set[str]) -> None:
        try:
            with self._db.engine.connect() as connection:
                committing = connection.execution_options(isolation_level="AUTOCOMMIT")
                signed = [f"{self._sender} {key}" for key in sorted(keys)]
                committing.execute(_NOTIFY, {"channel": _CHANNEL, "keys": signed})
        except SQLAlchemyError as error:
            _log.info("notifications could not be sent: %s", error)
            if not self._stopping.wait(_RETRY_S):
                for key in keys:
                    self.notify(key)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen_now()
            except Exception as error:
                # The driver's errors when its server is down; whatever it is, retry.
                _log.info("no notifications from other servers: %s", error)
                self._stopping.wait(_RETRY_S)

    def _listen_now(self) -> None:
        with self._db.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            driver: Any = connection.connection.driver_connection
            connection.detach()  # never back to the pool, where it would go on listening
            driver.execute(f"LISTEN {_CHANNEL}")
            self._on_gap()
            while not self._stopping.is_set():
                for notification in driver.notifies(timeout=_POLL_S):
                    sender, _, key = notification.payload.partition(" ")
                    if sender != self._sender:
                        self._on_key(key)
