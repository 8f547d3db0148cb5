"""Copies of checkpoints that nodes without a common disk keep for each other.

Owns: which node keeps whose copies, delivering for a node that is lost, what users are told.
Leaves: sending to peer_sender.py, keeping to peer_keeper.py, one's own delivery to delivery.py.
Always: a checkpoint is committed without its copies; a node that has delivered by itself is
delivered for by no other; the end of a node waits for its peer within a limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from torchyard.shared.connection import Connection
from torchyard.shared.plan import LaunchPlan
from torchyard.worker.launch.launch_ports import LaunchPorts
from torchyard.worker.node import peer_channel, peer_keeper
from torchyard.worker.node.peer_keeper import PeerKeeper, Space
from torchyard.worker.node.peer_sender import PeerSender, Source
from torchyard.worker.preflight.rendezvous import Rendezvous
from torchyard.worker.server.control import Control

# After its own delivery, a node waits so long for another's, and delivers for it.
LIMIT_S = 120.0


class PeerCopies:
    """Node k's copies are with node k + 1, those of the last one with the first.

    Made and used while the ranks run; `finish` is called once, after this node's own delivery.

    Args:
        folder: of this node, for the copies that it keeps.
        notify: shows a sentence to the user.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        node: int,
        rendezvous: Rendezvous,
        ports: LaunchPorts,
        folder: Path,
        source: Source,
        space: Space,
        notify: Callable[[str], None],
    ) -> None:
        token = f"{plan.attempt_id}\n{plan.report_token}"
        self._folder = folder
        self._node = node
        self._notify = notify
        self._keeper: PeerKeeper | None = None
        self._sender: PeerSender | None = None
        if ports.copies is not None:
            owner = (node - 1) % plan.node_count
            self._keeper = PeerKeeper(ports.copies, token, owner, folder, space)
        peer = (node + 1) % plan.node_count
        port = rendezvous.copies_ports[peer] if rendezvous.copies_ports else 0
        if port:
            address = (rendezvous.hosts[peer], port)
            self._sender = PeerSender(
                source,
                lambda: peer_channel.connect(address, token, node),
                lambda reason: notify(
                    f"checkpoints of node {node} have no copy on node {peer}: {reason}"
                ),
            )

    def start(self) -> None:
        if self._keeper is not None:
            self._keeper.start()
        if self._sender is not None:
            self._sender.start()

    def finish(self, link: Connection, delivered: bool, control: Control) -> None:
        """Let the peer drop its copies if this node has `delivered`; deliver those of a lost node.

        Raises:
            AttemptOver: the attempt is over on the server.
            OSError, Refused: the server does not take them.
        """
        if self._sender is not None:
            self._sender.finish(delivered)
        if self._keeper is None:
            return
        is_needed = self._keeper.is_needed(_limit(control))
        self._keeper.close()
        if not is_needed:
            return
        owner = self._keeper.owner
        if names := peer_keeper.deliver(link, self._folder, _limit(control)):
            self._notify(
                f"node {self._node} delivered the part of {', '.join(names)} that node {owner} "
                "had not delivered"
            )


def _limit(control: Control) -> Callable[[], bool]:
    until = time.monotonic() + LIMIT_S
    return lambda: control.over or time.monotonic() > until
