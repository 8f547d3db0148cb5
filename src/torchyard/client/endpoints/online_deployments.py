"""Deployments of online endpoints, over HTTP.

Owns: waiting until a deployment answers or has failed, its logs and its drift.
Leaves: the verbs of every deployment to verbs.py.
Always: waiting ends with a state that stays, or with an error.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput, NotFound, Timeout, TorchyardError
from torchyard.client.endpoints.verbs import Deployment, Deployments, deployment_fields
from torchyard.client.resources import Json

if TYPE_CHECKING:
    from torchyard.client.drift.comparison import DriftReport
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
class OnlineDeployment(Deployment):
    """`state` is Creating, Updating, Deleting, Succeeded or Failed; `message` says why. `model` is
    `azureml:<name>:<version>` where it is registered.
    """

    message: str
    instance_count: int
    revision: int

    _shown = ("name", "endpoint_name", "state")


class OnlineDeployments(Deployments[OnlineDeployment]):
    """Deployments of online endpoints; `client.online_deployments` is one."""

    kind = "online-endpoints"

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

    def _deployment(self, raw: Json) -> OnlineDeployment:
        return OnlineDeployment(
            **deployment_fields(raw),
            message=raw["message"],
            instance_count=raw["instance_count"],
            revision=raw["revision"],
        )

    def _validate(self, path: str, document: Mapping[str, Any]) -> None:
        self._transport.post(f"{path}/validate", dict(document))


def _require_scipy() -> None:
    if importlib.util.find_spec("scipy") is None:
        raise InvalidInput(
            "drift is computed by scipy, which is not installed",
            "install it here: `pip install 'torchyard[drift]'`",
            code="extra_missing",
        )
