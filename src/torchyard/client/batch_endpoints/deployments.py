"""Deployments of batch endpoints, over HTTP.

Owns: which request each verb is.
Leaves: what a document names on this machine to endpoints/deployment_files.py.
Always: a deployment is ready when it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.base.http import Transport
from torchyard.client.resources import Json, Listing, Resource

if TYPE_CHECKING:
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchDeployment(Resource):
    """`notices` say what has no effect, or another than in Azure."""

    name: str
    endpoint_name: str
    state: str
    compute: str
    settings: Mapping[str, Any]
    owner: str
    notices: tuple[str, ...]

    _shown = ("name", "endpoint_name", "compute")


class BatchDeployments:
    """Deployments of batch endpoints; `client.batch_deployments` is one."""

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._path = f"{workspace_path}/batch-endpoints"
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> BatchDeployment:
        """Create the deployment `document["name"]` of `document["endpoint_name"]`, or replace its
        file. The first one becomes the endpoint's default.

        Args:
            document: as the file of a model deployment; local paths in it are relative to `folder`.
            folder: the current one when None.

        Raises:
            InvalidSpec: the document is wrong.
            NotFound: the endpoint does not exist.
        """
        from torchyard.client.endpoints import deployment_files

        here, path = folder or Path.cwd(), self._at(*deployment_files.names_of(document))
        with deployment_files.uploading(document, here, self._snapshots, progress) as body:
            return _deployment(self._transport.put(path, body))

    def update(
        self, endpoint_name: str, name: str, changes: Mapping[str, Any], folder: Path | None = None
    ) -> BatchDeployment:
        """Change single keys, such as `{"settings": {"mini_batch_size": 50}}`; jobs that are there
        stay as they are.
        """
        from torchyard.client.endpoints import deployment_files

        path = self._at(endpoint_name, name)
        with deployment_files.uploading(changes, folder or Path.cwd(), self._snapshots) as body:
            return _deployment(self._transport.call("PATCH", path, body))

    def get(self, endpoint_name: str, name: str) -> BatchDeployment:
        """
        Raises:
            NotFound: the deployment or its endpoint does not exist.
        """
        return _deployment(self._transport.get(self._at(endpoint_name, name)))

    def list(self, endpoint_name: str) -> Listing[BatchDeployment]:
        """The deployments of a batch endpoint."""
        path = f"{self._path}/{quote(endpoint_name, safe='')}/deployments"
        return Listing(_deployment(row) for row in self._transport.get(path)["value"])

    def delete(self, endpoint_name: str, name: str) -> None:
        """
        Raises:
            Conflict: it is the default, and the endpoint has others.
        """
        self._transport.delete(self._at(endpoint_name, name))

    def _at(self, endpoint_name: str, name: str) -> str:
        endpoint, deployment = quote(endpoint_name, safe=""), quote(name, safe="")
        return f"{self._path}/{endpoint}/deployments/{deployment}"


def _deployment(raw: Json) -> BatchDeployment:
    return BatchDeployment(
        raw=raw,
        name=raw["name"],
        endpoint_name=raw["endpoint_name"],
        state=raw["provisioning_state"],
        compute=raw["compute"],
        settings=raw["settings"],
        owner=raw["owner"],
        notices=tuple(raw.get("notices") or ()),
    )
