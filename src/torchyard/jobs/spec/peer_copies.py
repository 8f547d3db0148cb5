"""Whether the nodes of a job keep copies of each other's checkpoints.

Owns: reading `torchyard.checkpoint.peer_copies`.
Leaves: which jobs have such nodes to attempts/planner.py, the copies to worker/node/peer_copies.py.
Always: left out means on.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchyard.base.errors import InvalidSpec

PROPERTY = "torchyard.checkpoint.peer_copies"


def are_kept(properties: Mapping[str, str]) -> bool:
    """
    Raises:
        InvalidSpec: neither true nor false.
    """
    written = properties.get(PROPERTY, "true")
    if written.lower() not in ("true", "false"):
        raise InvalidSpec(
            f"`{PROPERTY}` is `{written[:50]}`", "true or false", at=("properties", PROPERTY)
        )
    return written.lower() == "true"
