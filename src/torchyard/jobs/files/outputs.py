"""The named outputs of a job: where each lies, and its files.

Owns: the default place, expressions in paths, writing and reading through the datastore.
Leaves: registering assets to output_assets.py, what the datastore is to data/.
Always: a place depends on nothing but the job; what a worker delivers is recorded with its
sha256, so that a later copy can be checked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from torchyard.base import files
from torchyard.base.errors import InvalidSpec, NotFound, TorchyardError
from torchyard.base.files import Readable
from torchyard.data import actions as data
from torchyard.data import datastores, uris
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE, artifacts_of, output_of
from torchyard.data.folders import FolderFiles
from torchyard.data.uris import DatastoreUri
from torchyard.jobs import actions
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.types import CommandJob, Job, parse_job
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.jobs.spec.inputs import RW_MOUNT, Output

MADE_BY = "torchyard.outputs_made_by"
"""The property of a job without ranks that says which output of which job each of its own is."""
# What a job finds in an output in `rw_mount` is copied to its node.
_MOST_FILES = 10_000
_MOST_BYTES = 10 << 30
_ARTIFACTS, _OUTPUTS = artifacts_of(""), output_of("", "").rstrip("/") + "/"
_EXPRESSION = re.compile(r"\$\{\{\s*([\w.]+)\s*\}\}")


@dataclass(frozen=True)
class OutputPlace:
    """`path` is a folder, or the file itself when `file` gives its name; `inside` is the name of a
    `uri_file` in that folder. Where it `is_shared`, each job that declares this output writes
    there.
    """

    store: str
    path: str
    file: str = ""
    is_shared: bool = False
    inside: str = ""

    @property
    def uri(self) -> str:
        return str(DatastoreUri(self.store, self.path))

    @property
    def data_uri(self) -> str:
        """Of the file where the output is one."""
        return str(DatastoreUri(self.store, f"{self.path}{self.inside}"))


def destination_of(workspace: str, job: str, name: str, output: Output) -> OutputPlace:
    """Where an output of that job goes.

    Raises:
        InvalidSpec: its path is not a datastore URI, or has an unknown expression.
    """
    written = output.path
    inside = name if output.type == "uri_file" else ""
    if not written:
        folder = output_of(job, name)
        return OutputPlace(BLOB_STORE, f"{folder}/", inside=inside)
    values = {"name": job, "output_name": name, "default_datastore": BLOB_STORE}

    def value(match: re.Match[str]) -> str:
        if match.group(1) not in values:
            raise InvalidSpec(
                f"`{match.group(0)}` is not an expression that an output's path can use",
                "use `${{name}}`, `${{output_name}}` or `${{default_datastore}}`",
                at=["outputs", name, "path"],
            )
        return values[match.group(1)]

    is_shared = all(match.group(1) != "name" for match in _EXPRESSION.finditer(written))
    text = _EXPRESSION.sub(value, written)
    uri = uris.datastore(text, workspace)
    if uri is None:
        raise InvalidSpec(
            f"`{written}` is not a path for an output",
            "write `azureml://datastores/<datastore>/paths/<path>`, or leave `path` out",
            at=["outputs", name, "path"],
        )
    if inside and uri.path and not uri.path.endswith("/"):
        return OutputPlace(uri.store, uri.path, uri.path.rpartition("/")[2], is_shared)
    folder = f"{uri.path.rstrip('/')}/".lstrip("/")
    return OutputPlace(uri.store, folder, is_shared=is_shared, inside=inside)


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
    if output.mode == "direct" or not target.is_shared:
        return ""
    if not may_have_files(services, workspace, target, if_unknown=False):
        return ""
    what = "exists" if target.file else "holds files"
    start = "finds" if output.mode == RW_MOUNT else "starts without"
    return (
        f"`{target.uri}` {what} already: the job {start} what is there, and what it writes "
        "replaces what has the same name; `${{name}}` in the path gives each job a place of its own"
    )


def destinations(job: Job) -> dict[str, OutputPlace]:
    """The place of every output of a job."""
    return destinations_of(parse_job(job)) if job.has_ranks else {}


def destinations_of(job: CommandJob) -> dict[str, OutputPlace]:
    return {
        name: destination_of(job.workspace, job.name, name, output)
        for name, output in job.spec.outputs.items()
    }


def owner_of(uri: DatastoreUri) -> tuple[str, str]:
    """The job in whose folders a place lies, and the output; both empty for any other place."""
    if uri.store == ARTIFACT_STORE and uri.path.startswith(_ARTIFACTS):
        return uri.path.removeprefix(_ARTIFACTS).partition("/")[0], "artifacts"
    if uri.store == BLOB_STORE and uri.path.startswith(_OUTPUTS):
        job, _, rest = uri.path.removeprefix(_OUTPUTS).partition("/")
        return job, rest.partition("/")[0]
    return "", ""


def made_by(made: Mapping[str, tuple[str, str]]) -> str:
    """The value of `MADE_BY`."""
    return json.dumps(made)


def maker(services: RecordServices, job: Job, output: str) -> tuple[Job, str]:
    """The job that makes an output, and what it is called there: for most jobs they themselves.

    Raises:
        NotFound: that job was deleted.
    """
    made = _made(job).get(output)
    if made is None:
        return job, output
    return actions.get(services, job.workspace, made[0]), made[1]


def makers(services: RecordServices, job: Job) -> dict[str, tuple[Job, str]]:
    """As `maker`, for every output of a job without ranks; none for those that were deleted."""
    found = {}
    for name in _made(job):
        with suppress(NotFound):
            found[name] = maker(services, job, name)
    return found


def _made(job: Job) -> dict[str, tuple[str, str]]:
    if job.has_ranks:
        return {}
    made: dict[str, tuple[str, str]] = json.loads(job.properties.get(MADE_BY) or "{}")
    return made


def list_files(services: FileServices, job: Job) -> Iterator[tuple[str, str, int]]:
    """(output, path below it, size in bytes) for every file of every named output, but for what
    another job has written to the same place since this one started.

    Raises:
        Unreachable: a datastore does not answer.
    """
    for name, (child, output) in makers(services, job).items():
        for found, path, size_bytes in list_files(services, child):
            if found == output:
                yield name, path, size_bytes
    for output, output_place in destinations(job).items():
        at = _at(services, job, output_place)
        replaced = _replaced(services, job, output_place, at)
        for path, size_bytes in _files_at(at, output_place):
            if _below(output_place, path) not in replaced:
                yield output, path, size_bytes


def list_at_start(services: FileServices, job: Job) -> Iterator[tuple[str, str, int]]:
    """As `list_files`, of what the job's next attempt finds: what the one before it delivered, and
    in `rw_mount` what others put there, unless that is too much: then the job gets a notice.

    Raises:
        Unreachable: a datastore does not answer.
    """
    if not job.has_ranks:
        return
    command_job = parse_job(job)
    for name, output_place in destinations_of(command_job).items():
        mode = command_job.spec.outputs[name].mode
        if mode == "direct":
            continue
        at = _at(services, job, output_place)
        listed = _files_at(at, output_place)
        if output_place.is_shared:
            is_mounted = mode == RW_MOUNT
            listed = _of_shared(services, job, name, output_place, at, listed, is_mounted)
        for path, size_bytes in listed:
            yield name, path, size_bytes


def _of_shared(
    services: FileServices,
    job: Job,
    output: str,
    output_place: OutputPlace,
    at: data.DataLocation,
    listed: Iterator[tuple[str, int]],
    is_mounted: bool,
) -> Iterator[tuple[str, int]]:
    checksums = data.checksums_of(services.db, job.workspace, at)
    own = {path for path, checksum in checksums.items() if checksum.job == job.name}
    of_others, size_bytes = [], 0
    for path, size in listed:
        if _below(output_place, path) in own:
            yield path, size
        elif is_mounted:
            of_others.append((path, size))
            size_bytes += size
            if len(of_others) > _MOST_FILES or size_bytes > _MOST_BYTES:
                message = (
                    f"output `{output}` starts without the files of `{output_place.uri}`: they are "
                    f"more than {_MOST_FILES:,} or {_MOST_BYTES >> 30} GiB; declare those that the "
                    "job reads as an input"
                )
                tell(services, job, message)
                if not own:
                    return  # the place may hold millions
                is_mounted, of_others = False, []
    yield from of_others


def _files_at(at: data.DataLocation, output_place: OutputPlace) -> Iterator[tuple[str, int]]:
    if output_place.file:
        entry = at.files.entry(output_place.path)
        if entry is not None:
            yield output_place.file, entry.size_bytes
        return
    for entry in at.files.walk(output_place.path):
        yield entry.path, entry.size_bytes


def _below(output_place: OutputPlace, path: str) -> str:
    """The path below the place itself, which may be the file."""
    return "" if output_place.file else path


def _replaced(
    services: FileServices, job: Job, output_place: OutputPlace, at: data.DataLocation
) -> dict[str, str]:
    """The job that has written a file there since this one started, by path below the place."""
    if not output_place.is_shared:
        return {}
    return {
        path: checksum.job
        for path, checksum in data.checksums_of(services.db, job.workspace, at).items()
        if checksum.job not in ("", job.name)
        and checksum.written_at is not None
        and (job.started_at is None or checksum.written_at > job.started_at)
    }


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


def file(
    services: FileServices, job: Job, output: str, path: str, *, at_start: bool = False
) -> Readable:
    """A file of an output, on this machine's disk.

    Args:
        at_start: as an attempt finds it, see `list_at_start`.

    Raises:
        NotFound: there is none.
    """
    job, output = maker(services, job, output)
    output_place = _destination_by_name(job, output)
    clean = files.safe_relative(path)
    at = _at(services, job, output_place)
    file_path = output_place.path if output_place.file else f"{output_place.path}{clean}"
    of_file = replace(at, path=file_path)
    by = "" if at_start else _replaced(services, job, output_place, of_file).get("", "")
    if by:
        raise NotFound(
            f"file `{path}` of output `{output}` was replaced by job `{by}`",
            "`${{name}}` in the output's path gives each job a place of its own",
        )
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
    replaced = data.record_checksum(
        services.db,
        job.workspace,
        output_place.store,
        at.files,
        target,
        opened.stored,
        job.name,
        services.clock.now(),
    )
    if replaced not in ("", job.name):
        _tell_replaced(services, job, replaced, output_place)


def _tell_replaced(services: FileServices, job: Job, of: str, output_place: OutputPlace) -> None:
    with services.db.read() as connection:
        other = store.job_named(connection, job.workspace, of)
    if other is not None:
        text = f"job `{job.name}` has replaced files of this job at `{output_place.uri}`"
        tell(services, other, f"{text}: this job no longer shows them")


def tell(services: RecordServices, job: Job, message: str) -> None:
    """Tell the job that as a notice, once."""
    with services.db.write() as connection:
        progress.notice_once(connection, job, message, services.clock.now())


def _destination_by_name(job: Job, output: str) -> OutputPlace:
    output_place = destinations(job).get(output)
    if output_place is None:
        raise NotFound(f"job `{job.name}` has no output `{output}`")
    return output_place


def _at(services: FileServices, job: Job, output_place: OutputPlace) -> data.DataLocation:
    return data.locate(services.db, services.datastores, job.workspace, output_place.uri)
