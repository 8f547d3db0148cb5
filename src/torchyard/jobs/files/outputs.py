"""The named outputs of a job: where each lies, and its files.

Owns: the default place, expressions in paths, writing and reading through the datastore.
Leaves: registering assets to output_assets.py, what the datastore is to data/.
Always: a place depends on nothing but the job; what a worker delivers is recorded with its
sha256, so that a later copy can be checked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torchyard.base import files
from torchyard.base.errors import InvalidSpec, NotFound, TorchyardError
from torchyard.base.files import Readable
from torchyard.data import actions as data
from torchyard.data import datastores, uris
from torchyard.data.datastores import BLOB_STORE, output_of
from torchyard.data.folders import FolderFiles
from torchyard.data.uris import DatastoreUri
from torchyard.jobs.records.types import CommandJob, Job, parse_job
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec.inputs import Output

_EXPRESSION = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")


@dataclass(frozen=True)
class OutputPlace:
    """`path` is a folder, or the file itself when `file` gives its name."""

    store: str
    path: str
    file: str = ""

    @property
    def uri(self) -> str:
        return str(DatastoreUri(self.store, self.path))


def destination_of(workspace: str, job: str, name: str, output: Output) -> OutputPlace:
    """Where an output of that job goes.

    Raises:
        InvalidSpec: its path is not a datastore URI, or has an unknown expression.
    """
    written = output.path
    if not written:
        folder = output_of(job, name)
        return OutputPlace(BLOB_STORE, f"{folder}/")
    values = {"name": job, "output_name": name, "default_datastore": BLOB_STORE}

    def value(match: re.Match[str]) -> str:
        if match.group(1) not in values:
            raise InvalidSpec(
                f"`{match.group(0)}` is not an expression that an output's path can use",
                "use `${{name}}`, `${{output_name}}` or `${{default_datastore}}`",
                at=["outputs", name, "path"],
            )
        return values[match.group(1)]

    text = _EXPRESSION.sub(value, written)
    uri = uris.datastore(text, workspace)
    if uri is None:
        raise InvalidSpec(
            f"`{written}` is not a path for an output",
            "write `azureml://datastores/<datastore>/paths/<path>`, or leave `path` out",
            at=["outputs", name, "path"],
        )
    if output.type == "uri_file" and uri.path and not uri.path.endswith("/"):
        return OutputPlace(uri.store, uri.path, uri.path.rpartition("/")[2])
    return OutputPlace(uri.store, f"{uri.path.rstrip('/')}/".lstrip("/"))


def check(services: FileServices, workspace: str, name: str, output: Output) -> str:
    """Check whether it can be written there, as far as that is known when the job is created; a
    notice about what is there already, or an empty text.

    Raises:
        InvalidSpec: its path is none, or has an unknown expression.
        NotFound: the datastore does not exist.
    """
    target = destination_of(workspace, "job", name, output)
    stores = services.datastores
    datastore = datastores.get(services.db, stores, workspace, target.store)
    datastores.open_files(services.db, stores, datastore)
    is_of_job = not output.path or target != destination_of(workspace, "other", name, output)
    if is_of_job or not may_have_files(services, workspace, target, if_unknown=False):
        return ""
    what = "exists" if target.file else "holds files"
    return (
        f"`{target.uri}` {what} already: the job starts without what is there, and what it writes "
        "replaces what has the same name; `${{name}}` in the path gives each job a place of its own"
    )


def destinations(job: Job) -> dict[str, OutputPlace]:
    """The place of every output of a job."""
    return destinations_of(parse_job(job)) if job.type == "command" else {}


def destinations_of(job: CommandJob) -> dict[str, OutputPlace]:
    return {
        name: destination_of(job.workspace, job.name, name, output)
        for name, output in job.spec.outputs.items()
    }


def list_files(services: FileServices, job: Job) -> Iterator[tuple[str, str, int]]:
    """(output, path below it, size in bytes) for every file of every named output.

    Raises:
        Unreachable: a datastore does not answer.
    """
    for output, output_place in destinations(job).items():
        at = _at(services, job, output_place)
        if output_place.file:
            entry = at.files.entry(output_place.path)
            if entry is not None:
                yield output, output_place.file, entry.size_bytes
            continue
        for entry in at.files.walk(output_place.path):
            yield output, entry.path, entry.size_bytes


def may_have_files(
    services: FileServices, workspace: str, output_place: OutputPlace, *, if_unknown: bool
) -> bool:
    """Whether there is a file at all: another machine, which would list all of them, isn't asked.

    Args:
        if_unknown: the answer for another machine, and where the folder can't be read.
    """
    try:
        at = data.locate(services.db, services.datastores, workspace, output_place.uri)
        if not isinstance(at.files, FolderFiles):
            return if_unknown
        if output_place.file:
            return at.files.entry(output_place.path) is not None
        return next(at.files.walk(output_place.path), None) is not None
    except TorchyardError:
        return if_unknown


def file(services: FileServices, job: Job, output: str, path: str) -> Readable:
    """A file of an output, on this machine's disk.

    Raises:
        NotFound: there is none.
    """
    output_place = _destination_by_name(job, output)
    clean = files.safe_relative(path)
    at = _at(services, job, output_place)
    try:
        if output_place.file:
            if clean != output_place.file:
                raise NotFound(clean)
            return services.fetcher.file(job.workspace, at, "")
        return services.fetcher.file(job.workspace, at, clean)
    except NotFound:
        raise NotFound(f"output `{output}` of job `{job.name}` has no file `{path}`") from None


@contextmanager
def writing(services: FileServices, job: Job, output: str, path: str) -> Iterator[files.Writing]:
    """Open a file of a named output for writing; its sha256 is kept when it is whole.

    Raises:
        NotFound: the job declares no such output.
    """
    output_place = _destination_by_name(job, output)
    clean = files.safe_relative(path)
    at = _at(services, job, output_place)
    target = (
        output_place.path
        if output_place.file == clean
        else f"{output_place.path.rstrip('/')}/{clean}".lstrip("/")
    )
    with at.files.writing(target) as opened:
        yield opened
    data.record_checksum(
        services.db, job.workspace, output_place.store, at.files, target, opened.stored
    )


def _destination_by_name(job: Job, output: str) -> OutputPlace:
    output_place = destinations(job).get(output)
    if output_place is None:
        raise NotFound(f"job `{job.name}` has no output `{output}`")
    return output_place


def _at(services: FileServices, job: Job, output_place: OutputPlace) -> data.DataLocation:
    return data.locate(services.db, services.datastores, job.workspace, output_place.uri)
