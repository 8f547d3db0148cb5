"""Remove the files and rows of deleted jobs.

Owns: a job's artifacts, outputs, logs, scratch folders and rows; how much space they take.
Leaves: which jobs are deleted to deletion.py.
Always: a job is marked, then its files are removed, then its rows; a server that is killed in
between continues at its next start. Blobs stay, because other jobs may use them; so do outputs at
paths that a user chose.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from torchyard.base import files
from torchyard.base.db import Database
from torchyard.base.errors import DatabaseUnreachable, TorchyardError
from torchyard.data import actions as data
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE, artifacts_of, output_of
from torchyard.jobs.cleanup import deletion
from torchyard.jobs.files import scratch
from torchyard.jobs.history import chart_store, history_store, metric_rows, metric_types, rewinds
from torchyard.jobs.records import (
    attempt_store,
    dataset_inputs,
    removal_store,
    run_assets,
    run_requests,
    store,
)
from torchyard.jobs.records.removal_store import Mark
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.services import FileServices, RecordServices, Services
from torchyard.models import logged
from torchyard.shared import locks

_log = logging.getLogger(__name__)
# A client that deletes a job and reads it right afterwards learns that it is gone.
_PATIENCE_S = 5.0


@dataclass(frozen=True)
class Weight:
    """What a job takes: its own files, and the points of its metrics."""

    files: int
    size_bytes: int
    points: int


def weights(services: FileServices, jobs: Sequence[Job]) -> dict[str, Weight]:
    """By name, what deleting each would free."""
    points: dict[int, int] = {}
    ids = [job.id for job in jobs]
    with services.db.read() as connection:
        for start in range(0, len(ids), 500):
            points |= chart_store.point_counts(connection, ids[start : start + 500])
    return {job.name: _weight(services, job, points.get(job.id, 0)) for job in jobs}


def is_due(db: Database) -> bool:
    """Whether a deletion was begun and is not finished."""
    with db.read() as connection:
        return removal_store.any_pending(connection)


def work(
    services: Services, stopped: Callable[[], bool] = lambda: False, *, patience_s: float = 0.0
) -> list[str]:
    """Finish every deletion that was begun; returns the jobs that are gone.

    A job whose worker is still running waits for the next call. Requests and the schedulers of
    several servers may call this at once: the second waits `patience_s` for the first, then
    leaves the work to it.
    """
    until = time.monotonic() + patience_s
    with locks.hold(services.lock("removal"), lambda: time.monotonic() >= until) as is_held:
        if not is_held:
            return []
        with services.db.read() as connection:
            marks = removal_store.pending(connection)
        return _remove_all(services, marks, stopped)


def work_now(services: Services, jobs: Sequence[Job]) -> list[str]:
    """As `work`, for a waiting client; returns which of the jobs are not removed yet."""
    work(services, patience_s=_PATIENCE_S)
    with services.db.read() as connection:
        left = {mark.job_id for mark in removal_store.pending(connection)}
    return [job.name for job in jobs if job.id in left]


def _remove_all(
    services: Services, marks: Sequence[Mark], stopped: Callable[[], bool]
) -> list[str]:
    needed: dict[str, dict[str, str]] = {}
    removed = []
    for mark in marks:
        if stopped():
            break
        if mark.workspace not in needed:
            needed[mark.workspace] = deletion.needs(services, mark.workspace)
        try:
            if _remove(services, mark, mark.name in needed[mark.workspace]):
                removed.append(mark.name)
        except DatabaseUnreachable:
            raise
        except (OSError, TorchyardError) as error:
            _log.warning(
                "job %s can't be deleted completely, will try again later: %s", mark.name, error
            )
    return removed


def _remove(services: FileServices, mark: Mark, needed: bool) -> bool:
    with services.db.read() as connection:
        job = store.job_if_any(connection, mark.job_id)
        tries = [] if job is None else attempt_store.attempts_of(connection, job.id)
    if job is None:
        with services.db.write() as connection:
            removal_store.finish(connection, mark.job_id, services.clock.now())
        return True
    if needed or not job.status.ended:
        _spare(services.db, job)
        return False
    if not all(attempt.clean for attempt in tries):
        return False
    for folder in _folders(services, job, tries):
        # A job whose files can't be removed keeps its rows, so that it is not forgotten.
        if folder.exists() and not files.remove(folder):
            shutil.rmtree(folder)  # says why
    while not _dropped(services, job):
        pass
    return True


def _spare(db: Database, job: Job) -> None:
    """Since it was marked something has come to need it, or a client has taken it up again."""
    with db.write() as connection:
        removal_store.take_back(connection, job.id)
        store.change_job(connection, job.id, deleted=False)


def _dropped(services: RecordServices, job: Job) -> bool:
    """Forget some blocks, or all else when none is left; whether the job is gone.

    In small transactions: a run of a hundred million points has gigabytes of blocks.
    """
    with services.db.write() as connection:
        if history_store.drop_some_blocks(connection, job.id):
            return False
        _drop_rows(connection, job)
        removal_store.finish(connection, job.id, services.clock.now())
        return True


def _drop_rows(connection: Connection, job: Job) -> None:
    history_store.drop(connection, job.id)
    dataset_inputs.drop(connection, job.id)
    metric_rows.drop(connection, job.id)
    metric_types.drop(connection, job.id)
    rewinds.drop(connection, job.id)
    run_requests.drop(connection, job.id)
    run_assets.drop(connection, job.id)
    logged.delete_of_run(connection, job.workspace, job.name)
    for name, prefix in _job_folders(job):
        data.delete_checksums(connection, job.workspace, name, prefix)
    store.drop_job(connection, job.id)


def _weight(services: FileServices, job: Job, points: int) -> Weight:
    tries: Sequence[Attempt] = ()
    if job.attempt:
        with services.db.read() as connection:
            tries = attempt_store.attempts_of(connection, job.id)
    sizes = [size for folder in _folders(services, job, tries) for _, size in files.walk(folder)]
    return Weight(len(sizes), sum(sizes), points)


def _folders(services: FileServices, job: Job, tries: Sequence[Attempt]) -> Iterator[Path]:
    for name, prefix in _job_folders(job):
        yield files.inside(services.datastores.root(job.workspace, name), prefix)
    yield services.logs.folder(job.workspace, job.name)
    for attempt in tries:
        yield scratch.folder(services, attempt.id)


def _job_folders(job: Job) -> tuple[tuple[str, str], ...]:
    """What is the job's alone in the datastores: (datastore, folder)."""
    outputs = output_of(job.name, "").rstrip("/")
    return (ARTIFACT_STORE, artifacts_of(job.name)), (BLOB_STORE, outputs)
