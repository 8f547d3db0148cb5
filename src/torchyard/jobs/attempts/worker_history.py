"""Receive run history from workers.

Owns: which run a worker's record may belong to, history that a killed worker left on its node.
Leaves: the records to history/history.py.
Always: what a relay has acknowledged is stored before the node's folder is removed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.jobs.actions import job_key
from torchyard.jobs.attempts import worker_reports
from torchyard.jobs.files import scratch
from torchyard.jobs.history.history import Received
from torchyard.jobs.records import job_masking, progress, store
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.services import RecordServices, Services
from torchyard.shared.history_spool import HistorySpool
from torchyard.worker.files.node_folders import NodeFolders
from torchyard.worker.relay.relay import spool_folder

_BATCH_RECORDS = 5_000
_BATCH_BYTES = 4 * 1024 * 1024
_MOST_NOTICES = 5


def receive(
    services: RecordServices,
    attempt_id: str,
    node: int,
    seq: int,
    records: Sequence[Any],
    first: int | None = None,
) -> dict[str, Any]:
    """Store what a worker sends; see `History.receive`.

    Returns:
        {"next": number expected next, "rejected": [{"seq", "message"}]}
    """
    attempt, job = worker_reports.get(services, attempt_id)

    def job_id_of(run: str) -> int | None:
        if run == job.name:
            return job.id
        with services.db.read() as connection:
            run_job = store.job_named(connection, attempt.workspace, run)
        return None if run_job is None else run_job.id

    masked_records = job_masking.masked(job, records)
    is_over = attempt.ended_at is not None
    received = services.history.receive(
        job_id_of, attempt_id, node, seq, masked_records, first, is_over
    )
    _tell_resumed(services, job, received)
    services.signals.notify(job_key(job))
    return {"next": received.next, "rejected": received.rejected}


def _tell_resumed(services: RecordServices, job: Job, received: Received) -> None:
    for step, count in received.resumed:
        message = f"it goes on from step {step:,}"
        if count:
            message += (
                f"; {count:,} metric points that were logged after that checkpoint will be logged "
                "again, and were put aside"
            )
        with services.db.write() as connection:
            progress.notice(connection, job, message, services.clock.now())


def take_left(services: Services, attempt: Attempt, node: int) -> None:
    """Store what an exited worker has not delivered; usually there is nothing."""
    spool_path = spool_folder(NodeFolders(Path()).spool)
    folder = scratch.collect(services, attempt.id, node, spool_path.as_posix()) / spool_path
    if not folder.is_dir():
        return
    spool = HistorySpool(folder)
    try:
        refused = _deliver(services, attempt, node, spool)
    finally:
        spool.close()
    messages = list(dict.fromkeys(refused))[:_MOST_NOTICES]
    if len(refused) > len(messages):
        messages.append(f"{len(refused):,} records were refused in all")
    with services.db.write() as connection:
        job = store.job_by_id(connection, attempt.job_id)
        for message in messages:
            progress.notice(connection, job, f"run history: {message}", services.clock.now())


def _deliver(
    services: RecordServices, attempt: Attempt, node: int, spool: HistorySpool
) -> list[str]:
    """Return why records were rejected."""
    refused: list[str] = []
    while spool.left:
        seq, lines = spool.read(_BATCH_RECORDS, _BATCH_BYTES)
        records = [_record(line) for line in lines]
        received = receive(services, attempt.id, node, seq, records, spool.first)
        refused += [str(rejection["message"]) for rejection in received["rejected"]]
        if received["next"] < seq:
            spool.go_back(received["next"])
        else:
            spool.delivered(received["next"])
    return refused


def _record(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None  # torn by a power failure: rejected, like anything that is not a record
