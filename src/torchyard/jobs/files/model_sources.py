"""Where a model's files come from: a job's outputs, a snapshot that was uploaded, data elsewhere.

Owns: the forms of a model's `path`, and its files on this machine for as long as they are copied.
Leaves: where outputs and data lie to data_sources.py and data/actions.py.
Always: a file of one job or place is never a model's own: it is copied.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchyard.assets.sources import Source
from torchyard.base import files
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound
from torchyard.base.files import OpenFile
from torchyard.data import actions as data
from torchyard.data import uris
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts, job_environments
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices

_ARTIFACTS = ("artifacts", "default")


@contextmanager
def find(services: FileServices, workspace: str, path: str) -> Iterator[Source]:
    """The files that `path` names: one file, or all below a folder.

    Raises:
        InvalidSpec: the path has a form that is not served.
        NotFound: there is nothing there.
    """
    if path.startswith(SNAPSHOT_PREFIX):
        yield _of_snapshot(services.blobs.of(workspace), path.removeprefix(SNAPSHOT_PREFIX))
        return
    job_uri = uris.job_output(path)
    if job_uri is None and not uris.protocol_of(path) and not path.startswith("azureml:"):
        raise InvalidSpec(
            f"`{path}` is not a path of a model",
            "name a local file or folder, "
            "`azureml://jobs/<job>/outputs/artifacts/paths/<path>` or `runs:/<job>/<path>`",
            at=["path"],
        )
    with tempfile.TemporaryDirectory(prefix="model-", dir=_temporary(services.home)) as folder:
        if job_uri is not None:
            yield _of_job(services, workspace, job_uri, Path(folder))
            return
        try:
            yield _of_data(services, workspace, path, Path(folder))
        except (InvalidInput, NotFound) as error:
            error.at = error.at or ("path",)
            raise


def _of_snapshot(blobs: Blobs, snapshot_id: str) -> Source:
    snapshot = blobs.snapshot(snapshot_id)
    model_files = tuple((file.path, blobs.path(file.sha256)) for file in snapshot.files)
    return Source(model_files, single=_is_single(model_files))


def _of_job(services: FileServices, workspace: str, job_uri: uris.JobUri, copies: Path) -> Source:
    job = actions.get(services, workspace, job_uri.job)
    folder = job_uri.path
    model_files: list[tuple[str, Path]] = []
    if job_uri.output in _ARTIFACTS:
        paths = [artifact.path for artifact in artifacts.list_of(services, job)]
        model_files = [
            (path, artifacts.file(services, job, path)) for path in paths if _below(path, folder)
        ]
    else:
        model_files = [
            (artifact.path, _output_file(services, job, job_uri.output, artifact.path, copies))
            for owner, artifact in artifacts.list_outputs(services, job)
            if owner == job_uri.output and _below(artifact.path, folder)
        ]
    if not model_files:
        raise NotFound(
            f"job `{job_uri.job}` has nothing at `{folder or job_uri.output}`",
            f"download its files to see what there is: `yard job download -n {job_uri.job} --all`",
            at=["path"],
        )
    single = len(model_files) == 1 and model_files[0][0] == folder
    return Source(
        tuple((_in_model(path, folder), file) for path, file in model_files),
        job.name,
        single,
        environment=job_environments.reference_or_definition(services.db, job),
    )


def _output_file(services: FileServices, job: Job, output: str, path: str, copies: Path) -> Path:
    """The file, or a copy of one that lies where others may put links."""
    file = artifacts.output_file(services, job, output, path)
    if not isinstance(file, OpenFile):
        return file
    copy = copies / str(sum(1 for _ in copies.iterdir()))
    files.copy(file, copy)
    file.close()
    return copy


def _of_data(services: FileServices, workspace: str, path: str, folder: Path) -> Source:
    location = data.locate(services.db, services.datastores, workspace, path)
    single = location.files.entry(location.path)
    if single is not None:
        name = location.path.rpartition("/")[2] or location.uri.partition("?")[0].rpartition("/")[2]
        sources = [(location.path, name or "model")]
    else:
        top = f"{location.path.rstrip('/')}/" if location.path.strip("/") else ""
        sources = [
            (f"{top}{entry.path}", entry.path) for entry in location.files.walk(location.path)
        ]
    if not sources:
        raise NotFound(f"there is nothing at `{path}`", "check the path", at=["path"])
    model_files = tuple(
        (inside, folder / str(number)) for number, (_, inside) in enumerate(sources)
    )
    location.files.fetch(
        [(source, target) for (source, _), (_, target) in zip(sources, model_files, strict=True)]
    )
    return Source(model_files, single=single is not None)


def _temporary(home: Path) -> Path:
    """On the disk of the datastores, where there is room for a model."""
    folder = home / "tmp"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _is_single(model_files: tuple[tuple[str, Path], ...]) -> bool:
    """A snapshot doesn't say whether a file was named or a folder that holds one."""
    return len(model_files) == 1 and "/" not in model_files[0][0]


def _below(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(folder + "/")


def _in_model(path: str, folder: str) -> str:
    """A file keeps its own name, files of a folder their path below it."""
    if path == folder:
        return path.rpartition("/")[2]
    return path[len(folder) + 1 :] if folder else path
