"""Properties that runs give themselves.

Owns: which of them a job takes.
Leaves: tables to records/store.py.
Always: what a property says already stays; those that torchyard reads are never a run's to set.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from torchyard.jobs.records import job_masking, store
from torchyard.jobs.spec import own_properties


def add(connection: Connection, job_id: int, properties: Mapping[str, str]) -> dict[str, str]:
    """Add what is new; returns why others were refused, by key. `History` calls this."""
    job = store.job_by_id(connection, job_id)
    new = {key: value for key, value in properties.items() if job.properties.get(key) != value}
    refused = {
        key: f"property `{key}` of job `{job.name}` can't be changed"
        for key in new
        if key in job.properties or key.startswith(own_properties.PREFIX)
    }
    added = {key: value for key, value in new.items() if key not in refused}
    if added:
        merged = job_masking.masked(job, {**added, **job.properties})
        store.change_job(connection, job_id, properties=merged)
    return refused
