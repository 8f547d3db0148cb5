"""A web service and its operations in the JSON that azureml.core.webservice reads.

Owns: that JSON, the words for how a service is doing, ids of operations.
Leaves: models and environments in it to sdk_v1/.
Always: a secret value of an environment variable is not in it; what an operation says only follows
from the rows of endpoint and deployment, so that any server answers it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Call, object_at
from torchyard.azureml.sdk_v1 import environments, models
from torchyard.azureml.web_services import settings
from torchyard.azureml.web_services.actions import Deployed
from torchyard.base import refs
from torchyard.base.db import Database
from torchyard.base.documents import secret_variables
from torchyard.base.errors import NotFound, TorchyardError
from torchyard.endpoints.actions import deployments
from torchyard.endpoints.records import address
from torchyard.endpoints.records.types import (
    Deployment,
    Endpoint,
    InstanceState,
    ProvisioningState,
)
from torchyard.jobs.services import FileServices, RecordServices

CREATE, DELETE, KEYS = "create", "delete", "keys"
_OPERATION = re.compile(r"(create|delete|keys)-([A-Za-z0-9-]{1,64})-(\d{1,20})")
_RUNNING, _SUCCEEDED, _FAILED, _CANCELED = "Running", "Succeeded", "Failed", "Cancelled"
_PROBE = {
    "initialDelaySeconds": 10,
    "periodSeconds": 10,
    "timeoutSeconds": 2,
    "successThreshold": 1,
    "failureThreshold": 30,
}


def service_json(services: FileServices, call: Call, deployed: Deployed) -> dict[str, Any]:
    service, endpoint = deployed.service, deployed.endpoint
    url = address.of_endpoint(services.home, endpoint.workspace, endpoint.name)
    document: dict[str, Any] = {
        "id": service.name,
        "name": service.name,
        "description": service.description or None,
        "kvTags": dict(service.tags),
        "properties": dict(service.properties),
        "createdTime": timestamp(endpoint.created_at),
        "updatedTime": timestamp(_changed_at(deployed)),
        "createdBy": {"userObjectId": "", "userTenantId": "", "userName": endpoint.owner},
        "computeType": service.settings.compute_type,
        "state": _state(services, deployed),
        "error": _error(deployed),
        "scoringUri": f"{url}/score" if url else None,
        "authEnabled": not service.settings.token_auth,
        "appInsightsEnabled": service.settings.app_insights,
        "imageId": None,
        "imageDigest": None,
        "models": _models(services.db, call, deployed),
        "modelConfigMap": {},
        "environmentImageRequest": _image_request(services, deployed),
        "containerResourceRequirements": _resources(service.raw),
    }
    if service.settings.compute_type == settings.ACI:
        return {**document, **_aci(service.raw)}
    return {**document, **_aks(deployed)}


def operation_id(kind: str, endpoint: Endpoint, deployment: Deployment | None = None) -> str:
    """Of the creation of a deployment's revision, of the deletion of an endpoint, of new keys."""
    number = deployment.revision if deployment is not None else _stamp(endpoint)
    return f"{kind}-{endpoint.name}-{number}"


def parse_operation(id: str) -> tuple[str, str, int]:
    """Its kind, the service's name and the number.

    Raises:
        NotFound: no operation has such an id.
    """
    match = _OPERATION.fullmatch(id)
    if match is None:
        raise NotFound(f"operation `{id[:100]}` does not exist")
    return match[1], match[2], int(match[3])


def deletion_json(id: str, number: int, endpoint: Endpoint | None) -> dict[str, Any]:
    """
    Args:
        endpoint: the one that has the name now; another one, created later, is not its business.
    """
    is_there = endpoint is not None and _stamp(endpoint) == number
    return _operation(id, "DeleteService", _RUNNING if is_there else _SUCCEEDED)


def keys_json(id: str) -> dict[str, Any]:
    """Keys are replaced when the request is answered."""
    return _operation(id, "RegenerateKeys", _SUCCEEDED)


def creation_json(id: str, deployed: Deployed | None, offset: int) -> dict[str, Any]:
    """
    Args:
        deployed: None once the service was deleted.
        offset: how much of the log the client has, in characters.
    """
    deployment = deployed.deployment if deployed is not None else None
    if deployed is None or deployment is None or deployment.state is ProvisioningState.DELETING:
        return _operation(id, "DeployService", _CANCELED)
    states = {ProvisioningState.SUCCEEDED: _SUCCEEDED, ProvisioningState.FAILED: _FAILED}
    state = states.get(deployment.state, _RUNNING)
    document = _operation(id, "DeployService", state)
    document["createdTime"] = timestamp(deployment.changed_at)
    document["streamingOperationLog"] = _log(deployed, deployment, state)[max(offset, 0) :]
    if state == _FAILED:
        document["error"] = _error(deployed)
    return document


