"""The attempt of a job whose ranks run, or that is held after them.

Owns: which one that is, what its nodes told of services, releasing it.
Leaves: what is done with its nodes to interactive/.
Always: an attempt that has ended is not it.
"""

from __future__ import annotations

from typing import Any

from torchyard.base.db import Database
from torchyard.jobs import actions
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.types import Job, NodeState, Status
from torchyard.jobs.services import RecordServices

RELEASE = "release"
STATUSES = (Status.RUNNING, Status.NOT_RESPONDING)


def attempt_of(db: Database, job: Job) -> str | None:
    """Its id; None when none runs."""
    with db.read() as connection:
        attempts = attempt_store.attempts_of(connection, job.id)
    return next((attempt.id for attempt in reversed(attempts) if attempt.ended_at is None), None)


def interactive_of(db: Database, attempt_id: str) -> list[tuple[int, dict[str, Any]]]:
    """By node, what it told of its services and of being held."""
    with db.read() as connection:
        nodes = attempt_store.nodes_of(connection, attempt_id)
    return [(node.node, node.interactive or {}) for node in nodes]


def release(services: RecordServices, attempt_id: str) -> bool:
    """Have nodes that are held end; False where the script of one still runs."""
    with services.db.write() as connection:
        nodes = attempt_store.nodes_of(connection, attempt_id)
        left = [node for node in nodes if node.state is not NodeState.EXITED]
        if not left or not all((node.interactive or {}).get("held") for node in left):
            return False
        attempt_store.change_attempt(connection, attempt_id, order="stop", order_reason=RELEASE)
    services.signals.notify(actions.attempt_key(attempt_id))
    return True
