"""Slurm's states of jobs as states of nodes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from torchyard.executors.slurm import job_states
from torchyard.executors.slurm.commands import JobRow


def row(state: str, **values: str | int) -> JobRow:
    return JobRow(7, "torchyard-x-y", state, **values)  # type: ignore[arg-type]


def at(ago_s: float) -> str:
    time = datetime.now(timezone.utc) - timedelta(seconds=ago_s)
    return time.strftime("%Y-%m-%dT%H:%M:%S")


def test_a_waiting_job_is_pending_with_its_reason_and_expected_start() -> None:
    status = job_states.status(row("PENDING", reason="Resources", starts_at=at(-3600)), 2, 60)
    assert status.nodes == ("pending", "pending")
    assert status.reason.startswith("waits for Slurm: its nodes are in use; Slurm expects to start")


@pytest.mark.parametrize(
    ("state", "expected", "code"),
    [
        ("RUNNING", "running", ""),
        ("SUSPENDED", "running", ""),
        ("COMPLETED", "exited", ""),
        ("PREEMPTED", "lost", "preempted"),
        ("TIMEOUT", "lost", "time_limit"),
        ("NODE_FAIL", "lost", "node_lost"),
        ("BOOT_FAIL", "lost", "node_lost"),
        ("OUT_OF_MEMORY", "lost", "out_of_memory"),
        ("CANCELLED", "lost", "canceled_in_slurm"),
        ("DEADLINE", "lost", "time_limit"),
    ],
)
def test_states_of_slurm(state: str, expected: str, code: str) -> None:
    status = job_states.status(row(state), 2, 60)
    assert status.nodes == (expected, expected)
    assert (status.cause.code if status.cause else "") == code
    assert bool(status.lost_because) == (expected == "lost")


def test_a_job_that_is_being_preempted_still_runs() -> None:
    status = job_states.status(row("RUNNING", preempted_at=at(1)), 1, 60)
    assert status.nodes == ("running",)
    assert status.cause is not None and status.cause.code == "preempted"


def test_a_job_that_ended_as_slurm_asked_it_before_its_limit_was_ended_by_it() -> None:
    early = row("COMPLETED", starts_at=at(7200), ended_at=at(6000), time_limit="2:00:00")
    late = row("COMPLETED", starts_at=at(7200), ended_at=at(50), time_limit="2:00:00")
    assert job_states.status(early, 1, 60).cause is None
    cause = job_states.status(late, 1, 60).cause
    assert cause is not None and cause.code == "time_limit"


def test_a_job_that_slurm_has_forgotten_is_lost() -> None:
    status = job_states.status(None, 2, 60)
    assert status.nodes == ("lost", "lost") and status.over


def test_what_a_node_said_before_its_worker_ran_is_told() -> None:
    comment = "torchyard server a attempt b | python3: not found"
    status = job_states.status(row("FAILED", comment=comment), 1, 60)
    assert status.cause is not None and "python3: not found" in status.cause.message


def test_a_node_that_said_why_has_its_hint() -> None:
    first = "error: node 0 (n1) can't be used: no disk hint: free some"
    second = "error: node 1 (n2) can't be used: no way hint: open one"
    # What is long is cut at its beginning.
    for said in (first, f"{first} {second}", f"used: no way hint: open one {first}"):
        row_there = row("FAILED", comment=f"torchyard server a attempt b | {said} ")
        cause = job_states.status(row_there, 1, 60).cause
        assert cause is not None and cause.code == "node_unusable"
        assert cause.message.endswith("worker: node 0 (n1) can't be used: no disk")
        assert cause.hint == "free some"
