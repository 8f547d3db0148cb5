"""A server, and requests as Azure's storage clients send them: by signed URLs, in the app."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

import httpx2

from torchyard.azureml.common import containers
from workspaces.served import Served

ARM = (
    "/subscriptions/local/resourceGroups/torchyard/providers"
    "/Microsoft.MachineLearningServices/workspaces/default"
)
STORE = containers.container("default", "workspaceblobstore")
ARTIFACTS = containers.container("default", "workspaceartifactstore")
BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}


def emptied(site: Served) -> None:
    """Creating a server takes longer than a test: it is shared, and its files are deleted."""
    for folder in ("datastores", "uploads"):
        shutil.rmtree(site.parts.services.home / folder, ignore_errors=True)


def sas(site: Served, user: str = "dan", datastore: str = "workspaceblobstore") -> str:
    """The signature that listSecrets returns to that person for a datastore."""
    created = site.ok(user, "POST", f"{ARM}/datastores/{datastore}/listSecrets", {})
    assert created["secretsType"] == "Sas"
    return str(created["sasToken"])


def send(
    site: Served,
    method: str,
    name: str,
    query: str,
    content: Any = None,
    headers: Mapping[str, str] | None = None,
    container: str = STORE,
) -> httpx2.Response:
    """One request for a blob, or for the container if `name` is empty; without a token."""
    path = f"/{container}/{_quoted(name)}" if name else f"/{container}"
    answer: Any = site.client.request(
        method, f"{path}?{query}", content=content, headers=dict(headers or {})
    )
    return answer  # type: ignore[no-any-return]


def _quoted(name: str) -> str:
    """So that the client does not normalize the path."""
    parts = (quote(part) for part in name.split("/"))
    return "/".join(part.replace(".", "%2E") if part in (".", "..") else part for part in parts)


def put(site: Served, name: str, content: bytes, query: str, **headers: str) -> httpx2.Response:
    """With headers as `meta_name="…"` for `x-ms-meta-name`, `blob_content_type` for that one."""
    by_name = {_header(key): value for key, value in headers.items()}
    answer = send(site, "PUT", name, query, content, {**BLOCK_BLOB, **by_name})
    assert answer.status_code == 201, answer.text
    return answer


def _header(key: str) -> str:
    if key.startswith("meta_"):
        return "x-ms-meta-" + key.removeprefix("meta_")
    return "x-ms-" + key.replace("_", "-")


def code(answer: httpx2.Response) -> tuple[int, str]:
    """The status, and Azure's code, which is the same in header and body."""
    code = str(answer.headers.get("x-ms-error-code", ""))
    if answer.request.method != "HEAD" and answer.content:
        root = ElementTree.fromstring(answer.content)
        assert root.findtext("Code") == code
        assert root.findtext("Message")
    return answer.status_code, code


def listed(answer: httpx2.Response) -> tuple[list[str], list[str], str]:
    """(blobs, prefixes, next marker) of a page."""
    assert answer.status_code == 200, answer.text
    root = ElementTree.fromstring(answer.content)
    blobs = [str(item.findtext("Name")) for item in root.iterfind("Blobs/Blob")]
    prefixes = [str(item.findtext("Name")) for item in root.iterfind("Blobs/BlobPrefix")]
    return blobs, prefixes, root.findtext("NextMarker") or ""


def block_id(number: int) -> str:
    return base64.b64encode(f"{number:032}".encode()).decode()


def block_list(*ids: str, where: str = "Latest") -> bytes:
    inside = "".join(f"<{where}>{item}</{where}>" for item in ids)
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{inside}</BlockList>'.encode()
