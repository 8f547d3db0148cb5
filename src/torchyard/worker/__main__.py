"""`python -I -S worker.pyz --plan <scratch>/plan.json --node K`

Owns: the command line, starting the supervisor and its worker.
Leaves: the node's work to node/node.py, supervision to node/supervisor.py.
Always: a second worker of the same node exits at once, unless the first worker and its supervisor
both died: then it becomes the recovery worker.
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
    # The server's own umask keeps its files private; a script's files are as its user wants them.
    umask = os.environ.pop("TORCHYARD_UMASK", "")
    if umask:
        os.umask(int(umask, 8))
    sys.stderr = disk.LogStream(sys.stderr)
    folder = plan_file.parent / f"node-{node}"
    claim = supervisor.claim(folder)
    if claim == supervisor.TAKEN:
        return 0
    plan = plans.from_json(plan_file.read_text())
    supervised = supervisor.SupervisedNode(
        processes.mark(plan.attempt_id, node), plan.grace_s, folder
    )

    def work() -> int:
        # Imported only in the worker, so that the supervisor stays small.
        from torchyard.worker.node.node import Node

        return Node(plan, node, folder, dict(os.environ)).run()

    def run_recovery(death: str) -> int:
        from torchyard.worker.node.node import Node

        return Node(plan, node, folder, dict(os.environ)).recover(death)

    if claim == supervisor.ABANDONED:
        return supervisor.recover(run_recovery, supervised)
    return supervisor.supervise(work, run_recovery, supervised)


def _arguments(arguments: list[str]) -> tuple[Path, int]:
    options = {arguments[index]: arguments[index + 1] for index in range(0, len(arguments) - 1, 2)}
    if len(arguments) != 4 or set(options) != {"--plan", "--node"}:
        sys.exit("usage: worker.pyz --plan <scratch>/plan.json --node K")
    return Path(options["--plan"]).absolute(), int(options["--node"])


if __name__ == "__main__":
    sys.exit(main())
