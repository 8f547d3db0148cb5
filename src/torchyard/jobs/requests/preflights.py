"""Show what the preflight of a job's nodes found before its ranks started.

Owns: assembling it for people.
Leaves: the checks to the workers, storing results to attempts/worker_reports.py.
Always: shows what the nodes of the last attempt reported, which may be nothing yet.
"""

from __future__ import annotations

from typing import Any

from torchyard.base.db import Database
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.types import Job

# For the exchange between nodes only.
_HIDDEN = ("nonce", "door", "ports")


def of(db: Database, job: Job) -> list[dict[str, Any]]:
    """One object per node of the last attempt: `node`, `address`, `state`, `facts`, `findings`,
    `ways` to other nodes, `apart_s` from node 0's clock, `took_ms`.
    """
    with db.read() as connection:
        attempts = attempt_store.attempts_of(connection, job.id)
        nodes = attempt_store.nodes_of(connection, attempts[-1].id) if attempts else []
    return [_to_json(node.node, node.address, node.state, node.preflight or {}) for node in nodes]


def _to_json(node: int, address: str, state: str, report: dict[str, Any]) -> dict[str, Any]:
    facts = report.get("facts") or {}
    return {
        "node": node,
        "address": address,
        "state": state,
        "facts": {key: value for key, value in facts.items() if key not in _HIDDEN},
        **{key: report.get(key) for key in ("findings", "ways", "apart_s", "took_ms")},
    }
