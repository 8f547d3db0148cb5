"""What scripts log, kept on the node's disk and shipped to the server.

Owns: when run history is shipped, how an unreachable server is waited for, which refusals the user
sees.
Leaves: HTTP with scripts to relay_server.py, files to shared/history_spool.py and run_state.py.
Always: a script never waits for the server to log; what was answered arrives, once, even if the
worker is killed: the next worker of its folder delivers what is left.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.shared.connection import AttemptOver, Connection, Refused, ServerFailed
from torchyard.shared.history_spool import HistorySpool
from torchyard.shared.plan import LaunchPlan
from torchyard.shared.retry_delays import next_pause_s

if TYPE_CHECKING:
    from torchyard.worker.relay.relay_server import RelayServer
    from torchyard.worker.relay.run_state import RunState

_BATCH_RECORDS = 5_000
_BATCH_BYTES = 4 * 1024 * 1024
# While a batch travels and for so long after, records gather; the first one goes at once.
_GATHER_S = 0.1
_SHOWN_REFUSALS = 5
_MAX_LOST_FIGURES = 20
_WAKE_EVERY_S = 60.0
_FAILING_LIMIT_S = 600.0
# One encoder for all: `json.dumps` looks for its own again.
_encode = json.JSONEncoder(separators=(",", ":")).encode


def spool_folder(folder: Path) -> Path:
    """Where a relay keeps history, below the node's own spool."""
    return folder / "history"


