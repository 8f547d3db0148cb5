"""The noun of this room.

Owns: what a server says of itself, the error of one that is no longer taken for living.
Leaves: its lease to lease.py.
Always: a server that was found dead never lives again; the process goes on as another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from torchyard.base.errors import Conflict


@dataclass(frozen=True)
class Server:
    """One process that serves a home. `machine` is what base/machine.py calls it; `seen_at` is
    when it renewed its lease last, by the database's clock.
    """

    id: str
    url: str
    machine: str
    pid: int
    start_time: int
    started_at: datetime
    seen_at: datetime


class LeaseLost(Conflict):
    """Another server may have taken over what this one looked after: leave it alone."""

    code = "lease_lost"
