"""News from one server to the others of its database.

Owns: PostgreSQL's NOTIFY and LISTEN, a connection that is lost and found again.
Leaves: what the news is about to who listens.
Always: whoever tells does not wait for the database; after a break everyone is told to look again,
for what was said meanwhile is lost.

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
_AGAIN_AFTER_S = 1.0
_LOOK_EVERY_S = 1.0
_tell = text("SELECT pg_notify(:channel, news) FROM unnest(CAST(:news AS text[])) AS news")


class Wire:
    """
    Args:
        heard: called with each key that another server told.
        missed: called when keys may have been lost.
    """

    def __init__(
        self, db: Database, heard: Callable[[str], None], missed: Callable[[], None]
    ) -> None:
        self._db = db
        self._heard = heard
        self._missed = missed
        # What this server tells comes back to it, too.
        self._own = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._untold: set[str] = set()
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("wire-teller", self._send), ("wire-listener", self._listen))
        ]

    def tell(self, key: str) -> None:
        """Let the other servers know, soon; the same key many times at once is told once."""
        with self._lock:
            self._untold.add(key)
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
                keys, self._untold = self._untold, set()
            if keys:
                self._send_now(keys)
            elif self._stopping.is_set():
                return

    def _send_now(self, keys: set[str]) -> None:
        try:
            with self._db.engine.connect() as connection:
                alone = connection.execution_options(isolation_level="AUTOCOMMIT")
                news = [f"{self._own} {key}" for key in sorted(keys)]
                alone.execute(_tell, {"channel": _CHANNEL, "news": news})
        except SQLAlchemyError as error:
            _log.info("news could not be told: %s", error)
            if not self._stopping.wait(_AGAIN_AFTER_S):
                for key in keys:
                    self.tell(key)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._listen_now()
            except Exception as error:
                # The driver's errors, when its server is away; whatever it is, it is tried again.
                _log.info("no news of other servers: %s", error)
                self._stopping.wait(_AGAIN_AFTER_S)

    def _listen_now(self) -> None:
        with self._db.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            line: Any = connection.connection.driver_connection
            connection.detach()  # it is never given back to the pool: it would go on listening
            line.execute(f"LISTEN {_CHANNEL}")
            self._missed()
            while not self._stopping.is_set():
                for news in line.notifies(timeout=_LOOK_EVERY_S):
                    teller, _, key = news.payload.partition(" ")
                    if teller != self._own:
                        self._heard(key)
