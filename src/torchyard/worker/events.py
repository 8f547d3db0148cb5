"""What happened on this node, told to the server in order.

Owns: events and their sequence numbers, the heartbeat.
Leaves: logs to logs.py, metrics to relay.py.
Always: posting never waits for the server; an event is sent until the server has counted it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from torchyard.worker import masking
from torchyard.worker.link import AttemptOver, Link, Refused
from torchyard.worker.orders import OVER, Orders

HEARTBEAT_S = 5.0
_BATCH = 200
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0)


class Events:
    """Delivered by one thread; what the server's answers order is passed on to `orders`.

    Where the job is `watched` for hangs, the server is asked how long it has been quiet.
    """

    def __init__(
        self,
        link: Link,
        node: int,
        folder: Path,
        orders: Orders,
        heartbeat_s: float = HEARTBEAT_S,
        masker: masking.Masker = masking.TOKENS,
        watched: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._link = link
        self._node = node
        self._orders = orders
        self._heartbeat_s = heartbeat_s
        self._masker = masker
        self._watched = watched
        # An heir goes on where the worker that died ended.
        self._events: list[dict[str, Any]] = _read(folder / "events.jsonl")
        self._spool = open(folder / "events.jsonl", "ab", buffering=0)
        self._unwritten = b""
        self._next = 0
        self._closed = False
        self._changed = threading.Condition()

    def start(self) -> None:
        threading.Thread(target=self._ship, name="events", daemon=True).start()

    def post(self, kind: str, **body: Any) -> None:
        body = self._masker.json(body)
        with self._changed:
            event = {"seq": len(self._events), "at": now_text(), "kind": kind, "body": body}
            self._unwritten += json.dumps(event).encode() + b"\n"
            self._write()
            self._events.append(event)
            self._changed.notify_all()

    def deliver(self) -> bool:
        """Wait, however long, until all is delivered; False when the attempt is over."""
        with self._changed:
            while self._next < len(self._events) and not self._orders.over:
                self._changed.wait(1.0)
            return self._next >= len(self._events)

    def close(self) -> None:
        """End the heartbeat; what is not delivered stays so."""
        with self._changed:
            self._closed = True
            self._write()
            self._changed.notify_all()
        self._spool.close()

    def _ship(self) -> None:
        failures = 0
        while not self._orders.over and not self._closed:
            body = {
                "node": self._node,
                "events": self._batch(0.0 if failures else self._heartbeat_s),
                **({"watched": True} if self._watched else {}),
            }
            try:
                answer = self._link.call("POST", "/report", body, timeout_s=15.0)
            except AttemptOver:
                self._orders.stop(OVER)
            except (OSError, Refused) as error:
                if failures == 1:
                    print(f"report not taken: {error}", file=sys.stderr, flush=True)
                time.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                failures += 1
                continue
            else:
                failures = 0
                self._orders.obey(answer)
                if not self._advance(int(answer.get("next", 0))) and body["events"]:
                    time.sleep(_PAUSES_S[1])
        with self._changed:
            self._changed.notify_all()

    def _write(self) -> None:
        """Onto the disk; what a full one does not take is written once there is room."""
        try:
            while self._unwritten:
                written = self._spool.write(self._unwritten)
                self._unwritten = self._unwritten[written:]
        except OSError as error:
            # The server is told all the same; only an heir would miss it.
            print(f"event not kept on disk: {error}", file=sys.stderr, flush=True)

    def _batch(self, wait_s: float) -> list[dict[str, Any]]:
        with self._changed:
            if self._next >= len(self._events) and not self._closed:
                self._changed.wait(wait_s)
            return self._events[self._next : self._next + _BATCH]

    def _advance(self, expected: int) -> bool:
        with self._changed:
            before, self._next = self._next, min(expected, len(self._events))
            self._changed.notify_all()
            return self._next > before


def _read(file: Path) -> list[dict[str, Any]]:
    """The events that are whole; a line cut off by the writer's death is cut off the file."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return []
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(file, whole)
    return [json.loads(line) for line in content[:whole].splitlines()]


def now_text() -> str:
    """The present moment, ISO 8601 in UTC with microseconds."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{nanoseconds // 1000:06d}Z"
