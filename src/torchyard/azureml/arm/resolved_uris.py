"""Where the files of assets are, for many assets at once: used by `jobs.download`.

Owns: the two `batchGetResolvedUris`, for data and for models.
Leaves: outputs to jobs/files/outputs.py, assets to data/ and models/, listing and reading files to
the blob service.
Always: a location is a datastore URI with the workspace in it.
"""

from __future__ import annotations

from typing import Any

from fastapi.responses import JSONResponse

from torchyard.azureml.arm import assets
from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.routing import RouteTable
from torchyard.base import refs
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import assets as data_assets
from torchyard.data import uris
from torchyard.data.datastores import BLOB_STORE
from torchyard.data.uris import DatastoreUri
from torchyard.jobs import actions
from torchyard.jobs.files import outputs
from torchyard.jobs.records.types import parse_job
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.models import actions as models
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_MAX_IDS = 200

routes = RouteTable()


@routes.post("/data/dataversion/batchGetResolvedUris")
@needs(Permission.READ)
def resolve_data(call: AzureCall, services: ServicesOf) -> JSONResponse:
    return _resolved(services, call, "uri")


@routes.post("/modelregistry/models/batchGetResolvedUris")
@needs(Permission.READ)
def resolve_models(call: AzureCall, services: ServicesOf) -> JSONResponse:
    return _resolved(services, call, "path")


def _resolved(services: RecordServices, call: Call, key: str) -> JSONResponse:
    asset_ids: Any = call.document.get("values")
    if not isinstance(asset_ids, list) or len(asset_ids) > _MAX_IDS:
        raise InvalidInput(f"`values` is not a list of up to {_MAX_IDS} assets' ids", at=["values"])
    values = {}
    for asset_id in map(str, asset_ids):
        uri, type = _location(services, call, asset_id)
        values[asset_id] = {key: assets.long_uri(call, uri), "type": type}
    return JSONResponse({"values": values})


def _location(services: RecordServices, call: Call, asset_id: str) -> tuple[str, str]:
    """(datastore URI, type) of a job's output, a data asset or a model.

    Raises:
        NotFound: the asset does not exist.
        InvalidInput: the id has an unknown form.
    """
    workspace = call.workspace.name
    output = uris.job_output(asset_id)
    if output is not None:
        job = actions.get(services, workspace, output.job)
        job, name = outputs.maker(services, job, output.output)
        location = outputs.destinations(job).get(name)
        if location is None:
            raise NotFound(f"job `{output.job}` has no output `{output.output}`")
        return location.data_uri, parse_job(job).spec.outputs[name].type
    reader = Reader(workspace, lambda code_id: "")
    reference = reader.reference(asset_id, "models")
    if reference != asset_id:
        ref = refs.parse(reference)
        model = models.get(services.db, workspace, ref.name, ref.version or models.LATEST)
        return str(DatastoreUri(BLOB_STORE, f"{model.folder}/")), model.type
    ref = refs.parse(reader.reference(asset_id, "data"))
    asset = data_assets.get(services.db, workspace, ref.name, ref.version or data_assets.LATEST)
    return asset.uri, asset.type
