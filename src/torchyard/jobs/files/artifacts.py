"""The files of a job: what it wrote to `./outputs`, its logs, its named outputs.

Owns: one listing over artifacts and logs.
Leaves: where files lie to outputs.py, data/datastores.py and records/logs.py.
Always: the newest attempt's logs stand at their plain path (`user_logs/std_log.txt`), earlier
attempts' below `attempt-1/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from torchyard.base import files
from torchyard.base.errors import NotFound, did_you_mean
from torchyard.base.files import Readable
from torchyard.data.datastores import ARTIFACT_STORE, Datastores, artifacts_of
from torchyard.jobs.files import outputs
from torchyard.jobs.records.logs import LogFile, Logs
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices


@dataclass(frozen=True)
class Artifact:
    """One file of a job; `path` as users name it."""

    path: str
    size_bytes: int


def list_of(services: FileServices, job: Job, folder: str = "") -> list[Artifact]:
    """Everything a job left below a folder, sorted; paths are relative to the folder."""
    above = f"{folder}/" if folder else ""
    stored = f"{artifacts_of(job.name)}/{above}".rstrip("/")
    sizes = dict(services.datastores.list(job.workspace, ARTIFACT_STORE, stored))
    for log in services.logs.list(job.workspace, job.name):
        path = displayed_path(job, log)
        if path.startswith(above):
            sizes[path[len(above) :]] = log.size_bytes
    return [Artifact(path, size) for path, size in sorted(sizes.items())]


def logs_of(logs: Logs, job: Job) -> Iterator[tuple[str, Path]]:
    """(path as users name it, file) of every log of every attempt."""
    for log in logs.list(job.workspace, job.name):
        yield (
            displayed_path(job, log),
            logs.file(job.workspace, job.name, log.attempt, log.path),
        )


def file(services: FileServices, job: Job, path: str) -> Path:
    """
    Raises:
        NotFound: with the nearest path there is.
    """
    clean = files.safe_relative(path)
    for log in services.logs.list(job.workspace, job.name):
        if displayed_path(job, log) == clean:
            return services.logs.file(job.workspace, job.name, log.attempt, log.path)
    stored = f"{artifacts_of(job.name)}/{clean}"
    try:
        return services.datastores.file(job.workspace, ARTIFACT_STORE, stored)
    except NotFound:
        existing_paths = [artifact.path for artifact in list_of(services, job)]
        hint = did_you_mean(clean, existing_paths, "only `outputs/` and `logs/` are kept")
        raise NotFound(f"job `{job.name}` has no file `{path}`", hint) from None


def writing(datastores: Datastores, job: Job, path: str) -> AbstractContextManager[files.Writing]:
    """Open an artifact for writing."""
    stored = f"{artifacts_of(job.name)}/{files.safe_relative(path)}"
    return datastores.writing(job.workspace, ARTIFACT_STORE, stored)


def delete(datastores: Datastores, job: Job, path: str) -> None:
    """Delete an artifact, or everything below a folder of them; logs stay."""
    stored = f"{artifacts_of(job.name)}/{files.safe_relative(path)}"
    datastores.delete(job.workspace, ARTIFACT_STORE, stored)


def list_earlier(services: FileServices, job: Job) -> Iterator[tuple[str, Artifact]]:
    """What an attempt finds when it starts: (named output or empty, file below it)."""
    below = f"{artifacts_of(job.name)}/outputs"
    for path, size in services.datastores.list(job.workspace, ARTIFACT_STORE, below):
        yield "", Artifact(path, size)
    for output, path, size in outputs.list_at_start(services, job):
        yield output, Artifact(path, size)


def earlier_file(services: FileServices, job: Job, output: str, path: str) -> Readable:
    """
    Raises:
        NotFound: there is none.
    """
    if output:
        return outputs.file(services, job, output, path, at_start=True)
    stored = f"{artifacts_of(job.name)}/outputs/{files.safe_relative(path)}"
    return services.datastores.file(job.workspace, ARTIFACT_STORE, stored)


def list_outputs(services: FileServices, job: Job) -> Iterator[tuple[str, Artifact]]:
    """(output, file) for every file of every named output."""
    for output, path, size in outputs.list_files(services, job):
        yield output, Artifact(path, size)


def output_file(services: FileServices, job: Job, output: str, path: str) -> Readable:
    """
    Raises:
        NotFound: there is none.
    """
    return outputs.file(services, job, output, path)


def writing_output(
    services: FileServices, job: Job, output: str, path: str
) -> AbstractContextManager[files.Writing]:
    """Open a file of a named output for writing.

    Raises:
        NotFound: the job declares no such output.
    """
    return outputs.writing(services, job, output, path)


def displayed_path(job: Job, log: LogFile) -> str:
    """A log's path as users name it."""
    return log.path if log.attempt == job.attempt else f"attempt-{log.attempt}/{log.path}"
