"""Check and parse what a worker sends, before anything acts on it.

Owns: the form of events and records, how many one request may hold.
Leaves: acting on them to worker_reports.py and history/history.py.
Always: whatever a worker sends, the response explains it; it is never an internal error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from torchyard.base.clock import from_text, to_text
from torchyard.base.errors import InvalidInput, LimitExceeded
from torchyard.jobs.attempts import root_cause
from torchyard.jobs.attempts.worker_events import (
    NodeExited,
    NodeFinalizing,
    NodeHeld,
    NodeServing,
    NodeStopping,
    NoticeReported,
    OtherReported,
    PreflightReported,
    RankExited,
    RanksGoOn,
    RanksHang,
    RanksStand,
    RanksStarted,
    Report,
    ServiceReported,
    WorkerEvent,
)
from torchyard.jobs.records import stalls
from torchyard.jobs.records.types import JobError

MOST_EVENTS = 1_000
MOST_RECORDS = 100_000
MOST_FACTS_BYTES = 64 << 10
_TEXT = 1000
_NUMBERS = range(-(2**31), 2**31)
_SEQUENCE = range(2**53)
_MOST_SECONDS = 1e10


def check_node(node: int, port: int | None = None) -> None:
    """
    Raises:
        InvalidInput: not a number of a node, or of a port.
    """
    if node not in range(2**31):
        raise InvalidInput(f"`{node}` is not a node number")
    if port is not None and port not in range(1, 2**16):
        raise InvalidInput(f"`{port}` is not a port number")


def check_facts(facts: Mapping[str, Any]) -> None:
    """
    Raises:
        LimitExceeded: the facts are larger than other nodes can be expected to read.
    """
    size_bytes = len(json.dumps(facts))
    if size_bytes > MOST_FACTS_BYTES:
        raise LimitExceeded(
            f"the facts of a node are {size_bytes} bytes long", f"at most {MOST_FACTS_BYTES}"
        )


def read_events(
    node: int, events: Sequence[Mapping[str, Any]], steady_s: float | None = None
) -> list[WorkerEvent]:
    """What a node's worker sent, in its order.

    Args:
        steady_s: the node's clock that nobody sets as it sent them; each event has it as well.

    Raises:
        InvalidInput: one of them is not a valid event.
        LimitExceeded: there are too many.
    """
    check_node(node)
    if len(events) > MOST_EVENTS:
        raise LimitExceeded(
            f"{len(events)} events are too many for one request", f"send at most {MOST_EVENTS}"
        )
    check_seconds("steady_s", steady_s)
    return [_event(event, steady_s) for event in events]


def check_seconds(key: str, seconds: float | None) -> None:
    """
    Raises:
        InvalidInput: not a length of time.
    """
    if seconds is not None and not 0 <= seconds < _MOST_SECONDS:
        raise InvalidInput(f"`{key}` must be a number of seconds, not {seconds}")


def check_records(node: int, seq: int, records: Sequence[Any]) -> None:
    """
    Raises:
        InvalidInput: the first record's number is not valid.
        LimitExceeded: there are too many.
    """
    check_node(node)
    if seq not in _SEQUENCE:
        raise InvalidInput(f"`{seq}` is not a record number")
    if len(records) > MOST_RECORDS:
        raise LimitExceeded(
            f"{len(records)} records are too many for one request", f"send at most {MOST_RECORDS}"
        )


def _event(event: Mapping[str, Any], sent_steady_s: float | None) -> WorkerEvent:
    seq, kind, body = event.get("seq"), event.get("kind"), event.get("body")
    if not _is_whole(seq, _SEQUENCE) or not isinstance(kind, str):
        raise InvalidInput("an event needs `seq`, a number, and `kind`, a string")
    assert isinstance(seq, int)
    try:
        at = from_text(str(event.get("at")))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"event {seq} has no valid time `at`", "use ISO 8601 with a time zone"
        ) from error
    if body is not None and not isinstance(body, Mapping):
        raise InvalidInput(f"the body of event {seq} must be an object")
    report = _report(seq, kind, body or {})
    return WorkerEvent(seq, at, report, _age_s(seq, event.get("steady_s"), sent_steady_s))


def _age_s(seq: int, steady_s: Any, sent_steady_s: float | None) -> float:
    if steady_s is None or sent_steady_s is None:
        return 0.0
    if isinstance(steady_s, bool) or not isinstance(steady_s, (int, float)):
        raise InvalidInput(f"`steady_s` of event {seq} must be a number")
    age_s = sent_steady_s - steady_s
    return age_s if 0 <= age_s < _MOST_SECONDS else 0.0


def _report(seq: int, kind: str, body: Mapping[str, Any]) -> Report:
    exit_code, signal = _number(seq, body, "exit_code"), _number(seq, body, "signal")
    error = _error(seq, body.get("error"))
    match kind:
        case "ranks_started":
            return RanksStarted()
        case "rank_exited":
            return RankExited(exit_code, signal, bool(body.get("consequence")))
        case root_cause.HANG:
            return RanksHang()
        case "ranks_stand":
            return RanksStand(stalls.read(body))
        case "ranks_go_on":
            return RanksGoOn()
        case "node_serving":
            return NodeServing()
        case "node_stopping":
            return NodeStopping(str(body.get("reason") or ""))
        case "preflight":
            return PreflightReported(body)
        case "notice":
            return NoticeReported(str(body.get("message", "")))
        case "service":
            return _service(seq, body)
        case "node_held":
            return NodeHeld(_number(seq, body, "until"))
        case "node_finalizing":
            return NodeFinalizing()
        case "node_exited":
            return NodeExited(exit_code, error, _early_exit(seq, body.get("early_exit")))
    return OtherReported(kind)


def _early_exit(seq: int, body: Any) -> dict[str, Any] | None:
    if body is None:
        return None
    if not isinstance(body, Mapping):
        raise InvalidInput(f"`early_exit` of event {seq} must be an object")
    try:
        at = from_text(str(body.get("at")))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"`early_exit` of event {seq} has no valid time `at`") from error
    return {"rank": _number(seq, body, "rank"), "at": to_text(at)}


def _service(seq: int, body: Mapping[str, Any]) -> ServiceReported:
    texts = {key: str(body.get(key) or "")[:_TEXT] for key in ("name", "type", "state", "message")}
    restarts, port = _number(seq, body, "restarts"), _number(seq, body, "port")
    return ServiceReported(restarts=restarts, port=port, **texts)


def _number(seq: int, body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if value is None:
        return 0
    if not _is_whole(value, _NUMBERS):
        raise InvalidInput(f"`{key}` of event {seq} must be a number")
    return int(value)


def _error(seq: int, error: Any) -> JobError | None:
    if error is None:
        return None
    if not isinstance(error, Mapping) or not all(
        isinstance(error.get(key), str) for key in ("code", "message")
    ):
        raise InvalidInput(f"the error of event {seq} needs `code` and `message`")
    return root_cause.error_of(error)


def _is_whole(value: Any, within: range) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value in within
