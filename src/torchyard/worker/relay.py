"""What scripts log, kept on disk and shipped to the server.

Owns: when run history is shipped and how a lost server is waited for.
Leaves: HTTP with scripts to relay_door.py, files to history_spool.py.
Always: a script never waits for the server to log; what was answered arrives, once, even if the
worker is killed and started again.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.plan import LaunchPlan
from torchyard.worker.history_spool import HistorySpool
from torchyard.worker.link import AttemptOver, Link, Refused

if TYPE_CHECKING:
    from torchyard.worker.relay_door import Door

_BATCH_RECORDS = 5_000
_BATCH_BYTES = 4 * 1024 * 1024
# While a batch travels and for so long after, records gather; the first one goes at once.
_GATHER_S = 0.02
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_NOTED_REJECTIONS = 20
_LOOK_EVERY_S = 60.0


class Relay:
    """One node's relay. `start` may be left out when no script will run."""

    def __init__(self, link: Link, plan: LaunchPlan, node: int, folder: Path) -> None:
        self._link = link
        self._plan = plan
        self._node = node
        self._spool = HistorySpool(folder / "history")
        self._shipper = threading.Thread(target=self._run, name="history", daemon=True)
        self._door: Door | None = None
        self._over: AttemptOver | None = None
        self._away = False
        self._ending = threading.Event()
        self._urgent = threading.Event()
        self._last_write = 0.0
        self._rejected: list[str] = []

    def start(self) -> str:
        """Listen, and ship what is there from an earlier life; returns the URL for scripts."""
        # Loading http.server takes 8 ms, which a node without scripts need not spend.
        from torchyard.worker.relay_door import Door

        self._door = Door(self._plan, self)
        threading.Thread(target=self._door.serve, name="relay", daemon=True).start()
        self._shipper.start()
        return self._door.url

    def finish(self, timeout_s: float) -> bool:
        """Ship the rest and stop listening; True when all is delivered.

        Raises:
            AttemptOver: the server wants no more of it.
        """
        if self._shipper.ident is None:
            self._shipper.start()
        self._urgent.set()
        done = self._spool.wait_delivered(
            self._spool.end, timeout_s, lambda: self._over is not None
        )
        self._ending.set()
        self._urgent.set()
        self._spool.wake()
        # It ends at once, unless the server has a batch in hand and does not answer.
        self._shipper.join(1.0)
        if self._door is not None:
            self._door.close()
        self._spool.close()
        if self._over is not None:
            raise self._over
        return done

    def last_write(self) -> float:
        """When the last metric came, on the monotonic clock; 0 before the first."""
        return self._last_write

    def rejected(self) -> list[str]:
        """Why the server refused records, the first few of them."""
        return list(self._rejected)

    # For the door

    def keep(self, records: list[dict[str, Any]]) -> None:
        """On return the records survive the worker's death.

        Raises:
            OSError: the disk is full, or broken.
        """
        if not records:
            return
        self._spool.append([json.dumps(record).encode() for record in records])
        if any(record["kind"] == "metric" for record in records):
            self._last_write = time.monotonic()

    def settle(self, timeout_s: float) -> None:
        """Until the server has all that was kept so far, unless it is away."""
        self._urgent.set()
        self._spool.wait_delivered(
            self._spool.end, timeout_s, lambda: self._away or self._over is not None
        )

    # Shipping

    def _run(self) -> None:
        try:
            self._ship()
        finally:
            self._link.close()

    def _ship(self) -> None:
        pause_s = 0.0
        limit = _BATCH_RECORDS
        while not self._ending.is_set():
            if not self._spool.wait_for_records(_LOOK_EVERY_S, self._ending.is_set):
                continue
            try:
                seq, lines = self._spool.read(limit, _BATCH_BYTES)
                self._spool.delivered(self._send(seq, lines))
            except AttemptOver as over:
                self._over = over
                self._spool.wake()
                return
            except Refused:
                # One record must not hold up the others: find it by halves.
                limit = max(1, len(lines) // 2)
                continue
            except (OSError, ValueError):
                self._away = True
                self._spool.wake()
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.6 or _FIRST_PAUSE_S)
                self._ending.wait(pause_s)
                continue
            self._away = False
            pause_s = 0.0
            limit = min(_BATCH_RECORDS, limit * 2)
            self._urgent.wait(_GATHER_S)
            self._urgent.clear()

    def _send(self, seq: int, lines: list[bytes]) -> int:
        content = b'{"node":%d,"seq":%d,"records":[%b]}' % (self._node, seq, b",".join(lines))
        try:
            answer = self._link.send("POST", "/history", content, content_type="application/json")
        except Refused as refused:
            if len(lines) > 1:
                raise
            self._note(str(refused))
            return seq + 1
        for record in answer.get("rejected", []):
            self._note(str(record.get("message")))
        return max(int(answer.get("next", 0)), seq + len(lines))

    def _note(self, message: str) -> None:
        if len(self._rejected) < _NOTED_REJECTIONS and message not in self._rejected:
            self._rejected.append(message)
            print(f"run history: {message}", file=sys.stderr, flush=True)
