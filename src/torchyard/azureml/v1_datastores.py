"""SDK v1's datastore service.

Owns: the JSON of a datastore as azureml.data reads it.
Leaves: datastores to data/, signatures and files to the blob service.
Always: every datastore looks like a container of Azure Blob, whatever it is behind the server; a
credential of a foreign store never leaves it.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml import containers
from torchyard.azureml.blob_links import Links
from torchyard.azureml.calls import Call, Caller
from torchyard.azureml.errors import AzureRoute, NotServed
from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.data import datastores
from torchyard.data.datastores import BLOB_STORE, Datastores


def routes(db: Database, stores: Datastores, links: Links, caller: Caller) -> APIRouter:
    """`/datastore/v1.0`, the requests of azureml.core.Datastore."""
    found = APIRouter(prefix="/datastore", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    def shown(call: Call, name: str) -> dict[str, Any]:
        there = datastores.get(db, stores, call.workspace.name, name)
        return {
            "name": there.name,
            "dataStoreType": "AzureBlob",
            "hasBeenValidated": True,
            "tags": there.tags,
            "azureStorageSection": {
                "accountName": containers.account(call.workspace.name),
                "containerName": containers.container(call.workspace.name, there.name),
                "endpoint": links.suffix(call),
                "protocol": "https",
                "credentialType": "Sas",
                "credential": links.sas(call, there.name),
                "sasToken": links.sas(call, there.name),
                "accountKey": "",
                "isSas": True,
                "blobCacheTimeout": 0,
                "areWorkspaceManagedIdentitiesAllowed": False,
                "subscriptionId": call.workspace.subscription_id,
                "resourceGroup": call.workspace.resource_group,
            },
        }

    @found.get("/default")
    def default(call: the_call) -> JSONResponse:
        return JSONResponse(shown(call, BLOB_STORE))

    @found.put("/default/{name}")
    def set_default(call: the_call, name: str) -> JSONResponse:
        datastores.get(db, stores, call.workspace.name, name)
        if name != BLOB_STORE:
            raise Conflict(
                f"the default datastore of a workspace is `{BLOB_STORE}`",
                f"name `{name}` where its data is used",
            )
        return JSONResponse({})

    @found.get("/datastores")
    def list_all(call: the_call) -> JSONResponse:
        there = datastores.list_in(db, stores, call.workspace.name)
        value = [shown(call, one.name) for one in there]
        return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})

    @found.get("/datastores/{name}")
    def get(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(shown(call, name))

    @found.post("/datastores")
    def register(call: the_call) -> JSONResponse:
        raise NotServed(
            "SDK v1 can't register datastores here",
            "make it with `yard datastore create -f datastore.yml`",
        )

    @found.delete("/datastores/{name}")
    def delete(call: the_call, name: str) -> JSONResponse:
        datastores.drop(db, stores, call.workspace.name, name)
        return JSONResponse({})

    return found
