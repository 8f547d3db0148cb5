"""A batch deployment as an ARM resource, and our file of one that a client puts.

Owns: the properties of a batch deployment, both ways.
Leaves: what it names to references.py, the file's grammar to batch_endpoints/spec/, pinning to
batch_endpoints/actions/.
Always: what a client reads and puts again means the same deployment; no secret is shown, and a
hidden one stays as it is.

Source: https://learn.microsoft.com/rest/api/azureml/batch-deployments/create-or-update
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.arm.job_resources import duration
from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.arm_endpoints import references
from torchyard.azureml.arm_endpoints.batch_endpoint_documents import TYPE
from torchyard.azureml.arm_endpoints.references import SnapshotOf
from torchyard.azureml.common.calls import Call, object_at, refuse_others
from torchyard.base import fields
from torchyard.base.documents import secret_variables
from torchyard.base.errors import InvalidSpec
from torchyard.batch_endpoints.records.types import BatchDeployment
from torchyard.batch_endpoints.spec import deployment_spec
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentSpec

SETTINGS = {
    "errorThreshold": "error_threshold",
    "loggingLevel": "logging_level",
    "maxConcurrencyPerInstance": "max_concurrency_per_instance",
    "miniBatchSize": "mini_batch_size",
    "outputAction": "output_action",
    "outputFileName": "output_file_name",
}
"""Azure's names of the keys of `settings`."""
_RESOURCES = {
    "instanceCount": "instance_count",
    "instanceType": "instance_type",
    "shmSize": "shm_size",
    "dockerArgs": "docker_args",
    "properties": "properties",
}
_ACTIONS = {"append_row": "AppendRow", "summary_only": "SummaryOnly"}
_KEYS = (
    *SETTINGS, *references.NAMED, "retrySettings", "environmentVariables", "compute", "resources",
    "description", "properties", "provisioningState",
)  # fmt: skip
_BESIDE = ("properties", "tags", "sku", "location", "kind", "identity")
_OWN, _OWN_PREFIX = "torchyard", "torchyard."
_LOCAL = "local"


def read(
    call: Call, endpoint: str, name: str, before: BatchDeployment | None, snapshot_of: SnapshotOf
) -> dict[str, Any]:
    """Our file of the deployment that a PUT describes.

    Args:
        before: the deployment as it is, if there is one.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
        NotFound: it names something in another workspace, or code that is gone.
    """
    properties = {key: value for key, value in call.properties.items() if value is not None}
    _refuse_pipelines(properties)
    refuse_others(properties, _KEYS, ("properties",), " of a batch deployment")
    stored = {} if before is None else before.document
    shown = {} if before is None else _properties(call, before)
    document: dict[str, Any] = {"name": name, "endpoint_name": endpoint}
    settings = {SETTINGS[key]: value for key, value in properties.items() if key in SETTINGS}
    if "retrySettings" in properties:
        settings["retry_settings"] = retry_settings(properties)
    if settings:
        document["settings"] = settings
    document |= references.named(call, properties, _model, snapshot_of, stored, shown)
    document |= _texts(properties)
    if "environmentVariables" in properties:
        document["environment_variables"] = references.variables(properties, stored)
    if "compute" in properties:
        document |= _compute(call, properties)
    if "resources" in properties:
        document["resources"] = _resources(properties)
    if "description" in properties:
        document["description"] = properties["description"]
    return {**document, **_tags(call.document)}


def read_patch(call: Call) -> dict[str, Any]:
    """What a PATCH changes: tags and the description, as in Azure.

    Raises:
        InvalidSpec: another key.
    """
    part = object_at(call.document, "properties")
    for key in part:
        if key != "description" and part[key] is not None:
            raise InvalidSpec(
                f"`{key[:80]}` is not changed by a PATCH",
                "send the whole deployment by a PUT",
                at=("properties", key),
            )
    changes = _tags(call.document)
    if part.get("description") is not None:
        changes["description"] = fields.text(part, "description", ("properties",))
    return changes


def to_resource(call: Call, deployment: BatchDeployment) -> Resource:
    spec = deployment_spec.read(deployment.document)
    return Resource(
        (TYPE, deployment.endpoint, "deployments", deployment.name),
        _properties(call, deployment),
        deployment.created_at,
        deployment.owner,
        deployment.changed_at,
        {"location": call.workspace.location, "tags": dict(spec.tags)},
    )


