"""SDK v1's datastore service.

Owns: the JSON of a datastore as azureml.data reads and writes it.
Leaves: datastores to data/, what a registration means to arm/datastores.py, signatures and files
to the blob service.
Always: every datastore looks like a container of Azure Blob, whatever it is behind the server; a
credential of a foreign store never leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi.responses import JSONResponse

from torchyard.azureml.arm.datastores import DatastoreKind
from torchyard.azureml.blob.links import BlobLinks, Links
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.data import datastores
from torchyard.data.datastores import ARTIFACT_STORE, BLOB_STORE
from torchyard.data.types import Datastore
from torchyard.jobs.services import FileServices, ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_SECRETS = {"AccountKey": "key", "Sas": "sasToken"}

# Azure keeps runs' files in this container of the workspace's account.
_RUN_FILES, _RUN_CONTAINER = "blobstorage_datastore", "azureml"

routes = RouteTable("/datastore")


@routes.get("/default")
@needs(Permission.READ)
def get_default(call: AzureCall, services: ServicesOf, links: BlobLinks) -> JSONResponse:
    return JSONResponse(_json(links, call, _find(services, call, BLOB_STORE)))


@routes.put("/default/{name}")
@needs(Permission.SETTINGS)
def set_default(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    _find(services, call, name)
    if name != BLOB_STORE:
        raise Conflict(
            f"the default datastore of a workspace is `{BLOB_STORE}`",
            f"name `{name}` where its data is used",
        )
    return JSONResponse({})


@routes.get("/datastores")
@needs(Permission.READ)
def list_all(call: AzureCall, services: ServicesOf, links: BlobLinks) -> JSONResponse:
    value = [_json(links, call, datastore) for datastore in _list(services, call)]
    return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})


@routes.get("/datastores/{name}")
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf, links: BlobLinks, name: str) -> JSONResponse:
    if name == _RUN_FILES and name not in {store.name for store in _list(services, call)}:
        name = ARTIFACT_STORE
    return JSONResponse(_json(links, call, _find(services, call, name)))


@routes.post("/datastores")
@needs(Permission.WRITE)
def register(call: AzureCall, services: ServicesOf, links: BlobLinks) -> JSONResponse:
    name = str(call.document.get("name") or "")
    if name == _RUN_FILES and _names_run_files(call):
        return JSONResponse(_json(links, call, _find(services, call, ARTIFACT_STORE)))
    if name in {datastore.name for datastore in _list(services, call)}:
        # With `overwrite=True` the client looks for this text in a response 400, and changes it.
        raise InvalidInput(
            f"Another datastore with the same name already exists: `{name}`",
            "pass `overwrite=True`, or choose another name",
        )
    return _put(services, links, call, name)


@routes.put("/datastores/{name}")
@needs(Permission.WRITE)
def change(call: AzureCall, services: ServicesOf, links: BlobLinks, name: str) -> JSONResponse:
    return _put(services, links, call, name)


@routes.delete("/datastores/{name}")
@needs(Permission.WRITE)
def delete(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    datastores.drop(services.db, services.datastores, call.workspace.name, name, call.identity.user)
    return JSONResponse({})


def _names_run_files(call: Call) -> bool:
    """Whether a registration means the workspace's own container of runs' files.

    The client that asks for a run's `outputs` as a DataReference registers it by these names.
    """
    section = call.document.get("azureStorageSection")
    return isinstance(section, Mapping) and (
        section.get("accountName") == containers.account(call.workspace.name)
        and section.get("containerName") == _RUN_CONTAINER
    )


def _find(services: FileServices, call: Call, name: str) -> Datastore:
    return datastores.get(services.db, services.datastores, call.workspace.name, name)


def _list(services: FileServices, call: Call) -> list[Datastore]:
    return list(datastores.list_in(services.db, services.datastores, call.workspace.name))


def _put(services: FileServices, links: Links, call: Call, name: str) -> JSONResponse:
    kind = DatastoreKind(services.db, services.clock, services.datastores, links)
    kind.put(replace(call, body={"properties": _as_resource(call.document)}), name)
    return JSONResponse(_json(links, call, _find(services, call, name)))


def _json(links: Links, call: Call, datastore: Datastore) -> dict[str, Any]:
    return {
        "name": datastore.name,
        "dataStoreType": "AzureBlob",
        "hasBeenValidated": True,
        "tags": datastore.tags,
        "azureStorageSection": {
            "accountName": containers.account(call.workspace.name),
            "containerName": containers.container(call.workspace.name, datastore.name),
            "endpoint": links.suffix(call),
            "protocol": "https",
            "credentialType": "Sas",
            "credential": links.sas(call, datastore.name),
            "sasToken": links.sas(call, datastore.name),
            "accountKey": "",
            "isSas": True,
            "blobCacheTimeout": 0,
            "areWorkspaceManagedIdentitiesAllowed": False,
            "subscriptionId": call.workspace.subscription_id,
            "resourceGroup": call.workspace.resource_group,
        },
    }


def _as_resource(document: Mapping[str, Any]) -> dict[str, Any]:
    """What Resource Manager's clients would send for the same datastore.

    Raises:
        NotServed: a kind of storage that torchyard does not have, or not by SDK v1.
    """
    kind, section = str(document.get("dataStoreType") or ""), document.get("azureStorageSection")
    if kind != "AzureBlob" or not isinstance(section, Mapping):
        raise NotServed(
            f"SDK v1 can't register a datastore of type `{kind[:40]}` here",
            "`yard datastore create -f datastore.yml` has more types",
            at=["dataStoreType"],
        )
    credential = str(section.get("credentialType") or "None")
    credentials: dict[str, Any] = {"credentialsType": credential}
    if credential in _SECRETS:
        credentials["secrets"] = {_SECRETS[credential]: section.get("credential")}
    return {
        "datastoreType": kind,
        "accountName": section.get("accountName"),
        "containerName": section.get("containerName"),
        "endpoint": section.get("endpoint"),
        "credentials": credentials,
    }
