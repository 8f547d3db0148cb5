"""SDK v1's datastore service.

Owns: the JSON of a datastore as azureml.data reads and writes it.
Leaves: datastores to data/, what a registration asks for to arm/datastores.py, signatures and files
to the blob service.
Always: every datastore looks like a container of Azure Blob, whatever it is behind the server; a
credential of a foreign store never leaves it.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.datastores import DatastoreKind
from torchyard.azureml.blob.links import Links
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute, NotServed
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.data import datastores
from torchyard.data.datastores import BLOB_STORE, Datastores

_SECRETS = {"AccountKey": "key", "Sas": "sasToken"}


def routes(
    db: Database, clock: Clock, stores: Datastores, links: Links, caller: Caller
) -> APIRouter:
    """`/datastore/v1.0`, the requests of azureml.core.Datastore."""
    kind = DatastoreKind(db, clock, stores, links)
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
        name = str(call.document.get("name") or "")
        if name in {one.name for one in datastores.list_in(db, stores, call.workspace.name)}:
            # With `overwrite=True` the client reads these words, in an answer 400, and changes it.
            raise InvalidInput(
                f"Another datastore with the same name already exists: `{name}`",
                "say `overwrite=True`, or choose another name",
            )
        kind.put(replace(call, body={"properties": _as_resource(call.document)}), name)
        return JSONResponse(shown(call, name))

    @found.put("/datastores/{name}")
    def change(call: the_call, name: str) -> JSONResponse:
        kind.put(replace(call, body={"properties": _as_resource(call.document)}), name)
        return JSONResponse(shown(call, name))

    @found.delete("/datastores/{name}")
    def delete(call: the_call, name: str) -> JSONResponse:
        datastores.drop(db, stores, call.workspace.name, name)
        return JSONResponse({})

    return found


def _as_resource(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What Resource Manager's clients would say of the same datastore.

    Raises:
        NotServed: a kind of storage that torchyard does not have, or not by SDK v1.
    """
    kind, section = str(asked.get("dataStoreType") or ""), asked.get("azureStorageSection")
    if kind != "AzureBlob" or not isinstance(section, Mapping):
        raise NotServed(
            f"SDK v1 can't register a datastore of type `{kind[:40]}` here",
            "`yard datastore create -f datastore.yml` has more types",
            at=["dataStoreType"],
        )
    credential = str(section.get("credentialType") or "None")
    made = {
        "datastoreType": kind,
        "accountName": section.get("accountName"),
        "containerName": section.get("containerName"),
        "endpoint": section.get("endpoint"),
        "credentials": {"credentialsType": credential},
    }
    if credential in _SECRETS:
        secret = {_SECRETS[credential]: section.get("credential")}
        made["credentials"] = {"credentialsType": credential, "secrets": secret}
    return made
