"""Names of datastores for Azure's storage clients.

Owns: the account of a workspace, the container of a datastore, a workspace's GUID.
Leaves: the content of a container to the blob service.
Always: a name depends only on workspace and datastore, and no other path begins like it.

Source: https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-containers--blobs--and-metadata
"""

from __future__ import annotations

import hashlib
import re
import uuid
from urllib.parse import urlsplit

from torchyard.data.datastores import BLOB_STORE

_DIGITS = 20
CONTAINER = re.compile(rf"azureml-(?:blobstore-)?[0-9a-f]{{{_DIGITS}}}")
ACCOUNT = re.compile(r"torchyard[0-9a-f]{8}")


def container(workspace: str, datastore: str) -> str:
    """The container of a datastore; it follows Azure's rules for names (3 to 63 of a-z 0-9 -)."""
    identifier = f"{workspace.lower()}/{datastore}".encode()
    middle = "blobstore-" if datastore == BLOB_STORE else ""
    return f"azureml-{middle}{hashlib.sha256(identifier).hexdigest()[:_DIGITS]}"


def account(workspace: str) -> str:
    """The storage account of a workspace's containers."""
    return "torchyard" + hashlib.sha256(workspace.lower().encode()).hexdigest()[:8]


def suffix(base: str, domain: str) -> str:
    """What clients append to `https://ACCOUNT.blob.` to reach the server at `base`.

    Args:
        domain: storage accounts are host names below it; empty for the form that needs no DNS: the
            part before an `@` in a URL is not a host.
    """
    if not domain:
        return f"@{base.partition('://')[2]}"
    port = urlsplit(base).port
    return domain if ":" in domain or port is None else f"{domain}:{port}"


def account_url(base: str, workspace: str, domain: str) -> str:
    """The URL of a workspace's containers, as clients derive it from the account's name."""
    return f"{base.partition('://')[0]}://{account(workspace)}.blob.{suffix(base, domain)}"


def workspace_guid(server_id: str, workspace: str) -> str:
    """The GUID of a workspace of this server, the same for its whole life."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"torchyard:{server_id}/{workspace.lower()}"))
