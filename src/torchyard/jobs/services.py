"""The services that the functions of jobs use, by what they do with them.

A function that needs one service takes that one; one that needs more takes the least of
`RecordServices`, `FileServices` and `Services` that it and what it calls need. So its signature
says whether it can touch files, or start and stop what runs on machines.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from fastapi import Depends

from torchyard.base.blob_folders import BlobFolders
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.dependencies import from_state
from torchyard.base.home.node_folder import NodeFolder
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher
from torchyard.environments.assembly import Environments
from torchyard.executors.engines import Engines
from torchyard.executors.launch_files import LaunchFiles
from torchyard.executors.machine import Machine
from torchyard.executors.runner_client import RunnerClient
from torchyard.executors.server_for_nodes import NodeAddresses, ServerForNodes
from torchyard.jobs.history.history import History
from torchyard.jobs.messages.settings import MessageSettings
from torchyard.jobs.records.client_endpoints import ClientEndpoints
from torchyard.jobs.records.logs import Logs
from torchyard.jobs.records.types import Job, JobError
from torchyard.jobs.records.wakeups import Signals
from torchyard.servers.lease import Membership, SingleServer
from torchyard.tunnels.registry import Tunnels
from torchyard.workspaces.types import Identity


class JobType(Protocol):
    """A type of job beside `command`, which a package above this one serves.

    Its jobs hold no nodes; what they start are command jobs whose parents they are.
    """

    def check(
        self, services: Services, workspace: str, document: Mapping[str, Any], uploaded: bool
    ) -> tuple[str, ...]:
        """Check a job file; return notices. Raises InvalidSpec."""
        ...

    def create(
        self,
        services: Services,
        workspace: str,
        document: Mapping[str, Any],
        identity: Identity,
    ) -> tuple[Job, bool]:
        """Store a job; return it, and whether it is new."""
        ...

    def cancel(self, services: Services, job: Job, why: JobError | None, kill: bool) -> Job:
        """Begin to end a job and all below it; see actions.cancel."""
        ...

    def needs(self, services: RecordServices, workspace: str) -> dict[str, str]:
        """By name of a job: which other one, in words, needs what it made."""
        ...


@dataclass(frozen=True)
class RecordServices:
    """What functions use that read and write rows, and nothing else.

    `signals` tells those who follow a job that its rows have changed.
    """

    db: Database
    clock: Clock
    signals: Signals
    history: History


@dataclass(frozen=True)
class FileServices(RecordServices):
    """What functions use that read and write files too.

    `node` is what jobs reach of this machine, the home itself where they run as the server's user.
    """

    home: Path
    node: NodeFolder
    blobs: BlobFolders
    datastores: Datastores
    environments: Environments
    logs: Logs

    def lock(self, name: str) -> Path:
        """The file to lock for work that only one of all servers does at a time."""
        folder = self.home / "locks"
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder / name

    @property
    def fetcher(self) -> Fetcher:
        """The cache of data on this machine."""
        return Fetcher(self.node.data, self.db, self.datastores, self.node.is_separate)


@dataclass(frozen=True)
class Services(FileServices):
    """All that the functions of this package use, with what starts and stops jobs.

    `wakeup` wakes the scheduler; `membership` tells servers that share the home apart. `machine`
    limits what the clusters share (see admission/machine.py); `devices` are its GPUs. `runner`
    starts jobs as other users, and is None where they run as the server's. `engines` run nodes here
    and elsewhere; those elsewhere reach this server as `for_nodes` says, which has the home's id.
    `tunnels` lead into the nodes. `messages` says how recipients are told that a job has ended.
    `job_types`, by `Job.type`, serve jobs that are not commands.
    """

    wakeup: threading.Event
    machine: Mapping[str, int] = field(default_factory=dict)
    runner: RunnerClient | None = None
    devices: Machine = field(default_factory=lambda: Machine({}))
    engines: Engines = field(default_factory=Engines)
    for_nodes: ServerForNodes = field(default_factory=lambda: ServerForNodes("", NodeAddresses))
    membership: Membership = field(default_factory=SingleServer)
    client_endpoints: ClientEndpoints = field(default_factory=ClientEndpoints)
    tunnels: Tunnels = field(default_factory=Tunnels)
    messages: MessageSettings = field(default_factory=MessageSettings)
    job_types: dict[str, JobType] = field(default_factory=dict)

    @property
    def launches(self) -> LaunchFiles:
        """The plans of attempts on other machines."""
        return LaunchFiles(self.home)


ServicesOf = Annotated[Services, Depends(from_state("services"))]
"""The services, as a dependency of a route."""
