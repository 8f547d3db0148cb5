"""A web service as the files of an endpoint and of its deployment, and back.

Owns: `WebService`; which keys of both files say what; where SDK v1's own words are kept.
Leaves: the grammar of the files to endpoints/spec/, their rows to endpoints/records/.
Always: endpoint and deployment have the service's name; an endpoint that was not made so is not a
web service.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchyard.azureml.web_services import settings
from torchyard.azureml.web_services.images import Image
from torchyard.azureml.web_services.settings import ServiceSettings
from torchyard.base.errors import TorchyardError
from torchyard.endpoints.records.types import Deployment, Endpoint

MARK = "azureml.v1.webService"
"""The property of an endpoint that keeps SDK v1's words: the settings, and the models' ids."""
# Azure's services wait a minute; endpoints of SDK v2 five seconds.
_TIMEOUT_MS = 60_000
_MODELS = "modelIds"
_IMAGE_KEYS = ("model", "code_configuration", "environment", "environment_variables")
_PROBE_KEYS = {
    "initialDelaySeconds": "initial_delay",
    "periodSeconds": "period",
    "timeoutSeconds": "timeout",
    "successThreshold": "success_threshold",
    "failureThreshold": "failure_threshold",
}


@dataclass(frozen=True)
class WebService:
    """`raw` are the settings in the client's own JSON, `settings` the same read; `models` are ids,
    `name:version`.
    """

    name: str
    raw: Mapping[str, Any]
    settings: ServiceSettings
    models: tuple[str, ...] = ()
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)

    def with_settings(self, raw: Mapping[str, Any]) -> WebService:
        """
        Raises:
            NotServed, InvalidInput: as `settings.read`.
        """
        return replace(self, raw=raw, settings=settings.read(raw))


def is_web_service(endpoint: Endpoint) -> bool:
    """Whether it has the property, as SDK v1's routes write it: others may write any text."""
    if MARK not in _properties(endpoint):
        return False
    try:
        of_endpoint(endpoint)
    except (ValueError, TypeError, AttributeError, RecursionError, TorchyardError):
        return False
    return True


def of_endpoint(endpoint: Endpoint) -> WebService:
    properties = _properties(endpoint)
    raw = json.loads(properties.pop(MARK))
    models = tuple(raw.pop(_MODELS, ()))
    return WebService(
        name=endpoint.name,
        raw=raw,
        settings=settings.read(raw),
        models=models,
        description=str(endpoint.document.get("description") or ""),
        tags=dict(endpoint.document.get("tags") or {}),
        properties=properties,
    )


def endpoint_file(service: WebService) -> dict[str, Any]:
    description = {**service.raw, _MODELS: list(service.models)}
    return {
        "name": service.name,
        "auth_mode": "aml_token" if service.settings.token_auth else "key",
        "description": service.description,
        "tags": dict(service.tags),
        "properties": {**service.properties, MARK: json.dumps(description, sort_keys=True)},
    }


def deployment_file(service: WebService, image: Mapping[str, Any]) -> dict[str, Any]:
    """
    Args:
        image: the keys that say what is run, of `image_keys` or `kept_image_keys`.
    """
    chosen = service.settings
    requests = {
        "request_timeout_ms": chosen.timeout_ms or _TIMEOUT_MS,
        "max_concurrent_requests_per_instance": chosen.concurrent,
        "max_queue_wait_ms": chosen.queue_wait_ms,
    }
    # Container instances have nothing before them that would send requests away.
    if chosen.compute_type == settings.ACI:
        requests["max_queue_wait_ms"] = _TIMEOUT_MS
    placement = {"cluster": chosen.cluster, "gpus": chosen.gpus}
    document: dict[str, Any] = {
        "name": service.name,
        "endpoint_name": service.name,
        "tags": dict(service.tags),
        **image,
        "instance_count": chosen.replicas,
        "request_settings": {key: value for key, value in requests.items() if value is not None},
        "torchyard": {key: value for key, value in placement.items() if value},
    }
    if chosen.probe:
        document["liveness_probe"] = {_PROBE_KEYS[key]: chosen.probe[key] for key in chosen.probe}
    if chosen.scaler is not None:
        document["scale_settings"] = {
            "type": "target_utilization",
            "min_instances": chosen.scaler.least,
            "max_instances": chosen.scaler.most,
            "polling_interval": chosen.scaler.refresh_s,
            "target_utilization_percentage": chosen.scaler.utilization,
        }
    if chosen.collect:
        collections = {name: {"enabled": True} for name in ("model_inputs", "model_outputs")}
        document["data_collector"] = {"collections": collections}
    return document


def image_keys(image: Image) -> dict[str, Any]:
    keys: dict[str, Any] = {
        "model": image.model,
        "environment": image.environment,
        "environment_variables": dict(image.variables),
    }
    if image.code:
        keys["code_configuration"] = {"code": image.code, "scoring_script": image.scoring_script}
    return {key: value for key, value in keys.items() if value}


def kept_image_keys(deployment: Deployment) -> dict[str, Any]:
    """Those of a deployment that stays as it is otherwise."""
    return {key: deployment.document[key] for key in _IMAGE_KEYS if key in deployment.document}


def _properties(endpoint: Endpoint) -> dict[str, str]:
    return dict(endpoint.document.get("properties") or {})
