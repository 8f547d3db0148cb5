"""Find the root cause of a failed attempt in its nodes' reports.

Owns: the order of causes over nodes, the single error of a job that hangs or times out.
Leaves: why a rank ended to the worker.
Always: a cause comes before a consequence, and what happened earlier before what came later; a node
that can't reach another one is not the cause where another node failed by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from torchyard.base.clock import from_text, to_text
from torchyard.jobs.records import stalls
from torchyard.jobs.records.types import AttemptNode, JobError
from torchyard.shared import collectives, failures
from torchyard.shared.collectives import Finding, RankCalls

_SIZES = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d{1,15}) vs (\d{1,15})")
MISMATCH = "collective_mismatch"
HANG, PEER_LOST, PREEMPTED, TIMEOUT = "hang", "peer_lost", "preempted", "timeout"
# An elastic job is to go on with another number of nodes.
RESIZED = "resized"
# Why an attempt's nodes are stopped when nobody asked for it.
OF_ITSELF = ("", "failed", PEER_LOST)
_SHOWN_RANKS, _TEXT = 16, 400
# Of two machines, as far as they may differ.
_CLOCKS = timedelta(seconds=5)
# A node reports these of another one that it can't reach, also because that one has ended.
_BLAMING_OTHERS = ("nodes_missing", "ports_blocked", "preflight_timeout", "rendezvous_failed")


def error_of(body: Mapping[str, Any]) -> JobError:
    """The error that a worker reports."""
    details = body.get("details")
    return JobError(
        str(body["code"]),
        str(body["message"]),
        str(body.get("hint") or ""),
        dict(details) if isinstance(details, Mapping) else {},
    )


def failed_at(error: JobError, otherwise: datetime) -> datetime:
    """When the cause happened, as the node reports it."""
    try:
        return from_text(str(error.details["at"]))
    except (KeyError, ValueError):
        return otherwise


def failed_node(nodes: Sequence[AttemptNode]) -> AttemptNode | None:
    """The node whose failure is the root cause, if one failed."""
    failed = [node for node in nodes if node.failed_at is not None]
    if not failed:
        return next((node for node in nodes if node.exit_code), None)
    first = min(
        failed,
        key=lambda node: (
            _is_consequence(node, failed), _vagueness(node), node.failed_at, node.node
        ),
    )  # fmt: skip
    error = first.error
    if error is not None and error.code in (HANG, TIMEOUT):
        error = _all_stood(error, failed)
    else:
        error = _with_early_exit(first, nodes)
    if error is not None and _may_be_of_others(error):
        error = _with_collectives(error, nodes)
    return first if error is first.error else replace(first, error=error)


def _vagueness(node: AttemptNode) -> int:
    return failures.vagueness(node.error.code) if node.error is not None else 0


def _may_be_of_others(error: JobError) -> bool:
    """Whether it is how a rank ends that waited for another one, which did not fail itself."""
    return "early_exit" not in error.details and (
        error.code in (HANG, TIMEOUT, MISMATCH)
        or (error.code in failures.WAITED_IN_VAIN and bool(error.details.get("consequence")))
    )


def _with_collectives(error: JobError, nodes: Sequence[AttemptNode]) -> JobError:
    """The error, led by which rank called something else than the others, or did not call it."""
    finding = _lost_one(error, nodes) or stalls.compared(nodes)
    if finding is None:
        return error
    details: dict[str, Any] = {
        **error.details, "ended": error.message, "collective": finding.collective,
        "ranks": list(finding.ranks), "where": finding.where,
    }  # fmt: skip
    if finding.ranks:
        details["rank"] = finding.ranks[0]
        details["node"] = stalls.node_of(nodes, finding.ranks[0])
    code = MISMATCH if finding.differs else error.code
    hint = collectives.HINT if finding.differs or not error.hint else error.hint
    return JobError(code, f"{finding.sentence}; then: {error.message}", hint, details)


def _lost_one(error: JobError, nodes: Sequence[AttemptNode]) -> Finding | None:
    """Of a rank that Gloo aborted, because what it received had another size than it expected."""
    sizes = _SIZES.search(str(error.details.get("exception") or ""))
    rank = error.details.get("script_rank", error.details.get("rank"))
    if sizes is None or not isinstance(rank, int):
        return None
    frames = error.details.get("frames") or [{}]
    where = f"{frames[-1].get('file')} line {frames[-1].get('line')}" if frames[-1] else ""
    called = str(error.details.get("called") or "")
    lost = RankCalls(rank, {}, {}, where)
    return stalls.compared_with_lost(nodes, lost, called, int(sizes[1]), int(sizes[2]))


def _with_early_exit(failed: AttemptNode, nodes: Sequence[AttemptNode]) -> JobError | None:
    """Its error, naming the rank of another node that had left with code 0, if one had."""
    error = failed.error
    if (
        error is None
        or error.code not in failures.WAITED_IN_VAIN
        or not error.details.get("consequence")
        or "early_exit" in error.details
    ):
        return error
    assert failed.failed_at is not None
    until = failed_at(error, failed.failed_at) + _CLOCKS
    early_exits = [
        (from_text(early["at"]), node.node, early)
        for node in nodes
        if node.node != failed.node and (early := (node.interactive or {}).get("early_exit"))
    ]
    early_exits = [early for early in early_exits if early[0] <= until]
    if not early_exits:
        return error
    at, node, early = min(early_exits, key=lambda each: each[:2])
    waited = failures.Failure(error.code, error.message, error.hint, details=error.details)
    words = {key: str(early[key])[:_TEXT] for key in ("error", "where") if early.get(key)}
    left = {"rank": early["rank"], "node": node, "exit_code": 0, "at": to_text(at), **words}
    failure = failures.with_early_exit(waited, left)
    return JobError(failure.code, failure.message, failure.hint, failure.details)


def is_at_fault(node: AttemptNode, nodes: Sequence[AttemptNode] = ()) -> bool:
    """Whether it failed by itself, not as a consequence of a failure of another one of `nodes`."""
    return node.failed_at is not None and not _is_consequence(node, nodes)


def _is_consequence(node: AttemptNode, nodes: Sequence[AttemptNode]) -> bool:
    if node.error is None:
        return False
    if node.error.details.get("consequence"):
        return True
    return any(
        _explains(other.error, other.failed_at, node.error, node.failed_at)
        for other in nodes
        if other.error is not None and other.node != node.node
    )


def _explains(
    error: JobError, at: datetime | None, other: JobError, other_at: datetime | None
) -> bool:
    """Whether a node that failed by itself explains another node's failure."""
    if at is None or error.code in _BLAMING_OTHERS or error.details.get("consequence"):
        return False
    if other.code in _BLAMING_OTHERS:
        return True
    later_s = (at - other_at).total_seconds() if other_at is not None else math.inf
    return failures.may_have_terminated(other.code, error.code, later_s)


def _all_stood(error: JobError, nodes: Sequence[AttemptNode]) -> JobError:
    """The error of a stuck job, with where each rank of every node stood."""
    stood: list[dict[str, Any]] = []
    for node in nodes:
        if node.error is not None and node.error.code == error.code:
            stood += node.error.details.get("stood") or []
    stood.sort(key=lambda rank: int(rank["rank"]))
    listed = "; ".join(f"rank {rank['rank']}: {rank['where']}" for rank in stood[:_SHOWN_RANKS])
    more = f"; and {len(stood) - _SHOWN_RANKS} more" if len(stood) > _SHOWN_RANKS else ""
    message = f"{error.message}; {listed}{more}" if listed else error.message
    return replace(error, message=message, details={**error.details, "stood": stood})
