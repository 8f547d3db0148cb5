"""Remove what a node of another machine has of an attempt.

Owns: which files those are.
Leaves: whether anything of the attempt still runs to the callers.
"""

from __future__ import annotations

import contextlib
from pathlib import Path


def remove_node(attempt: Path, node: int) -> None:
    """Remove what a node has of an attempt: nothing of it runs any more."""
    from torchyard.worker.files import node_cache  # Not needed before the end.

    node_cache.remove_tree(attempt / f"node-{node}")
    # The lock comes last: a folder without it would not be found again.
    for name in (f"plan-{node}.json", f"plan-{node}.json.new", f"lock-{node}"):
        (attempt / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        attempt.rmdir()  # not while other nodes of the attempt are there
