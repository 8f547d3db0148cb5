"""Where an asset's files lie, for many assets at once: what `jobs.download` asks.

Owns: the two `batchGetResolvedUris`, for data and for models.
Leaves: places to jobs/files/outputs.py and data/, listing and reading files to the blob service.
Always: an answer is a datastore URI with the workspace in it.
"""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm import assets
from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute
from torchyard.base import refs
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import assets as data_assets
from torchyard.data import uris
from torchyard.data.datastores import BLOB_STORE
from torchyard.data.uris import DatastoreUri
from torchyard.jobs import actions
from torchyard.jobs.files import outputs
from torchyard.jobs.services import Services
from torchyard.models import actions as models

_MOST = 200


def service(services: Services) -> Callable[[Caller], APIRouter]:
    """What app.py mounts."""

    def routes(caller: Caller) -> APIRouter:
        made = APIRouter(route_class=AzureRoute)
        the_call = Annotated[Call, Depends(caller)]

        @made.post("/data/dataversion/batchGetResolvedUris")
        def data(call: the_call) -> JSONResponse:
            found = {}
            for asset_id in _wanted(call):
                uri, type = _place(services, call, asset_id)
                found[asset_id] = {"uri": assets.long_uri(call, uri), "type": type}
            return JSONResponse({"values": found})

        @made.post("/modelregistry/models/batchGetResolvedUris")
        def of_models(call: the_call) -> JSONResponse:
            found = {}
            for asset_id in _wanted(call):
                uri, type = _place(services, call, asset_id)
                found[asset_id] = {"path": assets.long_uri(call, uri), "type": type}
            return JSONResponse({"values": found})

        return made

    return routes


def _wanted(call: Call) -> list[str]:
    values: Any = call.document.get("values")
    if not isinstance(values, list) or len(values) > _MOST:
        raise InvalidInput(f"`values` is no list of up to {_MOST} assets' ids", at=["values"])
    return [str(value) for value in values]


def _place(services: Services, call: Call, asset_id: str) -> tuple[str, str]:
    """(datastore URI, type) of a job's output, a data asset or a model.

    Raises:
        NotFound: there is no such asset.
        InvalidInput: the id has no form that is known.
    """
    workspace = call.workspace.name
    named = uris.job_output(asset_id)
    if named is not None:
        job = actions.get(services, workspace, named.job)
        place = outputs.places(job).get(named.output)
        if place is None:
            raise NotFound(f"job `{named.job}` has no output `{named.output}`")
        return place.uri, job.spec.outputs[named.output].type
    reader = Reader(workspace, lambda code_id: "")
    model = reader.reference(asset_id, "models")
    if model != asset_id:
        ref = refs.parse(model)
        found = models.get(services.db, workspace, ref.name, ref.version or models.LATEST)
        return str(DatastoreUri(BLOB_STORE, f"{found.folder}/")), found.type
    ref = refs.parse(reader.reference(asset_id, "data"))
    asset = data_assets.get(services.db, workspace, ref.name, ref.version or data_assets.LATEST)
    return asset.uri, asset.type
