"""How long people's jobs held the nodes of a cluster.

Owns: adding up the tries of jobs by person.
Leaves: the hours of the cluster as a whole to compute/accounts.py.
Always: only the part of a try within the period counts; one that runs counts up to now. Jobs that
were deleted are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from torchyard.base.clock import to_text
from torchyard.base.errors import InvalidInput
from torchyard.compute import actions as computes
from torchyard.jobs.records import store
from torchyard.jobs.services import RecordServices

LONGEST = timedelta(days=400)


@dataclass
class PersonHours:
    """What one person's jobs held; a GPU-hour is one GPU of a node for an hour."""

    owner: str
    job_count: int
    node_hours: float
    gpu_hours: float


def by_person(
    services: RecordServices, workspace: str, compute: str, since: datetime, until: datetime
) -> list[PersonHours]:
    """Most node-hours first.

    Raises:
        NotFound: the cluster does not exist.
        InvalidInput: the period is empty or too long.
    """
    computes.get(services.db, workspace, compute)
    if not since < until <= since + LONGEST:
        raise InvalidInput(
            f"the period from {to_text(since)} to {to_text(until)} can't be added up",
            f"`since` comes before `until`, by {LONGEST.days} days or less",
        )
    now = services.clock.now()
    people: dict[str, PersonHours] = {}
    jobs: dict[str, set[int]] = {}
    with services.db.read() as connection:
        for usage in store.held_between(connection, workspace, compute, since, until):
            end = min(usage.end or now, until, now)
            hours = max((end - max(usage.start, since)).total_seconds(), 0.0) / 3600
            person = people.setdefault(usage.owner, PersonHours(usage.owner, 0, 0.0, 0.0))
            person.node_hours += hours * usage.node_count
            person.gpu_hours += hours * usage.node_count * usage.gpus
            jobs.setdefault(usage.owner, set()).add(usage.job_id)
    for owner, person in people.items():
        person.job_count = len(jobs[owner])
    return sorted(people.values(), key=lambda person: (-person.node_hours, person.owner))
