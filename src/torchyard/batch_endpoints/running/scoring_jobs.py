"""The job that scores an invocation's files.

Owns: its document: command, inputs, output, what it is retried after.
Leaves: its code to programs.py, running it to jobs/.
Always: nothing that a person wrote is part of the command; a job that was interrupted goes on with
the mini-batches that are not done.
"""

from __future__ import annotations

from typing import Any

from torchyard.base.blobs import Blobs
from torchyard.batch_endpoints.running import programs
from torchyard.batch_endpoints.spec.deployment_spec import BatchDeploymentSpec
from torchyard.batch_endpoints.spec.invocation import OUTPUT, Invocation
from torchyard.jobs.spec.retry import INTERRUPTIONS

DATA, MODEL = "data", "model"
_MOST_ATTEMPTS = "20"
_COMMAND = f"exec python {programs.FOLDER}/{programs.START} --output ${{{{outputs.{OUTPUT}}}}}"


def template(blobs: Blobs, spec: BatchDeploymentSpec) -> dict[str, Any]:
    """The job of any invocation, without its data."""
    document: dict[str, Any] = {
        "command": _COMMAND,
        "code": programs.code_of(blobs, spec, "uri_folder"),
        "environment": spec.environment,
        "environment_variables": dict(spec.environment_variables),
        "resources": {**spec.resources.others, "instance_count": spec.resources.instance_count},
        "outputs": {OUTPUT: {"type": "uri_folder"}},
        "properties": {
            "torchyard.retry.max_attempts": _MOST_ATTEMPTS,
            "torchyard.retry.on": ", ".join(INTERRUPTIONS),
            "torchyard.retry.backoff_s": "5",
        },
    }
    if spec.compute:
        document["compute"] = spec.compute
    if spec.model is not None:
        document["command"] += f" --model ${{{{inputs.{MODEL}}}}}"
        model = {"type": spec.model.type, "path": spec.model.path, "mode": "download"}
        document["inputs"] = {MODEL: model}
    return document


def document_of(
    blobs: Blobs, spec: BatchDeploymentSpec, endpoint: str, request: Invocation
) -> dict[str, Any]:
    document = template(blobs, spec)
    document["command"] += f" --input ${{{{inputs.{DATA}}}}}"
    document["code"] = programs.code_of(blobs, spec, str(request.input["type"]))
    document["inputs"] = {**document.get("inputs", {}), DATA: dict(request.input)}
    document["outputs"] = {OUTPUT: {"type": "uri_folder", **request.output, "mode": "upload"}}
    document["experiment_name"] = request.experiment_name or endpoint
    document["display_name"] = request.display_name or f"{endpoint}/{spec.name}"
    document["description"] = request.description or spec.description
    document["tags"] = {**request.tags, "endpoint": endpoint, "deployment": spec.name}
    document["properties"] = {**document["properties"], **request.properties}
    if request.job_name:
        document["name"] = request.job_name
    return document