def _log(deployed: Deployed, deployment: Deployment, state: str) -> str:
    """Lines `YYYYmmddHHMMSS|text`, joined by `#`; it only grows while a revision is deployed."""
    texts = [
        *deployed.service.settings.notices,
        f"Starting revision {deployment.revision} on the server's compute",
    ]
    if state == _SUCCEEDED:
        texts.append("It is ready and takes all requests")
    when = deployment.changed_at.astimezone(timezone.utc).strftime("%Y%m%d%H%M%S")
    return "#".join(f"{when}|{text.replace('#', ' ').replace('|', ' ')}" for text in texts)


def _operation(id: str, kind: str, state: str) -> dict[str, Any]:
    return {
        "id": id,
        "operationType": "Service",
        "state": state,
        "error": None,
        "operationDetails": {"subOperationType": kind, "subOperationState": state},
        "streamingOperationLog": "",
    }


def _state(services: RecordServices, deployed: Deployed) -> str:
    deployment = deployed.deployment
    if deployed.endpoint.state is ProvisioningState.DELETING:
        return "Deleting"
    if deployment is None or deployment.state is ProvisioningState.FAILED:
        return "Failed"
    if deployment.state is not ProvisioningState.SUCCEEDED:
        return "Transitioning"
    there = deployments.instances_of(services, deployment)
    is_ready = any(each.state is InstanceState.READY for each in there)
    return "Healthy" if is_ready else "Unhealthy"


def _error(deployed: Deployed) -> dict[str, Any] | None:
    deployment = deployed.deployment
    if deployment is None:
        message = "it was never deployed completely: deploy it again with overwrite=True"
    elif deployment.state is ProvisioningState.FAILED:
        message = deployment.message
    else:
        return None
    detail = {"code": "DeploymentFailed", "message": message}
    return {**detail, "statusCode": 400, "details": [detail]}


def _changed_at(deployed: Deployed) -> datetime:
    deployment = deployed.deployment
    moments = [deployed.endpoint.changed_at]
    return max([*moments, deployment.changed_at] if deployment is not None else moments)


def _stamp(endpoint: Endpoint) -> int:
    return int(endpoint.created_at.timestamp() * 1_000_000)


def _models(db: Database, call: Call, deployed: Deployed) -> list[dict[str, Any]]:
    documents = []
    for id in deployed.service.models:
        # A model may have been deleted since: the service has its files.
        with suppress(NotFound):
            documents.append(models.to_json(models.find(db, call, id)))
    return documents


def _image_request(services: FileServices, deployed: Deployed) -> dict[str, Any] | None:
    if deployed.deployment is None:
        return None
    document = secret_variables.masked_document(deployed.deployment.document)
    environment = _environment(services, deployed.endpoint.workspace, document.get("environment"))
    variables = dict(document.get("environment_variables") or {})
    return {
        "modelIds": list(deployed.service.models),
        "environment": {**environment, "environmentVariables": variables},
        "assets": [],
        "driverProgram": object_at(document, "code_configuration").get("scoring_script"),
    }


def _environment(services: FileServices, workspace: str, written: Any) -> dict[str, Any]:
    """As azureml.core.Environment; the client asks of it only that there is one."""
    if isinstance(written, Mapping):
        return environments.to_json(services.environments, workspace, "service", "1", written)
    with suppress(TorchyardError):
        reference = refs.parse(str(written))
        return environments.environment_json(
            services.environments, workspace, reference.name, reference.version or "latest"
        )
    return environments.to_json(services.environments, workspace, "service", "1", {})


def _resources(raw: Mapping[str, Any]) -> dict[str, Any]:
    part = object_at(raw, "containerResourceRequirements")
    keys = ("cpu", "cpuLimit", "memoryInGB", "memoryInGBLimit", "gpu")
    return {key: part.get(key) for key in keys}


def _aci(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "location": raw.get("location") or "local",
        "cname": None,
        "publicIp": None,
        "publicFqdn": None,
        "sslEnabled": False,
        "sslCertificate": None,
        "sslKey": None,
    }


def _aks(deployed: Deployed) -> dict[str, Any]:
    chosen = deployed.service.settings
    scaler = chosen.scaler
    return {
        "aadAuthEnabled": chosen.token_auth,
        "autoScaler": {
            "autoscaleEnabled": scaler is not None,
            "minReplicas": scaler.least if scaler is not None else None,
            "maxReplicas": scaler.most if scaler is not None else None,
            "refreshPeriodInSeconds": scaler.refresh_s if scaler is not None else None,
            "targetUtilization": scaler.utilization if scaler is not None else None,
        },
        "computeName": chosen.cluster or "local",
        "dataCollection": {"storageEnabled": chosen.collect, "eventHubEnabled": False},
        "maxConcurrentRequestsPerContainer": chosen.concurrent or 1,
        "maxQueueWaitMs": 500 if chosen.queue_wait_ms is None else chosen.queue_wait_ms,
        "numReplicas": chosen.replicas,
        "scoringTimeoutMs": chosen.timeout_ms or 60_000,
        "livenessProbeRequirements": {**_PROBE, **(chosen.probe or {})},
        "namespace": None,
        "deploymentStatus": None,
        "isDefault": None,
        "trafficPercentile": None,
        "type": None,
    }
