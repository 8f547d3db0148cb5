"""The services that the functions of jobs use."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from fastapi import Depends

from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.dependencies import from_state
from torchyard.base.home.node_folder import NodeFolder
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher
from torchyard.environments.services import Environments
from torchyard.executors.machine import Machine
from torchyard.executors.runner_client import RunnerClient
from torchyard.jobs.history.history import History
from torchyard.jobs.records.client_endpoints import ClientEndpoints
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.signals import Signals
from torchyard.servers.lease import Membership, SingleServer


@dataclass(frozen=True)
class Services:
    """What the functions of this package use.

    `node` is what jobs reach of this machine, the home itself where they run as the server's user.
    `runner` starts jobs as other users, and is None where they run as the server's.
    `wakeup` wakes the scheduler; `server_id` is the home's, shared by all of its servers, and
    `membership` tells them apart. `machine` limits what the clusters share (see
    admission/machine.py); `devices` are its GPUs.
    """

    home: Path
    node: NodeFolder
    db: Database
    clock: Clock
    blobs: Blobs
    datastores: Datastores
    environments: Environments
    history: History
    logs: Logs
    signals: Signals
    wakeup: threading.Event
    server_id: str = ""
    machine: Mapping[str, int] = field(default_factory=dict)
    runner: RunnerClient | None = None
    devices: Machine = field(default_factory=lambda: Machine({}))
    membership: Membership = field(default_factory=SingleServer)
    client_endpoints: ClientEndpoints = field(default_factory=ClientEndpoints)

    def lock(self, name: str) -> Path:
        """The file to lock for work that only one of all servers does at a time."""
        folder = self.home / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / name

    @property
    def fetcher(self) -> Fetcher:
        """The cache of data on this machine."""
        return Fetcher(self.node.data, self.db, self.datastores, self.node.is_separate)


ServicesOf = Annotated[Services, Depends(from_state("services"))]
"""The services, as a dependency of a route."""
