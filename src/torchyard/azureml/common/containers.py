"""What datastores are called towards Azure's storage clients.

Owns: the account of a workspace, the container of a datastore, a workspace's GUID.
Leaves: what lies in a container to the blob service.
Always: a name follows from workspace and datastore alone, and no other path begins like one.

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
    """The container that shows a datastore; Azure's rules for names hold (3 to 63 of a-z 0-9 -)."""
    identifier = f"{workspace.lower()}/{datastore}".encode()
    middle = "blobstore-" if datastore == BLOB_STORE else ""
    return f"azureml-{middle}{hashlib.sha256(identifier).hexdigest()[:_DIGITS]}"


def account(workspace: str) -> str:
    """The storage account that a workspace's containers lie in."""
    return "torchyard" + hashlib.sha256(workspace.lower().encode()).hexdigest()[:8]


def suffix(base: str, domain: str) -> str:
    """What clients put behind `https://ACCOUNT.blob.` to reach the server at `base`.

    Args:
        domain: storage accounts are host names below it; empty for the form that needs no DNS:
            what stands before an `@` in a URL is no host.
    """
    if not domain:
        return f"@{base.partition('://')[2]}"
    port = urlsplit(base).port
    return domain if ":" in domain or port is None else f"{domain}:{port}"


def account_url(base: str, workspace: str, domain: str) -> str:
    """Where a workspace's containers lie, as clients make it of the account's name."""
    return f"{base.partition('://')[0]}://{account(workspace)}.blob.{suffix(base, domain)}"


def workspace_guid(server_id: str, workspace: str) -> str:
    """The GUID that stands for a workspace of this server, the same for its whole life."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"torchyard:{server_id}/{workspace.lower()}"))
