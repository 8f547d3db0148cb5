"""Be the supervisor of a node's worker, and start the worker.

Owns: which of the two processes imports what.
Leaves: the node's work to node.py, supervision to supervisor.py.
Always: a second worker of the same node exits at once, unless the first worker and its supervisor
both died: then it becomes the recovery worker.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from torchyard.shared import disk, unix_sockets
from torchyard.shared import plan as plans
from torchyard.worker.node import supervisor
from torchyard.worker.system import mounts, processes


def run(plan_file: Path, node: int, starter: int = 0) -> int:
    """The node's exit code, 0 for a second worker.

    Args:
        starter: the pid of the starter.py that this process is a child of; 0 where the server
            started it.
    """
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
    if starter:
        supervisor.follow_starter(starter)
    # The supervisor outlives the ranks, and must not keep the socket of theirs.
    is_handed = any(service.is_handed for service in plan.services)
    supervised = supervisor.SupervisedNode(
        processes.mark(plan.attempt_id, node),
        plan.grace_s,
        folder,
        tuple(unix_sockets.inherited()) if is_handed else (),
    )

    def work() -> int:
        # A supervisor does not import it, and stays small, unless a fork server already has.
        from torchyard.worker.node.node import Node

        if plan.environment and os.geteuid() == 0:
            # Before there are threads: a namespace is entered by one thread alone.
            mounts.protect(plan.environment)
        return Node(plan, node, folder, dict(os.environ)).run()

    def run_recovery(death: str) -> int:
        from torchyard.worker.node.node import Node

        return Node(plan, node, folder, dict(os.environ)).recover(death)

    if claim == supervisor.ABANDONED:
        exit_code = supervisor.recover(run_recovery, supervised)
    else:
        exit_code = supervisor.supervise(work, run_recovery, supervised)
    if starter and supervisor.is_without_starter():
        from torchyard.worker.node import node_removal

        node_removal.remove_node(plan_file.parent, node)
    return exit_code
