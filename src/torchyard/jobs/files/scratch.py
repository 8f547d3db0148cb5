"""The folder that an attempt's nodes work in.

Owns: where it is, and that nothing of it stays.
Leaves: what is in it to the workers.
Always: a worker's own words are kept with the job's logs before the folder goes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import files
from torchyard.base.db import Database
from torchyard.executors.runner_client import RunnerClient
from torchyard.jobs.records import attempt_store, job_masking, store
from torchyard.jobs.records.types import Attempt
from torchyard.jobs.services import FileServices, Services

_MOST_BYTES = 1 << 20
# Of files that a job's user could have made as large as the disk.
_MOST_COLLECTED_BYTES = 1 << 30
_LOG = "worker.log"
_log = logging.getLogger(__name__)


def folder(services: FileServices, attempt_id: str) -> Path:
    return services.node.scratch / attempt_id


def node_folder(services: FileServices, attempt_id: str, node: int) -> Path:
    return folder(services, attempt_id) / f"node-{node}"


def collect(services: Services, attempt_id: str, node: int, folder: str) -> Path:
    """The node's folder as the server reads it: the folder itself, or a copy of what is wanted,
    where the job is another user's.

    Args:
        folder: the file, or the folder whose files are wanted.

    Raises:
        RunnerUnreachable: the next round tries again.
    """
    if services.runner is None:
        return node_folder(services, attempt_id, node)
    target = services.home / "scratch" / attempt_id / f"node-{node}"
    ask, left_bytes = services.runner.ask, _MOST_COLLECTED_BYTES
    for entry in ask("left_files", attempt=attempt_id, node=node)[0]["files"]:
        path = str(entry["path"])
        if path != folder and not path.startswith(f"{folder}/"):
            continue
        _, [descriptor] = ask("open_left", attempt=attempt_id, node=node, path=path)
        copied = files.inside(target, files.safe_relative(path))
        with open(descriptor, "rb") as source, files.write_atomically(copied, mode=0o600) as copy:
            for chunk in files.chunks(source, left_bytes):
                copy.write(chunk)
        left_bytes -= copy.size_bytes
    return target


@dataclass(frozen=True)
class ScratchFolder:
    """The folder of an attempt that this machine has."""

    name: str
    used_at_s: float


def folders(services: Services) -> list[ScratchFolder]:
    """Every folder, whether its attempt is known or not."""
    if services.runner is not None:
        listed = services.runner.call("attempts")["attempts"]
        return [ScratchFolder(str(item["name"]), float(item["mtime_s"])) for item in listed]
    top, scratch_folders = services.node.scratch, []
    for folder in sorted(top.iterdir()) if top.exists() else ():
        with suppress(FileNotFoundError):  # cleaned up since it was listed
            scratch_folders.append(ScratchFolder(folder.name, folder.stat().st_mtime))
    return scratch_folders


def size_bytes(runner: RunnerClient, attempt_id: str) -> int:
    """What an attempt's folder takes that the server can't enter."""
    return int(runner.call("size", attempt=attempt_id)["size_bytes"])


def remove(services: Services, attempt_id: str) -> bool:
    """Remove the attempt's folder; False if something of it stays."""
    if services.runner is None:
        return files.remove(folder(services, attempt_id))
    removed = bool(services.runner.call("remove", attempt=attempt_id)["removed"])
    return files.remove(services.home / "scratch" / attempt_id) and removed


def forget(services: Services, attempt_id: str) -> None:
    """The folder of an attempt that never ran."""
    remove(services, attempt_id)


def clear(services: Services, attempt: Attempt) -> None:
    """Keep the workers' logs, remove everything else. Nobody works there any more.

    Call `record_clear` afterwards.
    """
    nodes = range(attempt.node_count)
    logs = [collect(services, attempt.id, node, _LOG) / _LOG for node in nodes]
    written = [log for log in logs if log.exists()]
    if written:
        with services.db.read() as connection:
            masker = job_masking.masker(store.job_by_id(connection, attempt.job_id))
    for log in written:
        output = masker.mask(_end_of(log))[-_MOST_BYTES:]
        if output:
            services.logs.append(
                attempt.workspace,
                attempt.job_name,
                attempt.number,
                f"system_logs/{log.parent.name}.log",
                0,
                output,
            )
    if not remove(services, attempt.id):
        _log.warning("`%s` can't be removed completely", folder(services, attempt.id))


def record_clear(db: Database, attempts: Sequence[Attempt]) -> bool:
    """Write down that the folders of these attempts are gone; whether a job waited for that."""
    with db.write() as connection:
        for attempt in attempts:
            attempt_store.change_attempt(connection, attempt.id, clean=True)
        jobs = store.jobs_by_id(connection, [attempt.job_id for attempt in attempts])
    return not all(job.status.ended for job in jobs.values())


def _end_of(log: Path) -> bytes:
    with open(log, "rb") as file:
        # Twice as much as is kept, for masking finds no secret that is cut in two.
        file.seek(max(0, os.fstat(file.fileno()).st_size - 2 * _MOST_BYTES))
        return file.read()
