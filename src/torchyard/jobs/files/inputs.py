"""The inputs of a job, brought to the machine before its nodes are held.

Owns: which inputs need that, whether they are there, bringing them.
Leaves: the copying to data/fetching.py, how a rank sees them to worker/.
Always: literals, uploaded snapshots and direct inputs need nothing.
"""

from __future__ import annotations

import pwd
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.bodies import yaml_documents
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.base.files import Readable
from torchyard.data.fetching import Fetched, Fetcher
from torchyard.jobs.records.types import CommandJob, Job
from torchyard.jobs.services import FileServices, Services
from torchyard.jobs.spec.inputs import Input
from torchyard.shared.plan import InputPlan

# One character more than is read: a longer table is refused.
_LONGEST_TABLE = (256 << 10) + 1
_EVALUATED = ("eval_mount", "eval_download")


def plans(fetcher: Fetcher, job: CommandJob) -> dict[str, InputPlan]:
    """What a worker needs to know of every input; all are ready.

    Raises:
        NotFound: one went away since.
    """
    made = {}
    for name, job_input in job.spec.inputs.items():
        if _is_elsewhere(job_input):
            folder = _ready(fetcher, job, job_input)
            if folder is None:
                raise NotFound(f"the data of input `{name}` is no longer at `{job_input.path}`")
            source = str(folder.path)
            made[name] = InputPlan(job_input.type, mode=_plain(job_input.mode), source=source)
        elif job_input.type != "literal" and not job_input.path.startswith(SNAPSHOT_PREFIX):
            made[name] = InputPlan("literal", value=job_input.path)
        else:
            snapshot = job_input.path.removeprefix(SNAPSHOT_PREFIX)
            made[name] = InputPlan(
                job_input.type, job_input.value, snapshot, _plain(job_input.mode)
            )
    return made


def are_ready(services: FileServices, job: CommandJob) -> bool:
    """Cheap; asked at every look of the scheduler.

    Raises:
        TorchyardError: an input can't be used, and why.
    """
    for name, job_input in job.spec.inputs.items():
        if _is_elsewhere(job_input):
            folder = _ready(services.fetcher, job, job_input)
            if folder is None:
                return False
            _check_table(services.blobs.of(job.workspace), name, job_input, folder)
        else:
            _check_table(services.blobs.of(job.workspace), name, job_input)
    return True


def bring(services: FileServices, job: CommandJob, canceled: Callable[[], bool]) -> None:
    """Copy what is not here.

    Raises:
        TorchyardError: an input can't be read, and why.
        FetchCanceled: `canceled` said so.
    """
    for name, job_input in job.spec.inputs.items():
        if _is_elsewhere(job_input):
            folder = services.fetcher.fetch(
                job.workspace,
                job_input.type,
                job_input.path,
                services.clock.now(),
                canceled,
                job.owner,
            )
            _check_table(services.blobs.of(job.workspace), name, job_input, folder)
        else:
            _check_table(services.blobs.of(job.workspace), name, job_input)


def let_read(services: Services, job: Job, input_plans: Mapping[str, InputPlan]) -> None:
    """Let the Unix account that the job will run as read its copies of inputs, and nobody else.

    Raises:
        RunnerUnreachable, RunnerRefused: the account can't be told.
    """
    sources = [Path(plan.source) for plan in input_plans.values() if plan.source]
    if services.runner is None or not sources:
        return
    account = str(services.runner.call("account", person=job.owner)["account"])
    user = pwd.getpwnam(account).pw_uid
    for file in sources:
        services.fetcher.let_read(file, user)


def source(services: FileServices, job: CommandJob, name: str) -> Fetched:
    """Where an input lies on the server's machine, for nodes that are elsewhere.

    Raises:
        NotFound: the job has no such input, or it needs no source.
    """
    job_input = job.spec.inputs.get(name)
    folder = (
        _ready(services.fetcher, job, job_input)
        if job_input is not None and _is_elsewhere(job_input)
        else None
    )
    if folder is None:
        raise NotFound(f"job `{job.name}` has no files for an input `{name}`")
    return folder


def is_single(source: Fetched) -> bool:
    """Whether an input is one file."""
    return source.files.entry(source.below) is not None


def files_of(source: Fetched) -> list[dict[str, Any]]:
    """path, size_bytes, mode (octal digits) and changed (a number) of every file of an input."""
    return [
        {
            "path": path,
            "size_bytes": found.size_bytes,
            "mode": f"{found.mode & 0o777:o}",
            "changed": found.mtime_ns,
        }
        for path, found in source.files.found(source.below)
    ]


def file(source: Fetched, path: str) -> Readable:
    """
    Raises:
        NotFound: the input has no such file.
        InvalidInput: the path leads out, or through a link.
    """
    clean = files.safe_relative(path)
    try:
        if not is_single(source):
            return source.files.open(f"{source.below}/{clean}".lstrip("/"))
        if path == source.path.name:
            return source.files.open(source.below)
    except NotFound:
        pass
    raise NotFound(f"the input has no file `{path}`")


def _is_elsewhere(job_input: Input) -> bool:
    return (
        job_input.type != "literal"
        and not job_input.path.startswith(SNAPSHOT_PREFIX)
        and job_input.mode != "direct"
    )


def _ready(fetcher: Fetcher, job: Job, job_input: Input) -> Fetched | None:
    return fetcher.ready(job.workspace, job_input.type, job_input.path, job.created_at, job.owner)


def _plain(mode: str) -> str:
    """An evaluated table whose files lie beside it is the folder itself."""
    return {"eval_mount": "ro_mount", "eval_download": "download"}.get(mode, mode)


def _check_table(blobs: Blobs, name: str, job_input: Input, folder: Fetched | None = None) -> None:
    """A table that is to be evaluated must name nothing but files beside it."""
    if job_input.mode not in _EVALUATED:
        return
    try:
        table_file = (
            file(folder, "MLTable") if folder is not None else _in_snapshot(blobs, job_input)
        )
        with files.reading(table_file) as opened:
            content = opened.read(_LONGEST_TABLE).decode("utf-8")
        table = yaml_documents.load(content, "`MLTable`")
        paths = [str(value) for entry in table["paths"] for value in entry.values()]
    except (
        *(OSError, ValueError, InvalidInput, NotFound),
        *(KeyError, TypeError, AttributeError),
    ) as error:
        raise InvalidInput(
            f"input `{name}` has no file `MLTable` with `paths`",
            "add it, or use `type: uri_folder`",
        ) from error
    for path in paths:
        if _leads_out(path):
            raise InvalidInput(
                f"the MLTable of input `{name}` names `{path}`, which lies elsewhere",
                f"use `mode: {_plain(job_input.mode)}` and load the table in your script",
            )


def _in_snapshot(blobs: Blobs, job_input: Input) -> Path:
    snapshot = blobs.snapshot(job_input.path.removeprefix(SNAPSHOT_PREFIX))
    by_path = {file.path: file.sha256 for file in snapshot.files}
    return blobs.path(by_path["MLTable"])


def _leads_out(path: str) -> bool:
    return "://" in path or path.startswith("/") or ".." in path.split("/")


def describe(job: CommandJob) -> str:
    """For the job's timeline: what is waited for."""
    names = [name for name, job_input in job.spec.inputs.items() if _is_elsewhere(job_input)]
    return f"the inputs {', '.join(f'`{name}`' for name in names)} are being fetched"
