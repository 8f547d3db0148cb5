"""Collecting by scoring scripts, with Azure's own `azureml.ai.monitoring`.

Owns: whether a script collects by itself, what its instances need for it.
Leaves: receiving what it collects to in_instance/data_sidecar.py, requests to router/.
Always: a collection is written by the script or by the router, not by both.
"""

from __future__ import annotations

import json
from functools import lru_cache

from torchyard.base.blobs import SNAPSHOT_PREFIX, Blobs
from torchyard.base.errors import TorchyardError
from torchyard.endpoints.records import collected_data
from torchyard.endpoints.records.types import Deployment
from torchyard.endpoints.spec.data_collection import REQUEST, RESPONSE
from torchyard.endpoints.spec.deployment_spec import DeploymentSpec
from torchyard.jobs.services import FileServices

VARIABLE = "TORCHYARD_COLLECT"
_PACKAGE = b"azureml.ai.monitoring"
_MOST_BYTES = 1 << 20


def is_by_script(blobs: Blobs, spec: DeploymentSpec) -> bool:
    """Whether the deployment's code names Azure's package."""
    if spec.data_collector is None or spec.code is None:
        return False
    try:
        return _names_package(blobs, spec.code.code.removeprefix(SNAPSHOT_PREFIX))
    except (OSError, TorchyardError):
        return False  # the jobs of its instances say that it is gone


@lru_cache(maxsize=1000)
def _names_package(blobs: Blobs, snapshot: str) -> bool:
    return any(
        _PACKAGE in blobs.path(file.sha256).read_bytes()
        for file in blobs.snapshot(snapshot).files
        if file.path.endswith(".py") and file.size <= _MOST_BYTES
    )


def variables(
    services: FileServices, deployment: Deployment, spec: DeploymentSpec
) -> dict[str, str]:
    """What an instance's supervisor needs; empty where its script collects nothing."""
    if spec.data_collector is None or not is_by_script(
        services.blobs.of(deployment.workspace), spec
    ):
        return {}
    deployment_key = (deployment.workspace, deployment.endpoint, deployment.name)
    rates = {
        each.name: each.sampling_rate
        for each in spec.data_collector.collections
        if each.name not in (REQUEST, RESPONSE)
    }
    settings = {
        "folder": str(collected_data.folder_of(services.datastores, *deployment_key)),
        "source": f"/endpoints/{deployment.workspace}/{deployment.endpoint}"
        f"/deployments/{deployment.name}",
        "rolling": spec.data_collector.rolling_rate,
        "max_bytes": spec.own_settings.max_collected_bytes,
        "collections": rates,
    }
    return {VARIABLE: json.dumps(settings)} if rates else {}
