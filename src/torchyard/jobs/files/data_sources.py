"""Job outputs as data: what `azureml://jobs/…` and `runs:/…` stand for.

Owns: from a job's output to the datastore URI where it lies.
Leaves: whether there is something to data/actions.py.
Always: a named output is found where its job was told to put it.
"""

from __future__ import annotations

from dataclasses import replace

from torchyard.base.errors import NotFound, did_you_mean
from torchyard.data import actions as data
from torchyard.data import uris
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.data.types import Pinned
from torchyard.data.uris import DatastoreUri
from torchyard.jobs import actions
from torchyard.jobs.files import outputs
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import FileServices, RecordServices

_ARTIFACTS = ("artifacts", "default")


def is_job_path(path: str) -> bool:
    return uris.job_output(path) is not None


def find(services: RecordServices, workspace: str, path: str, type: str = "uri_folder") -> str:
    """The datastore URI of a job's output or artifact.

    Args:
        type: as what it is taken: of an output that is a file, `uri_file` means the file itself.

    Raises:
        NotFound: no such job, or it has no such output.
    """
    job_uri = uris.job_output(path)
    assert job_uri is not None, path
    job = actions.get(services, workspace, job_uri.job)
    if job_uri.output in _ARTIFACTS and not _names_output(job, job_uri.output):
        return str(DatastoreUri(ARTIFACT_STORE, _join(artifacts_of(job.name), job_uri.path)))
    job, output = outputs.maker(services, job, job_uri.output)
    return str(_of_output(job, replace(job_uri, output=output), type))


def is_left_empty(services: FileServices, job: Job, uri: str) -> bool:
    """Whether a job that completed wrote nothing to its output there, where nothing is now.

    Raises:
        NotFound: the datastore does not exist any more.
    """
    location = data.locate(services.db, services.datastores, job.workspace, uri)
    written = data.checksums_of(services.db, job.workspace, location)
    return job.status is Status.COMPLETED and not written


def pin(
    services: FileServices, workspace: str, type: str, path: str, mode: str = "ro_mount"
) -> Pinned:
    """As data's `pin`, and job outputs too.

    Raises:
        InvalidInput: a path of no known form, a type that doesn't suit.
        NotFound: no such job, output, datastore, asset, file or folder.
    """
    if is_job_path(path):
        path = find(services, workspace, path, type)
    return data.pin(services.db, services.datastores, workspace, type, path, mode)


def asset_uri(services: FileServices, workspace: str, type: str, path: str) -> str:
    """The URI to keep for a data asset, whose data may be written later.

    Raises:
        InvalidInput: a path of no known form, a type that doesn't suit.
        NotFound: no such job, output, datastore or asset.
    """
    if is_job_path(path):
        path = find(services, workspace, path, type)
    stores = services.datastores
    pinned = data.pin(services.db, stores, workspace, type, path, "ro_mount", may_be_missing=True)
    return pinned.path


def _names_output(job: Job, output: str) -> bool:
    """Whether an output of that name is not, as in Azure, what the job wrote to ./outputs."""
    return f"outputs.{output}" in str(job.document.get("command"))


def _of_output(job: Job, job_uri: uris.JobUri, type: str) -> DatastoreUri:
    locations = outputs.destinations(job)
    output_place = locations.get(job_uri.output)
    if output_place is None:
        raise NotFound(
            f"job `{job.name}` has no output `{job_uri.output}`",
            did_you_mean(
                job_uri.output,
                [*locations, "artifacts"],
                "`artifacts` is what it wrote to `./outputs`",
            ),
        )
    path = job_uri.path or (output_place.inside if type == "uri_file" else "")
    return DatastoreUri(output_place.store, _join(output_place.path, path))


def _join(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path}" if path else folder
