"""What the nodes of a job knew and found out before its ranks started.

Owns: putting it together for people.
Leaves: finding it out to the workers, keeping it to attempts/worker_reports.py.
Always: it is what the nodes of the last attempt told, and nothing where they told nothing yet.
"""

from __future__ import annotations

from typing import Any

from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services

# Of the exchange between nodes, and nobody else's.
_KEPT_BACK = ("nonce", "door", "ports")


def of(services: Services, job: Job) -> list[dict[str, Any]]:
    """One object a node of the last attempt: `node`, `address`, `state`, `facts`, `findings`,
    `ways` to other nodes, `apart_s` from node 0's clock, `took_ms`.
    """
    with services.db.read() as connection:
        attempts = attempt_store.attempts_of(connection, job.id)
        nodes = attempt_store.nodes_of(connection, attempts[-1].id) if attempts else []
    return [_shown(node.node, node.address, node.state, node.preflight or {}) for node in nodes]


def _shown(node: int, address: str, state: str, report: dict[str, Any]) -> dict[str, Any]:
    facts = report.get("facts") or {}
    return {
        "node": node,
        "address": address,
        "state": state,
        "facts": {key: value for key, value in facts.items() if key not in _KEPT_BACK},
        **{key: report.get(key) for key in ("findings", "ways", "apart_s", "took_ms")},
    }
