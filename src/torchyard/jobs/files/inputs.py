"""The inputs of a job, brought to the machine before its nodes are held.

Owns: which inputs need that, whether they are there, bringing them.
Leaves: the copying to data/fetching.py, how a rank sees them to worker/.
Always: literals, uploaded snapshots and direct inputs need nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services
from torchyard.jobs.spec.inputs import Input
from torchyard.shared.plan import InputPlan

_EVALUATED = ("eval_mount", "eval_download")


def plans(services: Services, job: Job) -> dict[str, InputPlan]:
    """What a worker needs to know of every input; all are ready.

    Raises:
        NotFound: one went away since.
    """
    made = {}
    for name, given in job.spec.inputs.items():
        if _is_elsewhere(given):
            found = _ready(services, job, given)
            if found is None:
                raise NotFound(f"what input `{name}` names is not at `{given.path}` any more")
            made[name] = InputPlan(given.type, mode=_plain(given.mode), source=str(found))
        elif given.type != "literal" and not given.path.startswith(SNAPSHOT_PREFIX):
            made[name] = InputPlan("literal", value=given.path)
        else:
            snapshot = given.path.removeprefix(SNAPSHOT_PREFIX)
            made[name] = InputPlan(given.type, given.value, snapshot, _plain(given.mode))
    return made


def are_ready(services: Services, job: Job) -> bool:
    """Cheap; asked at every look of the scheduler.

    Raises:
        TorchyardError: an input can't be used, and why.
    """
    for name, given in job.spec.inputs.items():
        if _is_elsewhere(given):
            found = _ready(services, job, given)
            if found is None:
                return False
            _check_table(services, name, given, found)
        else:
            _check_table(services, name, given)
    return True


def bring(services: Services, job: Job, cancelled: Callable[[], bool]) -> None:
    """Copy what is not here.

    Raises:
        TorchyardError: an input can't be read, and why.
        FetchCanceled: `cancelled` said so.
    """
    for name, given in job.spec.inputs.items():
        if _is_elsewhere(given):
            found = services.fetcher.fetch(
                job.workspace, given.type, given.path, services.clock.now(), cancelled
            )
            _check_table(services, name, given, found)
        else:
            _check_table(services, name, given)


def source(services: Services, job: Job, name: str) -> Path:
    """Where an input lies on the server's machine, for nodes that are elsewhere.

    Raises:
        NotFound: the job has no such input, or it needs no source.
    """
    given = job.spec.inputs.get(name)
    found = _ready(services, job, given) if given is not None and _is_elsewhere(given) else None
    if found is None:
        raise NotFound(f"job `{job.name}` has no files for an input `{name}`")
    return found


def files_of(source: Path) -> list[dict[str, Any]]:
    """path, size_bytes and mode (octal digits) of every file of an input."""
    paths = [source.name] if source.is_file() else [path for path, _ in files.walk(source)]
    told = []
    for path in paths:
        known = file(source, path).stat()
        told.append(
            {"path": path, "size_bytes": known.st_size, "mode": f"{known.st_mode & 0o777:o}"}
        )
    return told


def file(source: Path, path: str) -> Path:
    """
    Raises:
        NotFound: the input has no such file.
        InvalidInput: the path leads out.
    """
    found = source if source.is_file() else files.inside(source, path)
    if not found.is_file() or (found == source and path != source.name):
        raise NotFound(f"the input has no file `{path}`")
    return found


def _is_elsewhere(given: Input) -> bool:
    return (
        given.type != "literal"
        and not given.path.startswith(SNAPSHOT_PREFIX)
        and given.mode != "direct"
    )


def _ready(services: Services, job: Job, given: Input) -> Path | None:
    return services.fetcher.ready(job.workspace, given.type, given.path, job.created_at)


def _plain(mode: str) -> str:
    """An evaluated table whose files lie beside it is the folder itself."""
    return {"eval_mount": "ro_mount", "eval_download": "download"}.get(mode, mode)


def _check_table(services: Services, name: str, given: Input, found: Path | None = None) -> None:
    """A table that is to be evaluated must name nothing but files beside it."""
    if given.mode not in _EVALUATED:
        return
    try:
        file = found / "MLTable" if found is not None else _in_snapshot(services, given)
        table = yaml.safe_load(file.read_text())
        paths = [str(value) for entry in table["paths"] for value in entry.values()]
    except (
        *(OSError, ValueError, yaml.YAMLError, RecursionError),
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
                f"use `mode: {_plain(given.mode)}` and load the table in your script",
            )


def _in_snapshot(services: Services, given: Input) -> Path:
    snapshot = services.blobs.snapshot(given.path.removeprefix(SNAPSHOT_PREFIX))
    by_path = {file.path: file.sha256 for file in snapshot.files}
    return services.blobs.path(by_path["MLTable"])


def _leads_out(path: str) -> bool:
    return "://" in path or path.startswith("/") or ".." in path.split("/")


def describe(job: Job) -> str:
    """For the job's timeline: what is waited for."""
    names = [name for name, given in job.spec.inputs.items() if _is_elsewhere(given)]
    return f"the inputs {', '.join(f'`{name}`' for name in names)} are fetched"