class Relay:
    """One node's relay. `start` may be left out when no script will run.

    Args:
        notify: shows a sentence to the user; called when the server refuses records, from another
            thread.
        failing_limit_s: a server that responds and fails for so long is not waited for at the end.
        environ: of the worker; names its proxy on nodes that don't see the server's disk.
    """

    def __init__(
        self,
        connection: Connection,
        plan: LaunchPlan,
        node: int,
        folder: Path,
        notify: Callable[[str], None] = lambda _: None,
        failing_limit_s: float = _FAILING_LIMIT_S,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._connection = connection
        # The node may name addresses of its own in it before `start`.
        self.plan = plan
        self._node = node
        self._notify = notify
        self._environ = environ
        self._failing_limit_s = failing_limit_s
        self._folder = spool_folder(folder)
        self._spool = HistorySpool(self._folder)
        self._shipper = threading.Thread(target=self._run, name="history", daemon=True)
        self._server: RelayServer | None = None
        self._state: RunState | None = None
        self._over: AttemptOver | None = None
        self._unreachable = False
        self._failing_since: float | None = None
        self._ending = threading.Event()
        self._urgent = threading.Event()
        self._refused = 0
        # How often the ranks have logged something.
        self.logged = 0
        # By metric whose last values are not finite: the first such record, and their count.
        self.lost_figures: dict[str, tuple[dict[str, Any], int]] = {}
        self._messages: list[str] = []
        # A socket that listens in the job's own network, where it has one.
        self.listener: socket.socket | None = None

    def start(self) -> str:
        """Listen, and ship what a previous worker left; returns the URL for scripts."""
        # Loading the HTTP server takes time that a node without scripts need not spend.
        from torchyard.worker.relay.relay_server import RelayServer
        from torchyard.worker.relay.run_state import RunState

        self._state = RunState(self._folder / "runs.ndjson", self.plan.job)
        self._server = RelayServer(
            self.plan, self, self._state, listener=self.listener, environ=self._environ
        )
        threading.Thread(target=self._server.serve, name="relay", daemon=True).start()
        self._shipper.start()
        return self._server.url

    def finish(self, timeout_s: float) -> bool:
        """Ship the rest and stop listening; True when all is delivered.

        An unreachable server is waited for; one that responds and fails, for ten minutes.

        Raises:
            AttemptOver: the server no longer accepts it.
        """
        if self._shipper.ident is None:
            self._shipper.start()
        self._urgent.set()
        done = self._spool.wait_delivered(self._spool.end, timeout_s, self._is_hopeless)
        self._ending.set()
        self._urgent.set()
        self._spool.wake()
        # It ends at once, unless the server has a batch and does not respond.
        self._shipper.join(1.0)
        if self._server is not None and self._state is not None:
            self._server.close()
            self._state.close()
        self._spool.close()
        if self._refused > len(self._messages):
            self._notify(f"run history: {self._refused:,} records were refused in all")
            self._refused = 0
        if self._over is not None:
            raise self._over
        return done

    @property
    def left(self) -> int:
        """How many records the server does not have."""
        return self._spool.left

    # For the relay server

    def keep(self, records: list[dict[str, Any]]) -> None:
        """On return the records survive the worker's death.

        Raises:
            OSError: the disk is full, or broken.
        """
        self.logged += 1
        for record in records:
            if record["kind"] == "metric":
                self._note_lost_figure(record)
        self.keep_samples(records)

    def keep_samples(self, records: list[dict[str, Any]]) -> None:
        """As `keep`, of what the worker itself measures: no sign that the ranks make progress."""
        if records:
            self._spool.append([_encode(record).encode() for record in records])

    def _note_lost_figure(self, record: dict[str, Any]) -> None:
        key = record["key"]
        if not isinstance(record["value"], str):
            self.lost_figures.pop(key, None)
        elif len(self.lost_figures) < _MAX_LOST_FIGURES or key in self.lost_figures:
            first, count = self.lost_figures.get(key, (record, 0))
            self.lost_figures[key] = (first, count + 1)

    def settle(self, timeout_s: float) -> None:
        """Until the server has all that was kept so far, unless it is unreachable."""
        self._urgent.set()
        self._spool.wait_delivered(
            self._spool.end, timeout_s, lambda: self._unreachable or self._over is not None
        )

    # Shipping

    def _run(self) -> None:
        try:
            self._ship()
        finally:
            self._connection.close()

    def _ship(self) -> None:
        pause_s = 0.0
        limit = _BATCH_RECORDS
        while not self._ending.is_set():
            if not self._spool.wait_for_records(_WAKE_EVERY_S, self._ending.is_set):
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
                self._unreachable = True
                self._spool.wake()
                pause_s = next_pause_s(pause_s)
                self._ending.wait(pause_s)
                continue
            self._unreachable = False
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
            response = self._connection.send(
                "POST", "/history", content, content_type="application/json"
            )
        except Refused as refused:
            if len(lines) > 1:
                raise
            self._note(str(refused))
            self._skip(seq)
            return
        for record in response.get("rejected", []):
            self._note(str(record.get("message")))
        following = int(response["next"])
        if following < seq:
            self._spool.go_back(following)
        else:
            self._spool.delivered(following)

    def _post(self, content: bytes) -> dict[str, Any]:
        return self._connection.send("POST", "/history", content, content_type="application/json")

    def _skip(self, seq: int) -> None:
        """Send something in the place of a record that the server does not even read."""
        content = b'{"node":%d,"seq":%d,"first":%d,"records":[{}]}' % (self._node, seq, seq)
        try:
            self._post(content)
        except Refused:
            pass  # It refuses everything; should that change, it asks for what it lacks.
        self._spool.delivered(seq + 1)

    def _is_hopeless(self) -> bool:
        since = self._failing_since
        failing = since is not None and time.monotonic() > since + self._failing_limit_s
        return self._over is not None or failing

    def _note(self, message: str) -> None:
        self._refused += 1
        if len(self._messages) < _SHOWN_REFUSALS and message not in self._messages:
            self._messages.append(message)
            self._notify(f"run history: {message}")
            print(f"run history: {message}", file=sys.stderr, flush=True)


def _failing_since(previous: float | None, error: Exception) -> float | None:
    if not isinstance(error, ServerFailed):
        return None
    return time.monotonic() if previous is None else previous
