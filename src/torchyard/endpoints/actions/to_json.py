"""Endpoints and deployments as the native API shows them, in the words of their files.

Owns: the JSON of both.
Leaves: Azure's forms of them to azureml/arm/.
Always: no key, token or value of a secret variable is in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torchyard.base.clock import to_text
from torchyard.base.documents import secret_variables
from torchyard.endpoints.records import address
from torchyard.endpoints.records.types import Deployment, Endpoint, Instance, Stored
from torchyard.endpoints.spec import deployment_spec
from torchyard.endpoints.spec.deployment_spec import ModelReference


def endpoint_json(home: Path, endpoint: Endpoint) -> dict[str, Any]:
    url = address.of_endpoint(home, endpoint.workspace, endpoint.name)
    own = {
        "auth_mode": endpoint.auth_mode.value,
        "traffic": dict(endpoint.traffic),
        "mirror_traffic": dict(endpoint.mirror_traffic),
        "provisioning_state": endpoint.state.value,
        "message": endpoint.message,
        "scoring_uri": url and f"{url}/score",
        "openapi_uri": url and f"{url}/swagger.json",
    }
    return stored_json(endpoint, endpoint.document, own)


def deployment_json(
    deployment: Deployment, instances: Sequence[Instance], notices: Sequence[str] = ()
) -> dict[str, Any]:
    spec = deployment_spec.read(deployment.document)
    own = {
        "endpoint_name": deployment.endpoint,
        "instance_count": spec.instance_count,
        "provisioning_state": deployment.state.value,
        "message": deployment.message,
        "revision": deployment.revision,
        "served_revision": deployment.served_revision,
    }
    document = secret_variables.masked_document(deployment.document)
    return {
        **stored_json(deployment, with_model(document, spec.model), own),
        "instances": [_instance_json(instance) for instance in instances],
        "notices": list(dict.fromkeys(notices)),
    }


def stored_json(row: Stored, document: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that endpoints and deployments of every kind have, around a kind's own."""
    return {
        **document,
        "name": row.name,
        **own,
        "owner": row.owner,
        "created_at": to_text(row.created_at),
        "changed_at": to_text(row.changed_at),
    }


def with_model(document: dict[str, Any], model: ModelReference | None) -> dict[str, Any]:
    """The document with a registered model as `azureml:<name>:<version>`."""
    if model is None:
        return document
    reference = f"azureml:{model.name}:{model.version}"
    is_registered = model.name and model.version
    return {**document, "model": reference if is_registered else dict(document["model"])}


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
