"""Measure what ended jobs keep on the server's disk, for quotas.

Owns: what counts: logs, `./outputs` and artifacts, named outputs in the workspace's default
datastore, and the code snapshot, each snapshot once per user.
Leaves: the limit to quota_checks.py, removing files to cleanup/removal.py.
Always: a job is measured once, after its end, and only in a workspace with a limit on storage;
files in other datastores, models, data assets, environments and caches do not count.
"""

from __future__ import annotations

import json

from sqlalchemy import Connection

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE, artifacts_of, output_of
from torchyard.jobs.admission import quota_store
from torchyard.jobs.admission.quota_store import StoredSize
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices
from torchyard.workspaces import quotas

_AT_ONCE = 200


def measure(services: FileServices, workspace: str) -> None:
    """Measure the jobs that have ended since, if a limit on storage is set."""
    with services.db.read() as connection:
        limits = quotas.limits(connection, workspace)
        if not any(limit.name == "storage_bytes" for limit in limits):
            return
        waiting = quota_store.unmeasured(connection, workspace)
    for start in range(0, len(waiting), _AT_ONCE):
        some = waiting[start : start + _AT_ONCE]
        with services.db.read() as connection:
            jobs = [store.job_if_any(connection, job_id) for job_id in some]
        sizes = [_size(services, job) for job in jobs if job is not None]
        with services.db.write() as connection:
            quota_store.keep_sizes(connection, sizes)


def known(connection: Connection, workspace: str, user: str = "") -> int:
    """Bytes of the jobs measured so far; of everyone when `user` is empty."""
    return quota_store.kept_bytes(connection, workspace, user)


def _size(services: FileServices, job: Job) -> StoredSize:
    code = str(job.document.get("code") or "")
    snapshot = code.removeprefix(SNAPSHOT_PREFIX) if code.startswith(SNAPSHOT_PREFIX) else ""
    snapshot_bytes = _snapshot_bytes(services.blobs.of(job.workspace), snapshot) if snapshot else 0
    return StoredSize(job.id, _files_bytes(services, job), snapshot, snapshot_bytes)


def _files_bytes(services: FileServices, job: Job) -> int:
    roots = (
        services.datastores.root(job.workspace, ARTIFACT_STORE) / artifacts_of(job.name),
        services.datastores.root(job.workspace, BLOB_STORE) / output_of(job.name, "").rstrip("/"),
        services.logs.folder(job.workspace, job.name),
    )
    return sum(size for root in roots for _, size in files.walk(root))


def _snapshot_bytes(blobs: Blobs, snapshot: str) -> int:
    # Not by `blobs.snapshot`, which would keep it from being cleared away.
    try:
        manifest = json.loads(blobs.path(snapshot).read_bytes())
        return sum(int(file["size"]) for file in manifest["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
