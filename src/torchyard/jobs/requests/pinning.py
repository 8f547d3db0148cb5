"""What the inputs of a new job stand for, fixed when it is created.

Owns: job outputs and models as inputs; which of their references can't be.
Leaves: datastores, data assets and URLs to data/actions.py.
Always: a pinned path means the same data tomorrow, an empty snapshot what a job left empty;
nothing is copied here.
"""

from __future__ import annotations

import re

from torchyard.base import refs
from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound, TorchyardError
from torchyard.data import actions as data
from torchyard.data import uris
from torchyard.data.datastores import BLOB_STORE
from torchyard.data.types import MODEL_TYPES, Pinned
from torchyard.data.uris import DatastoreUri
from torchyard.jobs import actions
from torchyard.jobs.files import data_sources
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec.inputs import LITERAL, Input
from torchyard.models import actions as models
from torchyard.models.types import Model

LOCAL = "local:"

_MODEL_ID = re.compile(
    r"^azureml:/{0,2}/?subscriptions/.+/workspaces/(?P<workspace>[^/]+)"
    r"/models/(?P<name>[^/]+)/(?:versions|labels)/(?P<version>[^/]+)\Z"
)
_PLAIN_REF = re.compile(r"^azureml:(?![/])")
_REGISTRY = "azureml://registries/"


def pin(
    services: FileServices, workspace: str, job: str, job_input: Input, uploaded: bool = True
) -> Pinned:
    """Return what to write into the job instead of the input's path.

    Args:
        job: the name of the job that is made, empty when it has none yet.
        uploaded: False takes `local:` where something has yet to be uploaded.

    Raises:
        InvalidInput: a path of no known form, or of the wrong type.
        NotFound: the data does not exist, model, job or output.
    """
    path = job_input.path
    if job_input.type == LITERAL or (path.startswith(LOCAL) and not uploaded):
        return Pinned(path)
    if path.startswith(SNAPSHOT_PREFIX):
        services.blobs.of(workspace).snapshot(path.removeprefix(SNAPSHOT_PREFIX))
        return Pinned(path)
    if uris.job_output(path) is not None:
        return _of_job(services, workspace, job, job_input)
    if job_input.type in MODEL_TYPES and _names_model(path):
        return _of_model(services.db, workspace, job_input)
    try:
        return data.pin(
            services.db, services.datastores, workspace, job_input.type, path, job_input.mode
        )
    except NotFound as error:
        if job_input.type not in MODEL_TYPES and _is_model(services.db, workspace, path):
            raise InvalidInput(
                f"`{path}` is a model, and the input is of type `{job_input.type}`",
                "write `type: custom_model`",
                code="type_mismatch",
            ) from error
        raise


def code_exists(blobs: Blobs, path: str, uploaded: bool = True) -> None:
    """
    Raises:
        InvalidSpec: it is not a snapshot.
        NotFound: the snapshot was never uploaded.
    """
    if not uploaded and path.startswith(LOCAL):
        return
    if not path.startswith(SNAPSHOT_PREFIX):
        raise InvalidSpec(
            f"`{path}` is not served as `code`",
            "name a folder beside the job file, or a git URL: `https://host/repo.git#branch:folder`",
        )
    blobs.snapshot(path.removeprefix(SNAPSHOT_PREFIX))


def _of_job(services: FileServices, workspace: str, job: str, job_input: Input) -> Pinned:
    job_uri = uris.job_output(job_input.path)
    assert job_uri is not None
    if job and job_uri.job == job:
        raise InvalidInput(
            f"job `{job}` names its own output as an input",
            "name the job that made it",
            code="cyclic_reference",
        )
    source = actions.get(services, workspace, job_uri.job)
    if not source.status.ended:
        raise InvalidInput(
            f"job `{job_uri.job}` is {source.status.value}: its outputs are whole when it has "
            "ended",
            f"wait for it: `yard job stream -n {job_uri.job}`",
            code="job_not_ended",
        )
    uri = data_sources.find(services, workspace, job_input.path, job_input.type)
    try:
        pinned = data.pin(
            services.db, services.datastores, workspace, job_input.type, uri, job_input.mode
        )
    except NotFound as error:
        if not job_uri.path and data_sources.is_left_empty(services, source, uri):
            return _of_nothing(services, source, job_uri.output, job_input)
        raise NotFound(
            f"job `{job_uri.job}` has nothing at `{job_uri.path or job_uri.output}`",
            f"see what it left: `yard job download -n {job_uri.job} --all`",
        ) from error
    return pinned


def _of_nothing(services: FileServices, source: Job, output: str, job_input: Input) -> Pinned:
    """As in Azure, an output to which its job wrote nothing is an empty folder, and no file.

    Raises:
        NotFound: the input is a file.
    """
    if job_input.type == "uri_file":
        raise NotFound(
            f"job `{source.name}` wrote no file to its output `{output}`",
            f"write it at `${{{{outputs.{output}}}}}`; see `yard job stream -n {source.name}`",
        )
    nothing = services.blobs.of(source.workspace).put_snapshot({"files": []})
    notice = f"`{job_input.path}` is an empty folder: the job wrote nothing there"
    return Pinned(f"{SNAPSHOT_PREFIX}{nothing.id}", (notice,))


def _of_model(db: Database, workspace: str, job_input: Input) -> Pinned:
    model = _model(db, workspace, job_input.path)
    if job_input.type != "custom_model" and model.type != job_input.type:
        raise InvalidInput(
            f"model `{model.name}:{model.version}` is of type `{model.type}`, "
            f"the input of `{job_input.type}`",
            f"write `type: {model.type}`",
            code="type_mismatch",
        )
    if not model.files:
        raise NotFound(
            f"model `{model.name}:{model.version}` has no files here: it lies at `{model.source}`",
            "register it from there with `yard model create`",
        )
    path = f"{model.folder}/{model.files[0].path if model.single else ''}"
    uri = str(DatastoreUri(BLOB_STORE, path))
    notice = f"`{job_input.path}` is model `{model.name}:{model.version}`"
    return Pinned(uri, (notice,))


def _model(db: Database, workspace: str, path: str) -> Model:
    by_id = _MODEL_ID.match(path)
    if by_id:
        if by_id["workspace"].lower() != workspace.lower():
            raise NotFound(
                f"`{path}` lies in workspace `{by_id['workspace']}`, and this is `{workspace}`",
                "register the model here, and write `azureml:<name>@latest`",
            )
        return models.get(db, workspace, by_id["name"], by_id["version"])
    ref = refs.parse(path)
    if ref.registry:
        raise NotFound(
            f"`{path}` lies in the registry `{ref.registry}`, which is not reached from here",
            "download it, register it with `yard model create`, "
            f"and write `azureml:{ref.name}@latest`",
        )
    # A label is `latest` or an alias.
    return models.get(db, workspace, ref.name, ref.version or ref.label or models.LATEST)


def _names_model(path: str) -> bool:
    return bool(_PLAIN_REF.match(path) or _MODEL_ID.match(path)) or path.startswith(_REGISTRY)


def _is_model(db: Database, workspace: str, path: str) -> bool:
    if not _names_model(path):
        return False
    try:
        _model(db, workspace, path)
    except TorchyardError:
        return False
    return True
