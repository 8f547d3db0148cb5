"""Servers, as this package's modules pass them on.

Owns: what a server records of itself, the error of one whose lease another server has ended.
Leaves: its lease to lease.py.
Always: a server that was declared dead stays dead; its process continues as a new server.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torchyard.base.errors import Conflict


@dataclass(frozen=True)
class Server:
    """One process that serves a home. `machine` is what base/machine.py calls it; `seen_at` is
    when it last renewed its lease, by the database's clock.
    """

    id: str
    url: str
    machine: str
    pid: int
    start_time: int
    started_at: datetime
    seen_at: datetime


class LeaseLost(Conflict):
    """Another server may have taken over this one's attempts: leave them alone."""

    code = "lease_lost"
