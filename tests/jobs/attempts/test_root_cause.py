"""Which node's failure is the cause of a failed attempt."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from torchyard.jobs.attempts import root_cause
from torchyard.jobs.records.types import AttemptNode, JobError, NodeState

NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)


def failed(number: int, code: str, at_s: float) -> AttemptNode:
    """A node that failed so."""
    return AttemptNode(
        attempt_id="a",
        node=number,
        next_seq=1,
        seen_at=NOW,
        state=NodeState.EXITED,
        exit_code=143 if code == "terminated" else 1,
        error=JobError(code, code),
        failed_at=NOW + timedelta(seconds=at_s),
    )


@pytest.mark.parametrize(
    ("later_s", "code", "cause"),
    [
        (0.5, "exception", 1),
        (-0.5, "exception", 1),
        (60.0, "exception", 0),
        (0.5, "terminated", 0),
        (0.5, "ports_blocked", 0),
    ],
)
def test_a_terminated_node_is_the_cause_unless_another_failed_by_itself(
    later_s: float, code: str, cause: int
) -> None:
    # mpirun terminates node 0's rank, which may end before node 1's has.
    nodes = [failed(0, "terminated", 0), failed(1, code, later_s)]
    node = root_cause.failed_node(nodes)
    assert node is not None and node.node == cause
