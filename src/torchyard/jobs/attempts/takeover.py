"""Take over the attempts of a server that is gone.

Owns: which attempts this server takes over from another.
Leaves: which servers are alive to servers/lease.py; watching attempts to monitoring.py.
Always: an attempt moves from one owner to the next by one conditional update; the only server of
a home owns everything already.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from torchyard.base import machine
from torchyard.executors.executor import Handle
from torchyard.jobs.records import attempt_store
from torchyard.jobs.records.types import Attempt
from torchyard.jobs.services import Services
from torchyard.servers.lease import Membership
from torchyard.servers.types import Server

_log = logging.getLogger(__name__)


def take_over(services: Services) -> int:
    """Take over attempts without an owner, or that only this server sees; return how many."""
    membership = services.membership
    if not membership.id:
        return 0
    with services.db.read() as connection:
        living = {server.id: server for server in membership.living(connection)}
        me = living.get(membership.id)
        left = attempt_store.unfinished_beside(connection, membership.id)
    attempts = [attempt for attempt in left if me and _is_wanted(attempt, me, living)]
    if not attempts:
        return 0
    taken = 0
    with services.db.write() as connection:
        membership.check(connection)
        for attempt in attempts:
            taken += attempt_store.hand_over(connection, attempt, membership.id)
    _log.warning("took over %d attempts", taken)
    return taken


def owned(membership: Membership, attempts: list[Attempt]) -> list[Attempt]:
    """The attempts that this server owns."""
    return [attempt for attempt in attempts if membership.owns(attempt.server)]


def _is_wanted(attempt: Attempt, me: Server, living: Mapping[str, Server]) -> bool:
    there = "" if attempt.handle is None else Handle.from_json(attempt.handle).machine
    owner = living.get(attempt.server or "")
    if machine.is_seen(there, me.machine):
        # A server that cannot see its processes has only its heartbeats to go by.
        return owner is None or not machine.is_seen(there, owner.machine)
    return owner is None and not any(
        machine.is_seen(there, server.machine) for server in living.values()
    )
