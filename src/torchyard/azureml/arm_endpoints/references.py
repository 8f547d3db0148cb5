"""What a deployment names, in Azure's JSON and in our file: code, model, environment, variables.

Owns: references to assets, both ways; variables whose values a client was not shown.
Leaves: all other keys to deployment_documents.py and batch_deployment_documents.py.
Always: what a client reads and puts again names the same; a hidden value stays as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from torchyard.azureml.arm import assets, job_resources
from torchyard.azureml.arm.job_documents import Reader
from torchyard.azureml.common.calls import Call, object_at
from torchyard.base import fields
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.documents import secret_variables
from torchyard.endpoints.spec.deployment_spec import CodeConfiguration, ModelReference

SnapshotOf = Callable[[Call, str], str]
"""The snapshot that a `codeId` stands for."""
NAMED = {
    "codeConfiguration": "code_configuration",
    "environmentId": "environment",
    "model": "model",
}
"""What a deployment names, by Azure's keys."""
# Not a resource: it stands for the model of a deployment of `yard` that has no name.
_UNNAMED_MODEL = "unnamed"


def named(
    call: Call,
    properties: Mapping[str, Any],
    model: Callable[[Call, Mapping[str, Any]], str],
    snapshot_of: SnapshotOf,
    before: Mapping[str, Any],
    shown: Mapping[str, Any],
) -> dict[str, Any]:
    """Model, code and environment; as they were where the client sends what it has read.

    Args:
        model: reads that of the kind.
        before: the deployment's file as it is, empty if there is none.
        shown: the properties that a client reads of it.
    """
    document: dict[str, Any] = {}
    for key, our_key in NAMED.items():
        if properties.get(key) is None:
            continue
        if shown.get(key) == properties[key]:
            document[our_key] = before[our_key]
        elif key == "model":
            document[our_key] = model(call, properties)
        elif key == "codeConfiguration":
            document[our_key] = _code(call, properties, snapshot_of)
        else:
            written = fields.text(properties, key, ("properties",))
            document[our_key] = reference(call, written, "environments")
    return document


def _code(call: Call, properties: Mapping[str, Any], snapshot_of: SnapshotOf) -> dict[str, Any]:
    """`code_configuration` of our file."""
    at = ("properties", "codeConfiguration")
    part = object_at(properties, "codeConfiguration")
    id, script = fields.text(part, "codeId", at), fields.text(part, "scoringScript", at)
    snapshot = f"{SNAPSHOT_PREFIX}{snapshot_of(call, id)}" if id else ""
    return {"code": snapshot, "scoring_script": script}


def code_json(call: Call, code: CodeConfiguration | None) -> dict[str, Any] | None:
    if code is None:
        return None
    snapshot = code.code.removeprefix(SNAPSHOT_PREFIX)
    return {
        "codeId": call.id("codes", snapshot, "versions", "1"),
        "scoringScript": code.scoring_script,
    }


def model_id(call: Call, model: ModelReference | None) -> str | None:
    if model is None:
        return None
    if model.name and model.version:
        return call.id("models", model.name, "versions", model.version)
    return call.id("models", _UNNAMED_MODEL, "versions", _hash(model.path))


def environment_id(call: Call, environment: str | Mapping[str, Any] | None) -> str | None:
    if environment is None or isinstance(environment, str):
        return assets.version_id(call, "environments", environment) if environment else None
    version = _hash(json.dumps(environment, sort_keys=True))
    return call.id("environments", job_resources.ANONYMOUS, "versions", version)


def reference(call: Call, written: str, type: str) -> str:
    """An asset as our file names it.

    Raises:
        NotFound: it is in another workspace.
    """
    reader = Reader(call.workspace.name, lambda code: code)
    reference = reader.reference(written, type)
    is_asset_id = reference.startswith(("azureml:", "azureml://"))
    return reference if is_asset_id or not reference or "/" in reference else f"azureml:{reference}"


def variables(properties: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables; a secret that the client was not shown stays what it is.

    Args:
        before: the deployment's file as it is, empty if there is none.
    """
    sent = fields.texts(properties, "environmentVariables", ("properties",))
    previous = fields.texts(before, "environment_variables")
    return {
        name: previous[name] if text == secret_variables.HIDDEN and name in previous else text
        for name, text in sent.items()
    }


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
