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
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices, RecordServices

_ARTIFACTS = ("artifacts", "default")


def is_job_path(path: str) -> bool:
    return uris.job_output(path) is not None


def find(services: RecordServices, workspace: str, path: str) -> str:
    """The datastore URI of a job's output or artifact.

    Raises:
        NotFound: no such job, or it has no such output.
    """
    job_uri = uris.job_output(path)
    assert job_uri is not None, path
    job = actions.get(services, workspace, job_uri.job)
    if job_uri.output in _ARTIFACTS:
        return str(DatastoreUri(ARTIFACT_STORE, _join(artifacts_of(job.name), job_uri.path)))
    job, output = outputs.maker(services, job, job_uri.output)
    return str(_of_output(job, replace(job_uri, output=output)))


def pin(
    services: FileServices, workspace: str, type: str, path: str, mode: str = "ro_mount"
) -> Pinned:
    """As data's `pin`, and job outputs too.

    Raises:
        InvalidInput: a path of no known form, a type that doesn't suit.
        NotFound: no such job, output, datastore, asset, file or folder.
    """
    if is_job_path(path):
        path = find(services, workspace, path)
    return data.pin(services.db, services.datastores, workspace, type, path, mode)


def asset_uri(services: FileServices, workspace: str, type: str, path: str) -> str:
    """The URI to keep for a data asset, whose data may be written later.

    Raises:
        InvalidInput: a path of no known form, a type that doesn't suit.
        NotFound: no such job, output, datastore or asset.
    """
    if is_job_path(path):
        path = find(services, workspace, path)
    stores = services.datastores
    pinned = data.pin(services.db, stores, workspace, type, path, "ro_mount", may_be_missing=True)
    return pinned.path


def _of_output(job: Job, job_uri: uris.JobUri) -> DatastoreUri:
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
    return DatastoreUri(output_place.store, _join(output_place.path, job_uri.path))


def _join(folder: str, path: str) -> str:
    return f"{folder.rstrip('/')}/{path}" if path else folder