def retry_settings(properties: Mapping[str, Any]) -> dict[str, Any]:
    """`retry_settings` of our file.

    Raises:
        InvalidSpec: a key that torchyard does not have.
    """
    part = object_at(properties, "retrySettings")
    table = {"maxRetries": "max_retries", "timeout": "timeout"}
    refuse_others(part, table, ("properties", "retrySettings"))
    return {table[key]: part[key] for key in table if part.get(key) is not None}


def _properties(call: Call, deployment: BatchDeployment) -> dict[str, Any]:
    spec = deployment_spec.read(deployment.document)
    document = secret_variables.masked_document(deployment.document)
    settings, resources = spec.settings, spec.resources
    return {
        "codeConfiguration": references.code_json(call, spec.code),
        "compute": call.id("computes", spec.compute or _LOCAL),
        "description": spec.description,
        "environmentId": references.environment_id(call, spec.environment),
        "environmentVariables": fields.texts(document, "environment_variables"),
        "errorThreshold": settings.error_threshold,
        "loggingLevel": settings.logging_level.capitalize(),
        "maxConcurrencyPerInstance": settings.max_concurrency_per_instance,
        "miniBatchSize": settings.mini_batch_size,
        "model": _model_json(call, spec),
        "outputAction": _ACTIONS[settings.output_action],
        "outputFileName": settings.output_file_name,
        "properties": _texts_json(spec),
        "provisioningState": "Succeeded",
        "resources": {
            "instanceCount": resources.instance_count,
            "instanceType": resources.others.get("instance_type"),
            "properties": {},
        },
        "retrySettings": {
            "maxRetries": settings.max_retries,
            "timeout": duration(settings.timeout_s),
        },
    }


def _model(call: Call, properties: Mapping[str, Any]) -> str:
    at = ("properties", "model")
    part = object_at(properties, "model")
    kind = fields.text(part, "referenceType", at) or "Id"
    if kind.lower() != "id":
        raise InvalidSpec(
            f"`model.referenceType` is `{kind[:40]}`",
            "register the model, and name it by `{referenceType: Id, assetId: …}`",
            code="not_served",
            at=(*at, "referenceType"),
        )
    return references.reference(call, fields.text(part, "assetId", at), "models")


def _model_json(call: Call, spec: BatchDeploymentSpec) -> dict[str, Any] | None:
    id = references.model_id(call, spec.model)
    return None if id is None else {"referenceType": "Id", "assetId": id}


def _texts(properties: Mapping[str, Any]) -> dict[str, Any]:
    """`properties`, and what stands below `torchyard:` in our file, which clients write there."""
    if "properties" not in properties:
        return {}
    texts = fields.texts(properties, "properties", ("properties",))
    own_properties = {
        key.removeprefix(_OWN_PREFIX): text
        for key, text in texts.items()
        if key.startswith(_OWN_PREFIX)
    }
    others = {key: text for key, text in texts.items() if not key.startswith(_OWN_PREFIX)}
    return {"properties": others, **({_OWN: own_properties} if own_properties else {})}


def _texts_json(spec: BatchDeploymentSpec) -> dict[str, str]:
    own_properties = (
        {} if spec.splits_failed_batches else {f"{_OWN_PREFIX}split_failed_batches": "false"}
    )
    return {**spec.properties, **own_properties}


def _compute(call: Call, properties: Mapping[str, Any]) -> dict[str, Any]:
    reader = Reader(call.workspace.name, lambda code: code)
    name = reader.name_of(fields.text(properties, "compute", ("properties",)), "computes")
    return {"compute": f"azureml:{name}"} if name else {}


def _resources(properties: Mapping[str, Any]) -> dict[str, Any]:
    """An unknown key stays as it is: the file's table refuses it by name."""
    part = object_at(properties, "resources")
    return {
        _RESOURCES.get(key, key): value
        for key, value in part.items()
        if value not in (None, "", {}, [])
    }


def _tags(document: Mapping[str, Any]) -> dict[str, Any]:
    refuse_others(document, _BESIDE)
    return {} if document.get("tags") is None else {"tags": fields.texts(document, "tags")}


def _refuse_pipelines(properties: Mapping[str, Any]) -> None:
    if properties.get("deploymentConfiguration"):
        raise InvalidSpec(
            "a pipeline component behind a batch endpoint is not served",
            "submit the pipeline's steps as jobs, or deploy the model of its last step",
            code="not_served",
            at=("properties", "deploymentConfiguration"),
        )
