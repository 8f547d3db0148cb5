"""Endpoints and deployments as the native API shows them, in the words of their files.

Owns: the JSON of both.
Leaves: Azure's forms of them to azureml/arm/.
Always: no key, token or value of a secret variable is in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchyard.base.clock import to_text
from torchyard.base.documents import secret_variables
from torchyard.endpoints.records import address
from torchyard.endpoints.records.types import Deployment, Endpoint, Instance
from torchyard.endpoints.spec import deployment_spec


def endpoint_json(home: Path, endpoint: Endpoint) -> dict[str, Any]:
    url = address.of_endpoint(home, endpoint.workspace, endpoint.name)
    return {
        **endpoint.document,
        "name": endpoint.name,
        "auth_mode": endpoint.auth_mode.value,
        "traffic": dict(endpoint.traffic),
        "mirror_traffic": dict(endpoint.mirror_traffic),
        "provisioning_state": endpoint.state.value,
        "message": endpoint.message,
        "scoring_uri": url and f"{url}/score",
        "openapi_uri": url and f"{url}/swagger.json",
        "owner": endpoint.owner,
        "created_at": to_text(endpoint.created_at),
        "changed_at": to_text(endpoint.changed_at),
    }


def deployment_json(
    deployment: Deployment, instances: Sequence[Instance], notices: Sequence[str] = ()
) -> dict[str, Any]:
    spec = deployment_spec.read(deployment.document)
    body: dict[str, Any] = {
        **secret_variables.masked_document(deployment.document),
        "name": deployment.name,
        "endpoint_name": deployment.endpoint,
        "instance_count": spec.instance_count,
        "provisioning_state": deployment.state.value,
        "message": deployment.message,
        "revision": deployment.revision,
        "served_revision": deployment.served_revision,
        "owner": deployment.owner,
        "created_at": to_text(deployment.created_at),
        "changed_at": to_text(deployment.changed_at),
        "instances": [_instance_json(instance) for instance in instances],
        "notices": list(dict.fromkeys(notices)),
    }
    model = spec.model
    if model is not None:
        reference = f"azureml:{model.name}:{model.version}"
        body["model"] = reference if model.name and model.version else dict(body["model"])
    return body


def _instance_json(instance: Instance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "revision": instance.revision,
        "state": instance.state.value,
        "message": instance.message,
        "job": instance.job,
        "starts": instance.starts,
        "created_at": to_text(instance.created_at),
    }
