"""What the actions of this room use, in one hand."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from torchyard.base.blobs import Blobs
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.data.datastores import Datastores
from torchyard.data.fetching import Fetcher
from torchyard.environments.actions import Environments
from torchyard.jobs.history import History
from torchyard.jobs.logs import Logs
from torchyard.jobs.signals import Signals


@dataclass(frozen=True)
class Room:
    """`bell` is rung when there may be something for the scheduler to do; `server_id` stays as
    long as the home does.
    """

    home: Path
    db: Database
    clock: Clock
    blobs: Blobs
    datastores: Datastores
    environments: Environments
    history: History
    logs: Logs
    signals: Signals
    bell: threading.Event
    server_id: str = ""

    @property
    def fetcher(self) -> Fetcher:
        """What keeps this machine's copies of data."""
        return Fetcher(self.home, self.db, self.datastores)
