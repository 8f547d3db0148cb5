"""The folder that an attempt's nodes work in.

Owns: where it is, and that nothing of it stays.
Leaves: what is in it to the workers.
Always: a worker's own words are kept with the job's logs before the folder goes.
"""

from __future__ import annotations

import logging
from pathlib import Path

from torchyard.base import files
from torchyard.jobs.records import attempt_store, job_masking, store
from torchyard.jobs.records.types import Attempt
from torchyard.jobs.services import Services

_MOST_BYTES = 1 << 20
_log = logging.getLogger(__name__)


def folder(services: Services, attempt_id: str) -> Path:
    return services.node.scratch / attempt_id


def node_folder(services: Services, attempt_id: str, node: int) -> Path:
    return folder(services, attempt_id) / f"node-{node}"


def forget(services: Services, attempt_id: str) -> None:
    """The folder of an attempt that never ran."""
    files.remove(folder(services, attempt_id))


def clear(services: Services, attempt: Attempt) -> None:
    """Keep the workers' logs, remove everything else. Nobody works there any more."""
    scratch = folder(services, attempt.id)
    with services.db.read() as connection:
        masker = job_masking.masker(store.job_by_id(connection, attempt.job_id))
    for log in sorted(scratch.glob("node-*/worker.log")):
        output = masker.mask(log.read_bytes())[-_MOST_BYTES:]
        if output:
            services.logs.append(
                attempt.workspace,
                attempt.job_name,
                attempt.number,
                f"system_logs/{log.parent.name}.log",
                0,
                output,
            )
    if not files.remove(scratch):
        _log.warning("`%s` can't be removed completely", scratch)
    with services.db.write() as connection:
        attempt_store.change_attempt(connection, attempt.id, clean=True)
