"""The network of a job that is not to have the machine's: nothing, or the server and its own nodes.

Owns: which node makes it, what can be reached through it, what the user is told.
Leaves: the namespace to system/network_space.py, connections to the server to relay/server_gate.py.
Always: ranks that can't have it don't start.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from torchyard.shared.failures import Failure
from torchyard.shared.plan import NONE, LaunchPlan
from torchyard.worker.relay import server_gate
from torchyard.worker.relay.server_gate import ServerGate
from torchyard.worker.system import network_space, networks
from torchyard.worker.system.network_space import UNAVAILABLE


class Enclosure:
    """One node's part in it, until `close`.

    Raises:
        Failure: this machine does not allow it, or node 0's did not come.
    """

    def __init__(self, plan: LaunchPlan, node: int, stopped: Callable[[], bool]) -> None:
        if plan.image is not None and os.geteuid():
            raise Failure(
                UNAVAILABLE,
                "a job in an image can't have a network of its own on this machine: both need "
                "namespaces, and only root can combine them",
                "use an environment without an image, or `torchyard.network: open`",
            )
        scratch = Path(plan.scratch)
        if node == 0:
            self.space = network_space.make()
        else:
            self.space = network_space.join(scratch, plan.join_timeout_s, stopped)
        targets = server_gate.addresses(plan) if node == 0 and plan.limits.network != NONE else []
        is_gated = plan.gate is not None and plan.limits.network != NONE
        anywhere = [(networks.LOOPBACK, 0)] * (2 if is_gated else 1)
        listeners = self.space.listen([*anywhere, *targets])
        self.relay_listener = listeners.pop(0)
        self.client_listener = listeners.pop(0) if is_gated else None
        self._gate = ServerGate(list(zip(listeners, map(server_gate.at, targets))))
        if node == 0 and plan.node_count > 1:
            self.space.share(scratch)
        reachable = "MLflow's address only"
        if plan.limits.network != NONE:
            reachable = "the server and the job's own nodes only"
        self.notice = f"ranks on node {node} can connect to {reachable}"

    def close(self) -> None:
        self._gate.close()
        self.space.close()
