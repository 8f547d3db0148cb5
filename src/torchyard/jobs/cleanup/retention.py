"""Delete jobs whose retention period is over.

Owns: what a workspace's retention setting means.
Leaves: what must stay to deletion.py, removing files and rows to removal.py.
Always: a job that a model or data asset was registered from stays; without the setting nothing is
deleted.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from torchyard.base.db import Database
from torchyard.jobs.cleanup import deletion
from torchyard.jobs.cleanup.deletion import Choice
from torchyard.jobs.services import Services
from torchyard.workspaces import actions as workspaces

_log = logging.getLogger(__name__)
ASKED_BY = "retention"


def is_set(db: Database) -> bool:
    """Whether any workspace has a retention period."""
    return any(workspace.retention_days for workspace in workspaces.list_all(db))


def delete_expired(services: Services) -> int:
    """Mark the jobs past their retention period, in every workspace; returns how many."""
    marked = 0
    for workspace in workspaces.list_all(services.db):
        if not workspace.retention_days:
            continue
        choice = Choice(
            ended_before=services.clock.now() - timedelta(days=workspace.retention_days)
        )
        deletion_plan = deletion.delete(services, workspace.name, choice, ASKED_BY, lineage=True)
        if deletion_plan.jobs:
            _log.warning(
                "workspace %s keeps jobs for %d days: deleting %d",
                workspace.name,
                workspace.retention_days,
                len(deletion_plan.jobs),
            )
        marked += len(deletion_plan.jobs)
    return marked
