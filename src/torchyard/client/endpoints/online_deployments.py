"""Deployments of online endpoints, over HTTP.

Owns: which request each verb is, waiting until a deployment answers or has failed.
Leaves: what a document names on this machine to deployment_files.py.
Always: waiting ends with a state that stays, or with an error.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from torchyard.base.errors import InvalidInput, NotFound, Timeout, TorchyardError
from torchyard.base.http import Transport
from torchyard.client.resources import Json, Listing, Resource

if TYPE_CHECKING:
    from torchyard.client.drift.comparison import DriftReport
    from torchyard.client.snapshots.snapshots import Snapshots
    from torchyard.client.snapshots.upload import Progress
    from torchyard.client.times import Duration

_EVERY_S = 0.5
_LIMIT_S = 3600.0
_UNFINISHED = ("Creating", "Updating", "Deleting")


class DeploymentFailed(TorchyardError):
    """The deployment ended as Failed; its message says why."""

    code = "deployment_failed"
    http_status = 424
    exit_code = 1


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class OnlineDeployment(Resource):
    """`state` is Creating, Updating, Deleting, Succeeded or Failed; `message` says why. `model` is
    `azureml:<name>:<version>` where it is registered.
    """

    name: str
    endpoint_name: str
    state: str
    message: str
    instance_count: int
    revision: int
    owner: str
    notices: tuple[str, ...]

    _shown = ("name", "endpoint_name", "state")


class OnlineDeployments:
    """Deployments of online endpoints; `client.online_deployments` is one."""

    def __init__(self, transport: Transport, workspace_path: str, snapshots: Snapshots) -> None:
        self._transport = transport
        self._workspace_path = workspace_path
        self._path = f"{workspace_path}/online-endpoints"
        self._snapshots = snapshots

    def create(
        self,
        document: Mapping[str, Any],
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> OnlineDeployment:
        """Create the deployment `document["name"]` of `document["endpoint_name"]`, or replace its
        file. It is Creating or Updating then; `wait` for it.

        Args:
            document: as the file of a managed online deployment; local paths in it are relative to
                `folder`.
            folder: the current one when None.

        Raises:
            InvalidSpec: the document is wrong.
            NotFound: the endpoint does not exist.
        """
        from torchyard.client.endpoints import deployment_files

        path = self._at(*deployment_files.names_of(document))
        # What is refused by name is refused before its files are looked for and sent.
        self._transport.post(f"{path}/validate", dict(document))
        here = folder or Path.cwd()
        with deployment_files.uploading(document, here, self._snapshots, progress) as body:
            return _deployment(self._transport.put(path, body))

    def update(
        self, endpoint_name: str, name: str, changes: Mapping[str, Any], folder: Path | None = None
    ) -> OnlineDeployment:
        """Change single keys, such as `{"instance_count": 2}`; instances are replaced without a
        failed request.
        """
        from torchyard.client.endpoints import deployment_files

        path = self._at(endpoint_name, name)
        with deployment_files.uploading(changes, folder or Path.cwd(), self._snapshots) as body:
            return _deployment(self._transport.call("PATCH", path, body))

    def get(self, endpoint_name: str, name: str) -> OnlineDeployment:
        """
        Raises:
            NotFound: the deployment or its endpoint does not exist.
        """
        return _deployment(self._transport.get(self._at(endpoint_name, name)))

    def list(self, endpoint_name: str) -> Listing[OnlineDeployment]:
        """The deployments of an endpoint."""
        path = f"{self._path}/{quote(endpoint_name, safe='')}/deployments"
        return Listing(_deployment(row) for row in self._transport.get(path)["value"])

    def wait(
        self,
        deployment: OnlineDeployment,
        timeout_s: float = _LIMIT_S,
        tell: Callable[[OnlineDeployment], None] | None = None,
    ) -> OnlineDeployment:
        """Return once it answers.

        Args:
            tell: called with what it is after each look.

        Raises:
            DeploymentFailed: it failed; the message says why.
            Timeout: it is still on its way.
        """
        ends_at = time.monotonic() + timeout_s
        while deployment.state in _UNFINISHED:
            if time.monotonic() > ends_at:
                raise Timeout(
                    f"deployment `{deployment.name}` is still {deployment.state}",
                    f"see `yard online-deployment show -n {deployment.name} "
                    f"-e {deployment.endpoint_name}`",
                )
            time.sleep(_EVERY_S)
            deployment = self.get(deployment.endpoint_name, deployment.name)
            if tell is not None:
                tell(deployment)
        if deployment.state == "Failed":
            raise DeploymentFailed(
                f"deployment `{deployment.name}` failed: {deployment.message or 'see its logs'}",
                f"see `yard online-deployment get-logs -n {deployment.name} "
                f"-e {deployment.endpoint_name}`",
            )
        return deployment

    def delete(
        self, endpoint_name: str, name: str, wait: bool = True, timeout_s: float = 600.0
    ) -> None:
        """Delete a deployment that has no traffic.

        Args:
            wait: return when it is gone.

        Raises:
            Conflict: it has traffic.
        """
        self._transport.delete(self._at(endpoint_name, name))
        ends_at = time.monotonic() + timeout_s
        while wait:
            try:
                self.get(endpoint_name, name)
            except NotFound:
                return
            if time.monotonic() > ends_at:
                raise Timeout(f"deployment `{name}` is still being deleted", "try again later")
            time.sleep(_EVERY_S)

    def logs(self, endpoint_name: str, name: str, lines: int = 50, instance: str = "") -> str:
        """The last lines that an instance printed: one that answers, when `instance` is empty."""
        query = {"lines": lines, "instance": instance}
        raw = self._transport.get(f"{self._at(endpoint_name, name)}/logs", query)
        return str(raw["content"])

    def drift(
        self,
        endpoint_name: str,
        name: str,
        data: str | Path,
        *,
        since: Duration | None = None,
        columns: Sequence[str] = (),
        categorical: Sequence[str] = (),
        names: Sequence[str] = (),
        collection: str = "",
        thresholds: Mapping[str, float] | None = None,
        max_rows: int | None = None,
        seed: int = 0,
    ) -> DriftReport:
        """Compare what a deployment collected with the data that its model was trained on, column
        by column. Both are downloaded and compared here.

        Args:
            data: a file or folder here (CSV, JSON lines, parquet, MLTable), or a data asset as
                `name`, `name:version`, `name@latest`.
            since: how far back, such as `"24h"`; None for all that is kept.
            columns: those to compare; all that both have when empty.
            categorical: columns whose numbers are names.
            names: columns, in their order, of rows that were sent as lists; those of the model's
                signature, or of the training data, when empty.
            collection: `model_inputs`, or else `request`, when empty.
            thresholds: in place of single defaults, such as `{"psi": 0.2}`.
            max_rows: of each side, 50,000 when None; more are sampled with `seed`.

        Raises:
            InvalidInput: nothing is collected, too few rows, or no column is in both; or scipy is
                not installed: `pip install 'torchyard[drift]'`.
            NotFound: the deployment or the training data does not exist.

        Example::

            report = client.online_deployments.drift("digits", "blue", "digits-train:1")
            report.drifted
        """
        _require_scipy()
        from torchyard.client.data import Data
        from torchyard.client.drift import comparison
        from torchyard.client.drift.columns import thresholds_from

        options = comparison.DriftOptions(
            since, columns, categorical, names, collection, thresholds_from(thresholds or {}),
            comparison.MAX_ROWS if max_rows is None else max_rows, seed,
        )  # fmt: skip
        return comparison.compare(
            self._transport,
            Data(self._transport, self._workspace_path, self._snapshots),
            self._workspace_path,
            self._transport.get(self._at(endpoint_name, name)),
            data,
            options,
        )

    def _at(self, endpoint_name: str, name: str) -> str:
        endpoint, deployment = quote(endpoint_name, safe=""), quote(name, safe="")
        return f"{self._path}/{endpoint}/deployments/{deployment}"


def _require_scipy() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise InvalidInput(
            "drift is computed by scipy, which is not installed",
            "install it here: `pip install 'torchyard[drift]'`",
            code="extra_missing",
        )


def _deployment(raw: Json) -> OnlineDeployment:
    return OnlineDeployment(
        raw=raw,
        name=raw["name"],
        endpoint_name=raw["endpoint_name"],
        state=raw["provisioning_state"],
        message=raw["message"],
        instance_count=raw["instance_count"],
        revision=raw["revision"],
        owner=raw["owner"],
        notices=tuple(raw.get("notices") or ()),
    )
