"""Azure's paths, translated before any route sees them.

Owns: which paths are Azure ML's, and the short form that routes are declared for.
Leaves: what a request means to the routes.
Always: Azure's words in a path may be in any case, and names keep their case; the api-version is
ignored.

    /subscriptions/S/resourceGroups/G/providers/Microsoft.MachineLearningServices/workspaces/W/jobs/J
        -> /azureml/W/arm/jobs/J; also with /mferp/managementfrontend before it
    /history/v1.0/subscriptions/S/…/workspaces/W/runs/R/details
        -> /azureml/W/history/runs/R/details
    /mlflow/v2.0/subscriptions/S/…/workspaces/W/api/2.0/mlflow/runs/get
        -> /mlflow/W/api/2.0/mlflow/runs/get
    /subscriptions/S/resourceGroups/G
        -> /azureml-above/subscriptions/S/resourcegroups/G
    /CONTAINER/folder/a b.txt, or with the account before it
        -> /azureml-blob/CONTAINER/folder/a%20b.txt
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from torchyard.azureml.common.containers import ACCOUNT, CONTAINER

PROVIDER = "Microsoft.MachineLearningServices"
SCOPE_KEY = "azureml"
"""Where a request's scope has its `AzurePath`."""

_IN_WORKSPACE = re.compile(
    r"(?:/mferp/managementfrontend|/(?P<service>[a-z]+)(?:/(?P<version>v\d+\.\d+|workspaces))?)?"
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+)"
    r"(?P<rest>/.*)?",
    re.IGNORECASE | re.DOTALL,
)
_BLOB = re.compile(
    rf"(?:/azureml-blob)?(?:/{ACCOUNT.pattern})?/(?P<container>{CONTAINER.pattern})(?:/(?P<blob>.*))?",
    re.DOTALL,
)
_ABOVE = re.compile(r"/subscriptions(?:/.*)?", re.IGNORECASE | re.DOTALL)
_PROVIDERS = re.compile(r"/providers/[^/]+")
ARM = "arm"
ABOVE = "/azureml-above"
"""The prefix of paths without a workspace: a workspace may be called `subscriptions`."""
# Scripts send one path again and again; of longer ones too much memory would be kept.
_KEPT_LENGTH = 200
# The plug-in still uses this older name for requests that only Azure answers.
_PREVIEW = "/api/2.0/preview/mlflow/"


@dataclass(frozen=True)
class AzurePath:
    """What an Azure path names besides the workspace; empty if it names nothing."""

    path: str
    subscription: str = ""
    resource_group: str = ""
    workspace: str = ""

    def with_workspace(self, workspace: str) -> AzurePath:
        """The same with the workspace's name as it is spelled here."""
        _, top, _, *below = self.path.split("/", 3)
        return replace(self, path="/".join(("", top, workspace, *below)), workspace=workspace)


def translate(path: str) -> AzurePath | None:
    """The short form of an Azure path; None for a path that is not Azure's."""
    return _translated(path) if len(path) > _KEPT_LENGTH else _kept(path)


def _translated(path: str) -> AzurePath | None:
    # SDK v1 appends a slash to a base URL that ends with one.
    path = "/" + path.lstrip("/") if path.startswith("//") else path
    match = _IN_WORKSPACE.fullmatch(path)
    if match is not None:
        service = (match["service"] or ARM).lower()
        below = match["rest"] or ""
        if service == ARM:
            below = _types_lowered(below)
        top = "/mlflow" if service == "mlflow" else "/azureml"
        middle = "" if service == "mlflow" else f"/{service}"
        if service == "mlflow":
            below = below.replace(_PREVIEW, "/api/2.0/mlflow/", 1)
        workspace = quote(match["workspace"], safe="")
        path = f"{top}/{workspace}{middle}{below}".rstrip("/")
        return AzurePath(path, match["subscription"], match["group"], workspace)
    blob = _BLOB.fullmatch(path)
    if blob is not None:
        # Quoted: a blob's name may contain characters with a meaning in URLs.
        name = quote(blob["blob"] or "", errors="replace")
        return AzurePath(f"/azureml-blob/{blob['container']}/{name}".rstrip("/") + _slashes(name))
    if _ABOVE.fullmatch(path):
        return AzurePath(f"{ABOVE}{_PROVIDERS.sub(_lower, _types_lowered(path))}".rstrip("/"))
    return None


_kept = lru_cache(maxsize=512)(_translated)


def _slashes(name: str) -> str:
    """Slashes at the end of a blob's name belong to it."""
    return name[len(name.rstrip("/")) :]


def _types_lowered(path: str) -> str:
    """ARM writes type, name, type, name …, and an action in the place of a type."""
    parts = path.split("/")
    return "/".join(part.lower() if index % 2 else part for index, part in enumerate(parts))


def _lower(match: re.Match[str]) -> str:
    return match[0].lower()


class Spellings(Protocol):
    """See workspaces/spellings.py."""

    def find_cached(self, name: str) -> str | None: ...

    def look_up(self, name: str) -> str: ...


class AzurePaths:
    """ASGI middleware, the outermost: everything else sees the translated path."""

    def __init__(self, app: ASGIApp, spellings: Spellings) -> None:
        self._app = app
        self._spellings = spellings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        azure_path = translate(scope["path"]) if scope["type"] == "http" else None
        if azure_path is not None:
            if azure_path.workspace:
                spelling = self._spellings.find_cached(azure_path.workspace)
                if spelling is None:
                    spelling = await run_in_threadpool(
                        self._spellings.look_up, azure_path.workspace
                    )
                azure_path = azure_path.with_workspace(spelling)
            path = azure_path.path
            scope = {**scope, "path": path, "raw_path": quote(path).encode(), SCOPE_KEY: azure_path}
        await self._app(scope, receive, send)
