"""`python -I -S worker.pyz --plan <scratch>/plan.json --node K`

Owns: the command line and the split into guardian and worker.
Leaves: the node's work to node/node.py.
Always: a second worker of the same node ends at once and does nothing, unless the first one and
its guardian died: then it is their heir.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torchyard.shared import disk
from torchyard.shared import plan as plans
from torchyard.worker.node import supervisor
from torchyard.worker.system import processes


def main() -> int:
    """Exit code: the node's, 0 for a second worker."""
    plan_file, node = _arguments(sys.argv[1:])
    sys.stderr = disk.LogStream(sys.stderr)
    folder = plan_file.parent / f"node-{node}"
    claimed = supervisor.claim(folder)
    if claimed == supervisor.TAKEN:
        return 0
    plan = plans.from_json(plan_file.read_text())
    guarded = supervisor.Guarded(processes.mark(plan.attempt_id, node), plan.grace_s, folder)

    def work() -> int:
        # Imported by the worker alone, so that the guardian stays small.
        from torchyard.worker.node.node import Node

        return Node(plan, node, folder, dict(os.environ)).run()

    def inherit(how: str) -> int:
        from torchyard.worker.node.node import Node

        return Node(plan, node, folder, dict(os.environ)).inherit(how)

    if claimed == supervisor.LEFT:
        return supervisor.succeed(inherit, guarded)
    return supervisor.split(work, inherit, guarded)


def _arguments(words: list[str]) -> tuple[Path, int]:
    given = {words[at]: words[at + 1] for at in range(0, len(words) - 1, 2)}
    if len(words) != 4 or set(given) != {"--plan", "--node"}:
        sys.exit("usage: worker.pyz --plan <scratch>/plan.json --node K")
    return Path(given["--plan"]).absolute(), int(given["--node"])


if __name__ == "__main__":
    sys.exit(main())
