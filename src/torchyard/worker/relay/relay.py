"""What scripts log, kept on the node's disk and shipped to the server.

Owns: when run history is shipped, how a lost server is waited for, what is told of refusals.
Leaves: HTTP with scripts to relay_server.py, files to shared/history_spool.py and run_state.py.
Always: a script never waits for the server to log; what was answered arrives, once, even if the
worker is killed: whoever opens its folder next delivers what is left.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.shared.history_spool import HistorySpool
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.server.connection import AttemptOver, Link, Refused, ServerFailed

if TYPE_CHECKING:
    from torchyard.worker.relay.relay_server import Door
    from torchyard.worker.relay.run_state import Memory

_BATCH_RECORDS = 5_000
_BATCH_BYTES = 4 * 1024 * 1024
# While a batch travels and for so long after, records gather; the first one goes at once.
_GATHER_S = 0.1
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0
_TOLD_REFUSALS = 5
_LOOK_EVERY_S = 60.0
_FAILING_LIMIT_S = 600.0
# One encoder for all: `json.dumps` looks for its own anew.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def spool_folder(folder: Path) -> Path:
    """Where a relay keeps history, below the node's own spool."""
    return folder / "history"


class Relay:
    """One node's relay. `start` may be left out when no script will run.

    Args:
        tell: shows a sentence to the user; called when the server refuses records, from another
            thread.
        failing_limit_s: a server that answers and fails for so long is not waited for at the end.
    """

    def __init__(
        self,
        link: Link,
        plan: LaunchPlan,
        node: int,
        folder: Path,
        tell: Callable[[str], None] = lambda _: None,
        failing_limit_s: float = _FAILING_LIMIT_S,
    ) -> None:
        self._link = link
        self._plan = plan
        self._node = node
        self._tell = tell
        self._failing_limit_s = failing_limit_s
        self._folder = spool_folder(folder)
        self._spool = HistorySpool(self._folder)
        self._shipper = threading.Thread(target=self._run, name="history", daemon=True)
        self._door: Door | None = None
        self._memory: Memory | None = None
        self._over: AttemptOver | None = None
        self._away = False
        self._failing_since: float | None = None
        self._ending = threading.Event()
        self._urgent = threading.Event()
        self._last_write = 0.0
        self._refused = 0
        self._messages: list[str] = []

    def start(self) -> str:
        """Listen, and ship what is there from an earlier life; returns the URL for scripts."""
        # Loading what speaks with scripts takes time that a node without them need not spend.
        from torchyard.worker.relay.relay_server import Door
        from torchyard.worker.relay.run_state import Memory

        self._memory = Memory(self._folder / "runs.ndjson", self._plan.job)
        self._door = Door(self._plan, self, self._memory)
        threading.Thread(target=self._door.serve, name="relay", daemon=True).start()
        self._shipper.start()
        return self._door.url

    def finish(self, timeout_s: float) -> bool:
        """Ship the rest and stop listening; True when all is delivered.

        A server that is away is waited for; one that is there and fails, for ten minutes.

        Raises:
            AttemptOver: the server wants no more of it.
        """
        if self._shipper.ident is None:
            self._shipper.start()
        self._urgent.set()
        done = self._spool.wait_delivered(self._spool.end, timeout_s, self._is_in_vain)
        self._ending.set()
        self._urgent.set()
        self._spool.wake()
        # It ends at once, unless the server has a batch in hand and does not answer.
        self._shipper.join(1.0)
        if self._door is not None and self._memory is not None:
            self._door.close()
            self._memory.close()
        self._spool.close()
        if self._refused > len(self._messages):
            self._tell(f"run history: {self._refused:,} records were refused in all")
            self._refused = 0
        if self._over is not None:
            raise self._over
        return done

    @property
    def left(self) -> int:
        """How many records the server does not have."""
        return self._spool.left

    def last_write(self) -> float:
        """When the last metric came, on the monotonic clock; 0 before the first."""
        return self._last_write

    # For the door

    def keep(self, records: list[dict[str, Any]]) -> None:
        """On return the records survive the worker's death.

        Raises:
            OSError: the disk is full, or broken.
        """
        if not records:
            return
        self._spool.append([_encode(record).encode() for record in records])
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
                self._send(seq, lines)
            except AttemptOver as over:
                self._over = over
                self._spool.wake()
                return
            except Refused:
                # One record must not hold up the others: find it by halves.
                limit = max(1, len(lines) // 2)
                continue
            except (OSError, ValueError) as error:
                self._failing_since = _failing_since(self._failing_since, error)
                self._away = True
                self._spool.wake()
                pause_s = min(_LONGEST_PAUSE_S, pause_s * 1.6 or _FIRST_PAUSE_S)
                self._ending.wait(pause_s)
                continue
            self._away = False
            self._failing_since = None
            pause_s = 0.0
            limit = min(_BATCH_RECORDS, limit * 2)
            self._urgent.wait(_GATHER_S)
            self._urgent.clear()

    def _send(self, seq: int, lines: list[bytes]) -> None:
        content = b'{"node":%d,"seq":%d,"first":%d,"records":[%b]}' % (
            self._node,
            seq,
            self._spool.first,
            b",".join(lines),
        )
        try:
            answer = self._link.send("POST", "/history", content, content_type="application/json")
        except Refused as refused:
            if len(lines) > 1:
                raise
            self._note(str(refused))
            self._skip(seq)
            return
        for record in answer.get("rejected", []):
            self._note(str(record.get("message")))
        following = int(answer["next"])
        if following < seq:
            self._spool.go_back(following)
        else:
            self._spool.delivered(following)

    def _skip(self, seq: int) -> None:
        """Something in the place of a record that the server does not even read."""
        content = b'{"node":%d,"seq":%d,"first":%d,"records":[{}]}' % (self._node, seq, seq)
        try:
            self._link.send("POST", "/history", content, content_type="application/json")
        except Refused:
            pass  # It takes nothing at all; should that change, it asks for what it lacks.
        self._spool.delivered(seq + 1)

    def _is_in_vain(self) -> bool:
        since = self._failing_since
        failing = since is not None and time.monotonic() > since + self._failing_limit_s
        return self._over is not None or failing

    def _note(self, message: str) -> None:
        self._refused += 1
        if len(self._messages) < _TOLD_REFUSALS and message not in self._messages:
            self._messages.append(message)
            self._tell(f"run history: {message}")
            print(f"run history: {message}", file=sys.stderr, flush=True)


def _failing_since(before: float | None, error: Exception) -> float | None:
    if not isinstance(error, ServerFailed):
        return None
    return time.monotonic() if before is None else before
