"""Datastores as Azure Resource Manager resources.

Owns: a datastore's JSON in both directions, the secret that a client gets for one.
Leaves: datastores themselves to data/datastores.py, signatures to blob/links.py.
Always: every datastore, wherever its files are, is shown as a container of this server, which a
client opens with a signature of its own; a datastore's own credentials are never shown.

Source: https://learn.microsoft.com/rest/api/azureml/datastores
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.resources import (
    Action,
    Page,
    PageRequest,
    Permissions,
    PutResult,
    Resource,
)
from torchyard.azureml.blob.links import Links
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import Call
from torchyard.base import fields
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput
from torchyard.data import datastores
from torchyard.data.datastores import BLOB_STORE, BUILT_IN
from torchyard.data.types import Datastore
from torchyard.workspaces.permissions import Permission

_CLOUD = "core.windows.net"
_TYPES = {
    "AzureBlob": "azure_blob",
    "AzureDataLakeGen2": "azure_data_lake_gen2",
    "AzureFile": "azure_file",
}
_PLACES = {"containerName": "container_name", "filesystem": "filesystem"}
_SHARE = "fileShareName"
_SECRETS = {"key": "account_key", "sasToken": "sas_token", "clientSecret": "client_secret"}
_LOGINS = {
    "clientId": "client_id",
    "tenantId": "tenant_id",
    "authorityUrl": "authority_url",
    "resourceUrl": "resource_url",
}


class DatastoreKind:
    """The adapter of resources.py."""

    permissions = Permissions(actions={"listsecrets": Permission.READ})

    def __init__(
        self, db: Database, clock: Clock, stores: datastores.Datastores, links: Links
    ) -> None:
        self._db = db
        self._clock = clock
        self._stores = stores
        self._links = links
        self.actions: Mapping[str, Action] = {"listsecrets": self._secrets}

    def list(self, call: Call, request: PageRequest) -> Page:
        query = {key.lower(): value for key, value in call.query.items()}
        stores = datastores.list_in(self._db, self._stores, call.workspace.name)
        if query.get("isdefault", "").lower() in ("true", "false"):
            default = query["isdefault"].lower() == "true"
            stores = [store for store in stores if (store.name == BLOB_STORE) == default]
        text = query.get("searchtext", "").lower()
        stores = [store for store in stores if text in store.name.lower()]
        names = [store.name for store in stores]
        start = names.index(request.after) + 1 if request.after in names else 0
        page = stores[start : start + request.limit]
        has_more = page and start + request.limit < len(stores)
        return Page(
            [self._resource(call, store) for store in page], page[-1].name if has_more else ""
        )

    def get(self, call: Call, name: str) -> Resource:
        return self._resource(call, self._find(call, name))

    def put(self, call: Call, name: str) -> PutResult:
        workspace, properties = call.workspace.name, call.properties
        names = [store.name for store in datastores.list_in(self._db, self._stores, workspace)]
        if _is_own_container(properties):
            datastore = self._put_own(call, name, properties)
        else:
            document = self._document(call, name, properties)
            datastore = datastores.put(
                self._db, self._clock, self._stores, workspace, document, call.identity.user
            )
        return PutResult(self._resource(call, datastore), name not in names)

    def delete(self, call: Call, name: str) -> None:
        datastores.drop(self._db, self._stores, call.workspace.name, name)

    def _find(self, call: Call, name: str) -> Datastore:
        return datastores.get(self._db, self._stores, call.workspace.name, name)

    def _secrets(self, call: Call, name: str) -> dict[str, str]:
        datastore = self._find(call, name)
        return {"secretsType": "Sas", "sasToken": self._links.sas(call, datastore.name)}

    def _put_own(self, call: Call, name: str, properties: Mapping[str, Any]) -> Datastore:
        """Put a datastore as this server shows it, which a client does that changes one it has
        read.
        """
        workspace = call.workspace.name
        if properties.get("containerName") != containers.container(workspace, name):
            raise Conflict(
                f"`{properties.get('containerName')}` in account `{properties.get('accountName')}` "
                "is another datastore of this server",
                "use that datastore, or name a container of another store",
                at=["properties", "containerName"],
            )
        before = self._find(call, name)
        description = str(properties.get("description") or "")
        tags = fields.texts(properties, "tags")
        if name in BUILT_IN and (tags or description in ("", before.description)):
            if tags:
                raise Conflict(f"datastore `{name}` is built in and can't be changed")
            return before
        return datastores.describe(self._db, self._stores, workspace, name, description, tags)

    def _document(self, call: Call, name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
        kind = properties.get("datastoreType")
        document: dict[str, Any] = {"name": name, "type": _TYPES.get(str(kind), kind)}
        document["account_name"] = properties.get("accountName")
        for azure_key, store_key in (*_PLACES.items(), (_SHARE, "file_share_name")):
            if properties.get(azure_key):
                document[store_key] = properties[azure_key]
        endpoint = str(properties.get("endpoint") or "")
        server_suffix = containers.suffix(call.base, self._links.storage_domain)
        # Clients that got no endpoint send the cloud's, which is this server.
        if endpoint and endpoint not in (server_suffix, _CLOUD) and not endpoint.startswith("@"):
            document["endpoint"] = endpoint
        credentials = _credentials(properties.get("credentials"))
        if credentials:
            document["credentials"] = credentials
        document["description"] = str(properties.get("description") or "")
        document["tags"] = fields.texts(properties, "tags")
        return {key: value for key, value in document.items() if value not in (None, "", {})}

    def _resource(self, call: Call, datastore: Datastore) -> Resource:
        workspace = call.workspace
        properties = {
            "datastoreType": "AzureBlob",
            "accountName": containers.account(workspace.name),
            "containerName": containers.container(workspace.name, datastore.name),
            "endpoint": containers.suffix(call.base, self._links.storage_domain),
            "protocol": call.base.partition("://")[0],
            "credentials": {"credentialsType": "Sas"},
            "description": datastore.description,
            "tags": datastore.tags,
            "properties": {"torchyard.type": datastore.kind, **_location(datastore.document)},
            "isDefault": datastore.name == BLOB_STORE,
            "subscriptionId": workspace.subscription_id,
            "resourceGroup": workspace.resource_group,
            "serviceDataAccessAuthIdentity": "None",
        }
        made_at = workspace.created_at if datastore.name in BUILT_IN else datastore.created_at
        return Resource(("datastores", datastore.name), properties, made_at)


def _is_own_container(properties: Mapping[str, Any]) -> bool:
    account, container = (str(properties.get(key)) for key in ("accountName", "containerName"))
    return bool(containers.ACCOUNT.fullmatch(account) and containers.CONTAINER.fullmatch(container))


def _credentials(document: Any) -> dict[str, str]:
    """
    Raises:
        InvalidInput: torchyard does not support this kind of credentials.
    """
    if not isinstance(document, Mapping):
        return {}
    kind = document.get("credentialsType")
    if kind in (None, "None"):
        return {}
    if kind not in ("AccountKey", "Sas", "ServicePrincipal"):
        raise InvalidInput(
            f"credentials of type `{kind}` are not served",
            "use an account key, a SAS token or a service principal",
            at=["properties", "credentials", "credentialsType"],
        )
    secrets = document.get("secrets")
    if not isinstance(secrets, Mapping) or not any(secrets.get(key) for key in _SECRETS):
        raise InvalidInput(
            f"credentials of type `{kind}` have no secret",
            "create the datastore with the secret in its credentials",
            at=["properties", "credentials", "secrets"],
        )
    pairs = [(_SECRETS[key], secrets[key]) for key in _SECRETS if secrets.get(key)]
    pairs += [(_LOGINS[key], document[key]) for key in _LOGINS if document.get(key)]
    return {name: str(value) for name, value in pairs}


def _location(document: Mapping[str, Any]) -> dict[str, str]:
    """Where the files are."""
    return {
        f"torchyard.{key}": str(value) for key, value in document.items() if key != "credentials"
    }
