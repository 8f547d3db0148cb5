"""Deployments of batch endpoints, over HTTP.

Owns: their fields, deleting them.
Leaves: the verbs of every deployment to endpoints/verbs.py.
Always: a deployment is ready when it is accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.client.endpoints.verbs import Deployment, Deployments, deployment_fields
from torchyard.client.resources import Json


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BatchDeployment(Deployment):
    """`notices` say what has no effect, or another than in Azure."""

    compute: str
    settings: Mapping[str, Any]

    _shown = ("name", "endpoint_name", "compute")


class BatchDeployments(Deployments[BatchDeployment]):
    """Deployments of batch endpoints; `client.batch_deployments` is one."""

    kind = "batch-endpoints"

    def delete(self, endpoint_name: str, name: str) -> None:
        """
        Raises:
            Conflict: it is the default, and the endpoint has others.
        """
        self._transport.delete(self._at(endpoint_name, name))

    def _deployment(self, raw: Json) -> BatchDeployment:
        return BatchDeployment(
            **deployment_fields(raw), compute=raw["compute"], settings=raw["settings"]
        )
