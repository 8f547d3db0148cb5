"""Reports of this node to the server: its events, in order.

Owns: events and their sequence numbers, the heartbeat, events that the server refuses.
Leaves: logs to files/logs.py, metrics to relay/relay.py.
Always: posting never waits for the server; an event is sent until the server has counted it, or
something shorter in its place; refusals do not delay the end of the node forever.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any, Optional

from torchyard.shared import masking
from torchyard.shared.connection import AttemptOver, Connection, Refused
from torchyard.worker.server.control import OVER, Control

HEARTBEAT_S = 5.0
_BATCH = 200
_PAUSES_S = (0.0, 0.2, 0.5, 1.0, 2.0)
# A server that refuses even the heartbeat may be another one for a moment: a proxy, a wrong port.
_REFUSAL_LIMIT_S = 120.0
_SHORT_LENGTH = 200
# Nobody acts on these at once. In a small job the next event follows within milliseconds, and one
# report holds both.
_GATHERED = frozenset({"node_started", "ranks_started", "node_finalizing"})
_GATHER_S = 0.05
_NOTHING = object()
# The command runs from the first of these to the first of the others.
_STARTS = "ranks_started"
_ENDS = ("node_held", "node_finalizing", "node_exited")


class Events:
    """Delivered by one thread, which passes control messages in the responses on to `control`.

    Where the job is `watched` for hangs, the server is asked for its idle time.
    """

    def __init__(
        self,
        connection: Connection,
        node: int,
        folder: Path,
        control: Control,
        heartbeat_s: float = HEARTBEAT_S,
        masker: masking.Masker = masking.TOKENS,
        watched: bool = False,
        refusal_limit_s: float = _REFUSAL_LIMIT_S,
        gather_s: float = _GATHER_S,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._connection = connection
        self._folder = folder
        self._node = node
        self._control = control
        self._heartbeat_s = heartbeat_s
        self._masker = masker
        self._watched = watched
        self._refusal_limit_s = refusal_limit_s
        self._gather_s = gather_s
        self._batch_size = _BATCH
        self._shortened: set[int] = set()
        # By the monotonic clock: since when the server has been unreachable, and how long before.
        self._unreachable_at: Optional[float] = None
        self._unreachable_s = 0.0
        # Since when every report has been refused, by the monotonic clock.
        self._refused_at: Optional[float] = None
        # A recovery worker continues where the worker died.
        self._events: list[dict[str, Any]] = _read(folder / "events.jsonl")
        self._started_s: Optional[float] = None
        self._ended_s: Optional[float] = None
        for event in self._events:
            self._note_run(event)
        self._spool = open(folder / "events.jsonl", "ab", buffering=0)
        self._unwritten = b""
        self._next = 0
        self._closed = False
        self._changed = threading.Condition()

    def start(self) -> None:
        threading.Thread(target=self._ship, name="events", daemon=True).start()

    @property
    def unreachable_s(self) -> float:
        """How long the server could not be reached, all times together."""
        since = self._unreachable_at
        return self._unreachable_s + (0.0 if since is None else time.monotonic() - since)

    def post(self, kind: str, *, earlier_s: float = 0.0, **body: Any) -> None:
        """Report what happened `earlier_s` before now."""
        body = self._masker.json(body)
        with self._changed:
            event = {
                "seq": len(self._events),
                "at": now_text(earlier_s),
                "steady_s": round(_steady_s() - earlier_s, 6),
                "kind": kind,
                "body": body,
            }
            self._note_run(event)
            self._unwritten += json.dumps(event).encode() + b"\n"
            self._write()
            self._events.append(event)
            self._changed.notify_all()

    def deliver(self) -> bool:
        """Wait until all is delivered, however long the server is unreachable.

        False when the attempt is over, or when the server responds and refuses everything.
        """
        with self._changed:
            while self._next < len(self._events) and not self._control.over:
                if self._is_refused_for_good():
                    undelivered = len(self._events) - self._next
                    print(f"{undelivered} events dropped: the server refuses them", file=sys.stderr)
                    break
                self._changed.wait(1.0)
            return self._next >= len(self._events)

    def close(self) -> None:
        """End the heartbeat; undelivered events stay on the disk."""
        with self._changed:
            self._closed = True
            self._write()
            self._changed.notify_all()
        self._spool.close()

    def _ship(self) -> None:
        failures = 0
        while not self._control.over and not self._closed:
            events = self._batch(0.0 if failures else self._heartbeat_s)
            body = self._report(events)
            try:
                response = self._connection.call("POST", "/report", body, timeout_s=15.0)
            except AttemptOver:
                self._control.stop(OVER)
            # A fault of ours, too: without this thread the job would never end.
            except Exception as error:
                if isinstance(error, Refused) and self._narrow(events, error):
                    continue
                self._note_refused(not isinstance(error, OSError))
                if isinstance(error, OSError) and self._unreachable_at is None:
                    self._unreachable_at = time.monotonic()
                if not self._folder.exists():
                    # With the home of a server that is gone; nothing is left to deliver.
                    print(f"the folder `{self._folder}` was deleted", file=sys.stderr, flush=True)
                    self._control.stop(OVER)
                if failures == 1:
                    print(f"report not accepted: {error!r}", file=sys.stderr, flush=True)
                time.sleep(_PAUSES_S[min(failures, len(_PAUSES_S) - 1)])
                failures += 1
                continue
            else:
                failures = 0
                self._unreachable_s, self._unreachable_at = self.unreachable_s, None
                self._batch_size = min(_BATCH, self._batch_size * 2)
                self._note_refused(False)
                self._control.apply(response)
                if not self._advance(int(response.get("next", 0))) and events:
                    time.sleep(_PAUSES_S[1])
        self._connection.close()
        with self._changed:
            self._changed.notify_all()

    def _report(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        ran_s = self._ran_s()
        return {
            "node": self._node,
            "events": events,
            "steady_s": _steady_s(),
            **({} if ran_s is None else {"ran_s": ran_s}),
            **({"watched": True} if self._watched else {}),
        }

    def _note_run(self, event: dict[str, Any]) -> None:
        kind, steady_s = event.get("kind"), event.get("steady_s")
        if kind == _STARTS and self._started_s is None:
            self._started_s = steady_s
        if kind in _ENDS and self._ended_s is None:
            self._ended_s = steady_s

    def _ran_s(self) -> Optional[float]:
        """How long the command ran here so far; None before its ranks have started."""
        if self._started_s is None:
            return None
        ended_s = self._ended_s
        return round((_steady_s() if ended_s is None else ended_s) - self._started_s, 6)

    def _narrow(self, events: list[dict[str, Any]], refusal: Refused) -> bool:
        """Find the event that the server refuses, and put a shorter one in its place.

        False when nothing is left to shorten: then the server refuses the node, not its events.
        """
        if len(events) > 1:
            self._batch_size = max(1, len(events) // 2)
            return True
        if not events or events[0]["seq"] in self._shortened:
            return False
        refused = events[0]
        self._shortened.add(refused["seq"])
        message = f"a report of node {self._node} was refused and is lost in part: "
        message += f"`{refused['kind']}`, {refusal}"
        print(message, file=sys.stderr, flush=True)
        with self._changed:
            # The number stays taken: the server counts without gaps.
            self._events[refused["seq"]] = {**refused, "body": _short(refused["body"])}
        self.post("notice", message=message[:_SHORT_LENGTH])
        return True

    def _note_refused(self, refused: bool) -> None:
        with self._changed:
            if not refused:
                self._refused_at = None
            elif self._refused_at is None:
                self._refused_at = time.monotonic()
            self._changed.notify_all()

    def _is_refused_for_good(self) -> bool:
        since = self._refused_at
        return since is not None and time.monotonic() - since >= self._refusal_limit_s

    def _write(self) -> None:
        """Append to the spool; what does not fit on a full disk is written once there is space."""
        try:
            while self._unwritten:
                written = self._spool.write(self._unwritten)
                self._unwritten = self._unwritten[written:]
        except OSError as error:
            # The server gets it all the same; only a recovery worker would miss it.
            print(f"event not kept on disk: {error}", file=sys.stderr, flush=True)

    def _batch(self, wait_s: float) -> list[dict[str, Any]]:
        with self._changed:
            if self._next >= len(self._events) and not self._closed:
                self._changed.wait(wait_s)
            self._changed.wait_for(self._is_urgent, self._gather_s)
            return self._next_batch()

    def _next_batch(self) -> list[dict[str, Any]]:
        return self._events[self._next : self._next + self._batch_size]

    def _is_urgent(self) -> bool:
        """Whether the next batch is empty, or has an event that does not wait for others."""
        kinds = {event["kind"] for event in self._next_batch()}
        return self._closed or not kinds or not kinds <= _GATHERED

    def _advance(self, expected: int) -> bool:
        with self._changed:
            before, self._next = self._next, min(expected, len(self._events))
            self._changed.notify_all()
            return self._next > before


def _short(body: Any) -> Any:
    """A shortened event body: numbers, and the beginnings of texts."""
    if isinstance(body, dict):
        short = {str(key)[:_SHORT_LENGTH]: _short(value) for key, value in body.items()}
        return {key: value for key, value in short.items() if value is not _NOTHING}
    if isinstance(body, str):
        return body[:_SHORT_LENGTH].encode("ascii", "replace").decode().replace("\0", "?")
    return _NOTHING if isinstance(body, (list, float)) else body


def _read(file: Path) -> list[dict[str, Any]]:
    """The complete events; whatever follows is cut off the file.

    A writer's death leaves half a line, a power cut of the machine zeros.
    """
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return []
    events: list[dict[str, Any]] = []
    valid_bytes = 0
    for line in content.splitlines(keepends=True):
        try:
            event = json.loads(line)
        except ValueError:
            break
        if not line.endswith(b"\n") or not isinstance(event, dict):
            break
        events.append(event)
        valid_bytes += len(line)
    if valid_bytes < len(content):
        os.truncate(file, valid_bytes)
    return events


def _steady_s() -> float:
    """Seconds by a clock that nobody sets, the same in every process of this machine."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def now_text(earlier_s: float = 0.0) -> str:
    """The moment `earlier_s` before now, ISO 8601 in UTC with microseconds."""
    seconds, nanoseconds = divmod(time.time_ns() - int(earlier_s * 1e9), 1_000_000_000)
    text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{text}.{nanoseconds // 1000:06d}Z"
