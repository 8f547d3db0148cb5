"""What lives as long as the server."""

from __future__ import annotations

from dataclasses import dataclass

from torchyard.compute.machine_counts import MachineCounts
from torchyard.executors.ray.head_nodes import Heads
from torchyard.jobs.messages.sender import Sender
from torchyard.jobs.scheduler import Scheduler
from torchyard.jobs.services import Services
from torchyard.servers.sharing import Sharing
from torchyard.workspaces.access import Access
from torchyard.workspaces.jwts import Signer


@dataclass(frozen=True)
class Parts:
    """Everything that lives as long as the server."""

    services: Services
    access: Access
    scheduler: Scheduler
    sender: Sender
    signer: Signer
    heads: Heads
    machine_counts: MachineCounts
    sharing: Sharing | None = None
