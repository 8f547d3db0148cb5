"""What endpoints have in common, online and batch, and what their deployments have.

Owns: the requests of the verbs that are the same; what a deployment's document uploads.
Leaves: the fields of each kind, and its further verbs, to its own modules; what a document names on
this machine to deployment_files.py.
Always: names in a path are quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.resources import Json, Listing, Resource, texts

if TYPE_CHECKING:
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Deployment(Resource):
    """A deployment; `notices` say what has no effect, or another than in Azure."""

    name: str
    endpoint_name: str
    state: str
    owner: str
    notices: tuple[str, ...]


AnyEndpoint = TypeVar("AnyEndpoint", bound=Resource)
AnyDeployment = TypeVar("AnyDeployment", bound=Deployment)


class Endpoints(Generic[AnyEndpoint]):
    """Endpoints below `<workspace>/<kind>`."""

    kind = ""

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._path = f"{workspace_path}/{self.kind}"

    def create(self, document: Mapping[str, Any]) -> AnyEndpoint:
        """Create the endpoint `document["name"]`, or replace its file; its traffic, or its default
        deployment, stays unless the document has one.

        Raises:
            InvalidSpec: the document is wrong.
        """
        name = document.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidInput("an endpoint needs a name", "give one with `--name`", at=("name",))
        return self._changed(self._endpoint(self._transport.put(self._at(name), dict(document))))

    def update(self, name: str, changes: Mapping[str, Any]) -> AnyEndpoint:
        """Change single keys, such as `{"traffic": {"blue": 90, "green": 10}}` or, of a batch
        endpoint, `{"defaults": {"deployment_name": "green"}}`. When it returns, an online endpoint
        answers requests accordingly.

        Raises:
            InvalidSpec: traffic does not add up, or a deployment is named that does not exist.
        """
        raw = self._transport.call("PATCH", self._at(name), dict(changes))
        return self._changed(self._endpoint(raw))

    def get(self, name: str) -> AnyEndpoint:
        """
        Raises:
            NotFound: the endpoint does not exist.
        """
        return self._endpoint(self._transport.get(self._at(name)))

    def list(self) -> Listing[AnyEndpoint]:
        """The endpoints of the workspace."""
        return Listing(self._endpoint(row) for row in self._transport.get(self._path)["value"])

    def _endpoint(self, raw: Json) -> AnyEndpoint:
        raise NotImplementedError

    def _changed(self, endpoint: AnyEndpoint) -> AnyEndpoint:
        """As it is once a change has its effect."""
        return endpoint

    def _at(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


class Deployments(Generic[AnyDeployment]):
    """Deployments of the endpoints below `<workspace>/<kind>`."""

    kind = ""

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._workspace_path = workspace_path
        self._path = f"{workspace_path}/{self.kind}"
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> AnyDeployment:
        """Create the deployment `document["name"]` of `document["endpoint_name"]`, or replace its
        file. An online deployment is Creating or Updating then; `wait` for it. The first one of a
        batch endpoint becomes its default.

        Args:
            document: as the file of a deployment; local paths in it are relative to `folder`.
            folder: the current one when None.

        Raises:
            InvalidSpec: the document is wrong.
            NotFound: the endpoint does not exist.
        """
        from torchyard.client.endpoints import deployment_files

        path = self._at(*deployment_files.names_of(document))
        self._validate(path, document)
        here = folder or Path.cwd()
        with deployment_files.uploading(document, here, self._snapshots, progress) as body:
            return self._deployment(self._transport.put(path, body))

    def update(
        self, endpoint_name: str, name: str, changes: Mapping[str, Any], folder: Path | None = None
    ) -> AnyDeployment:
        """Change single keys, such as `{"instance_count": 2}` or, of a batch deployment,
        `{"settings": {"mini_batch_size": 50}}`. Instances are replaced without a failed request;
        jobs that are there stay as they are.
        """
        from torchyard.client.endpoints import deployment_files

        path = self._at(endpoint_name, name)
        with deployment_files.uploading(changes, folder or Path.cwd(), self._snapshots) as body:
            return self._deployment(self._transport.call("PATCH", path, body))

    def get(self, endpoint_name: str, name: str) -> AnyDeployment:
        """
        Raises:
            NotFound: the deployment or its endpoint does not exist.
        """
        return self._deployment(self._transport.get(self._at(endpoint_name, name)))

    def list(self, endpoint_name: str) -> Listing[AnyDeployment]:
        """The deployments of an endpoint."""
        path = f"{self._path}/{quote(endpoint_name, safe='')}/deployments"
        return Listing(self._deployment(row) for row in self._transport.get(path)["value"])

    def _deployment(self, raw: Json) -> AnyDeployment:
        raise NotImplementedError

    def _validate(self, path: str, document: Mapping[str, Any]) -> None:
        """Refuse what can be refused before files are looked for and sent."""

    def _at(self, endpoint_name: str, name: str) -> str:
        endpoint, deployment = quote(endpoint_name, safe=""), quote(name, safe="")
        return f"{self._path}/{endpoint}/deployments/{deployment}"


def deployment_fields(raw: Json) -> dict[str, Any]:
    """What `Deployment` holds, of an answer's JSON."""
    return {
        "raw": raw,
        "name": raw["name"],
        "endpoint_name": raw["endpoint_name"],
        "state": raw["provisioning_state"],
        "owner": raw["owner"],
        "notices": texts(raw, "notices"),
    }
