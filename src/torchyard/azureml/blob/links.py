"""URLs of blobs that the server hands out, and what they mean when clients send them back.

Owns: signed URLs, the folder of an upload, reading URLs back.
Leaves: permissions to grants.py, which checks them for each request.
Always: a URL is signed for the caller, with no more permissions than necessary; an upload that is
started again continues in its folder.
"""

from __future__ import annotations

import hashlib
import re
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import quote, unquote, urlsplit

from fastapi import Depends, Request

from torchyard.azureml.blob import signatures
from torchyard.azureml.common import containers
from torchyard.azureml.common.calls import Call
from torchyard.azureml.common.context import AzureContext, context_of
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import NotFound
from torchyard.data import datastores
from torchyard.data.datastores import BLOB_STORE, Datastores, upload_folder
from torchyard.data.uris import DatastoreUri
from torchyard.workspaces.permissions import MINIMUM_ROLE, Permission

_PLACE = re.compile(
    rf"(?:/azureml-blob)?(?:/{containers.ACCOUNT.pattern})?"
    rf"/(?P<container>{containers.CONTAINER.pattern})(?:/(?P<path>.*))?",
    re.DOTALL,
)


class Links:
    """Links to the blobs of one server.

    Args:
        key: for making signatures.
        storage_domain: storage accounts are host names below it; empty for the `@` form.
    """

    def __init__(
        self,
        db: Database,
        stores: Datastores,
        key: bytes,
        clock: Clock,
        storage_domain: str = "",
    ) -> None:
        self._db = db
        self._stores = stores
        self._key = key
        self._clock = clock
        self.storage_domain = storage_domain

    def sas(
        self,
        call: Call,
        datastore: str,
        permissions: str = "",
        hours: float = 12,
        *,
        folder: str = "",
        blob: str = "",
    ) -> str:
        """The query that opens a datastore, a folder of it or one blob.

        Args:
            permissions: Azure's letters; empty for all that the caller's role allows.
            hours: at most twelve.
        """
        resource = "blob" if blob else "folder" if folder else "container"
        return signatures.sign(
            self._key,
            containers.container(call.workspace.name, datastore),
            blob or folder,
            resource,
            permissions or _all_of(call),
            call.identity.user,
            call.identity.token_hash,
            self._clock.now(),
            timedelta(hours=hours),
        )

    def url(
        self,
        call: Call,
        datastore: str,
        path: str,
        write: bool = False,
        hours: float = 12,
        host_style: bool = True,
        by_v1: bool = False,
    ) -> str:
        """The signed URL of one blob, which need not exist yet.

        Args:
            write: it permits reading and writing.
            host_style: with the account in the host's place, where clients look for it; otherwise
                any program that opens URLs can use it.
            by_v1: SDK v1 will write by it, which extracts the blob's name from the URL without
            unquoting it, and quotes it itself.
        """
        query = self.sas(call, datastore, "rcw" if write else "r", hours, blob=path)
        quoted = _barely_quoted(path) if by_v1 else quote(path)
        return f"{self._container_url(call, datastore, host_style)}/{quoted}?{query}"

    def plain_url(self, call: Call, datastore: str, path: str, host_style: bool = True) -> str:
        """As `url`, without a signature."""
        return f"{self._container_url(call, datastore, host_style)}/{quote(path)}"

    def _container_url(self, call: Call, datastore: str, host_style: bool) -> str:
        workspace = call.workspace.name
        top = call.base
        if host_style:
            top = containers.account_url(call.base, workspace, self.storage_domain)
        return f"{top}/{containers.container(workspace, datastore)}"

    def suffix(self, call: Call) -> str:
        """The part after `https://ACCOUNT.blob.`, as the client reaches this server."""
        return containers.suffix(call.base, self.storage_domain)

    def pending_upload(self, call: Call) -> dict[str, Any]:
        """The response to `startPendingUpload`: a folder of the default datastore, and its
        signature.

        Clients write below the URL as if it were a container; the same person gets the same folder
        when they start the same upload again.
        """
        workspace = call.workspace.name
        identifier = "\n".join((workspace, call.path, call.identity.user)).encode()
        upload = hashlib.sha256(identifier).hexdigest()[:32]
        folder = upload_folder(upload)
        address = self.plain_url(call, BLOB_STORE, folder, host_style=False)
        query = self.sas(call, BLOB_STORE, "rcwl", folder=folder)
        account = containers.account(workspace)
        return {
            "pendingUploadId": upload,
            "pendingUploadType": "TemporaryBlobReference",
            "blobReferenceForConsumption": {
                "blobUri": address,
                "storageAccountArmId": storage_account_id(call, account),
                "credential": {"credentialType": "SAS", "sasUri": f"{address}?{query}"},
            },
        }

    def datastore_uri(self, call: Call, url: str) -> DatastoreUri | None:
        """As `datastore_uri_of`, in the workspace of a request."""
        return self.datastore_uri_of(call.workspace.name, url)

    def datastore_uri_of(self, workspace: str, url: str) -> DatastoreUri | None:
        """The place that the URL of a blob means, with or without its signature; None for a URL
        that this server did not hand out.

        Raises:
            NotFound: it is in another workspace, or its datastore was deleted.
        """
        if not url.lower().startswith(("https://", "http://")):
            return None
        match = _PLACE.fullmatch(unquote(urlsplit(url).path))
        if match is None:
            return None
        for store in datastores.list_in(self._db, self._stores, workspace):
            if containers.container(workspace, store.name) == match["container"]:
                return DatastoreUri(store.name, (match["path"] or "").strip("/"))
        raise NotFound(
            f"`{url.partition('?')[0]}` is not in a datastore of workspace `{workspace}`",
            "choose the workspace that it was uploaded to, or upload it again",
        )


def storage_account_id(call: Call, account: str) -> str:
    """The resource path of a storage account."""
    workspace = call.workspace
    return (
        f"/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/Microsoft.Storage/storageAccounts/{account}"
    )


def _all_of(call: Call) -> str:
    role = call.identity.role
    may_write = role is not None and role.rank >= MINIMUM_ROLE[Permission.UPLOAD].rank
    return signatures.ALL if may_write else signatures.READ


def _barely_quoted(path: str) -> str:
    """Quotes only the characters that would end the path of a URL."""
    return path.replace("?", "%3F").replace("#", "%23")


def links_of(context: AzureContext) -> Links:
    services, domain = context.services, context.storage_domain
    return Links(services.db, services.datastores, context.signing_key, services.clock, domain)


async def blob_links(request: Request) -> Links:
    """The FastAPI dependency."""
    return links_of(context_of(request))


BlobLinks = Annotated[Links, Depends(blob_links)]
