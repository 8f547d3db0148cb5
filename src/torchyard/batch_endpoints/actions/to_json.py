"""Batch endpoints and deployments as the native API shows them, in the words of their files.

Owns: the JSON of both.
Leaves: jobs to jobs/requests/to_json.py.
Always: no value of a secret variable is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchyard.base.documents import secret_variables
from torchyard.batch_endpoints.records.types import BatchDeployment, BatchEndpoint
from torchyard.batch_endpoints.spec import deployment_spec
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentSpec
from torchyard.endpoints.actions.to_json import stored_json, with_model

_READY = "Succeeded"
_OF_SETTINGS = (
    "mini_batch_size", "max_concurrency_per_instance", "output_action", "output_file_name",
    "retry_settings", "error_threshold", "logging_level",
)  # fmt: skip


def endpoint_json(endpoint: BatchEndpoint) -> dict[str, Any]:
    own = {
        "auth_mode": "aad_token",
        "defaults": {"deployment_name": endpoint.default_deployment},
        "provisioning_state": _READY,
    }
    return stored_json(endpoint, endpoint.document, own)


def deployment_json(deployment: BatchDeployment, notices: Sequence[str] = ()) -> dict[str, Any]:
    spec = deployment_spec.read(deployment.document)
    masked = secret_variables.masked_document(deployment.document)
    document = {key: value for key, value in masked.items() if key not in _OF_SETTINGS}
    own = {
        "endpoint_name": deployment.endpoint,
        "type": "model",
        "compute": spec.compute or "local",
        "resources": {**spec.resources.others, "instance_count": spec.resources.instance_count},
        "settings": {**(masked.get("settings") or {}), **_settings_json(spec)},
        "provisioning_state": _READY,
    }
    shown = stored_json(deployment, with_model(document, spec.model), own)
    return {**shown, "notices": list(dict.fromkeys(notices))}


def _settings_json(spec: BatchDeploymentSpec) -> dict[str, Any]:
    settings = spec.settings
    return {
        "mini_batch_size": settings.mini_batch_size,
        "max_concurrency_per_instance": settings.max_concurrency_per_instance,
        "output_action": settings.output_action,
        "output_file_name": settings.output_file_name,
        "retry_settings": {"max_retries": settings.max_retries, "timeout": settings.timeout_s},
        "error_threshold": settings.error_threshold,
        "logging_level": settings.logging_level,
    }
