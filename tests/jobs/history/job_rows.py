"""Rows of jobs with chosen ids, for tests of what such jobs log."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import insert, select

from torchyard.base.db import Database
from torchyard.jobs.records.experiment_store import experiments
from torchyard.jobs.records.store import jobs

EXPERIMENT_ID = 1_000_000
_BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def add_jobs(db: Database, ids: Iterable[int]) -> None:
    """Write those rows that are missing, and clear the tags of all of them."""
    with db.write() as connection:
        present = set(connection.scalars(select(experiments.c.id)))
        if EXPERIMENT_ID not in present:
            values = {"workspace": "logs", "name": "logs", "created_at": _BEGAN}
            connection.execute(
                insert(experiments).values(id=EXPERIMENT_ID, tags={}, deleted=False, **values)
            )
        present = set(connection.scalars(select(jobs.c.id)))
        missing = [_row(job_id) for job_id in ids if job_id not in present]
        if missing:
            connection.execute(insert(jobs), missing)
        connection.execute(jobs.update().values(tags={}))


def tags_of(db: Database, job_id: int) -> dict[str, str]:
    with db.read() as connection:
        return dict(connection.scalars(select(jobs.c.tags).where(jobs.c.id == job_id)).one())


def _row(job_id: int) -> dict[str, Any]:
    texts = dict.fromkeys(("display_name", "spec_hash", "environment_hash", "parent"), "")
    return {
        **texts,
        "id": job_id,
        "workspace": "logs",
        "name": f"job-{job_id}",
        "type": "run",
        "experiment_id": EXPERIMENT_ID,
        "status": "Running",
        "owner": "me",
        "spec": {},
        "compute": "",
        "node_count": 1,
        "processes_per_node": 1,
        "created_at": _BEGAN,
        "tags": {},
        "properties": {},
        "attempt": 0,
        "deleted": False,
        "archived": False,
        "description": "",
    }
