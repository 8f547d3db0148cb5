"""What a client posts to score files, and the job that it gets.

Owns: the JSON of both; the name of a job that a client may ask for twice.
Leaves: what an invocation may name to batch_endpoints/spec/, inputs to arm/job_documents.py.
Always: a request that is sent again, with the same id, is answered with the same job.

Source: the requests of azure-ai-ml 1.35, 1.20 and 1.12.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.arm.job_documents import OUTPUT_MODES, Reader, choice_of
from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.arm_endpoints.batch_deployment_documents import SETTINGS, retry_settings
from torchyard.azureml.arm_endpoints.batch_endpoint_documents import TYPE
from torchyard.azureml.common.calls import Call, object_at, refuse_others
from torchyard.base import fields
from torchyard.base.errors import InvalidSpec, TorchyardError
from torchyard.batch_endpoints.spec.invocation import OUTPUT
from torchyard.jobs.records.types import Job

_TOP = ("properties",)
_SAME = {
    "name": "job_name",
    "displayName": "display_name",
    "description": "description",
    "tags": "tags",
}
_READERS = ("inputData", "outputData", "outputDataset", "compute", "properties", "retrySettings")
_OF_COMPUTE = ("instanceCount", "target", "isLocal")
_FILE, _FOLDER = "urifile", "urifolder"
_NUMBERS = ("mini_batch_size", "error_threshold", "max_concurrency_per_instance")


def read(call: Call, deployment: str, request_id: str) -> dict[str, Any]:
    """Our invocation.

    Args:
        deployment: the one that the client chose; empty for the endpoint's default.
        request_id: the client's own for this request, the same when it sends it again.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
    """
    body = {key: value for key, value in call.properties.items() if value not in (None, "", {})}
    document: dict[str, Any] = {_SAME[key]: body[key] for key in _SAME if key in body}
    for key, setting in SETTINGS.items():
        if key in body:
            document[setting] = _number(body[key]) if setting in _NUMBERS else body[key]
    if "retrySettings" in body:
        document["retry_settings"] = retry_settings(body)
    refuse_others(body, (*_SAME, *SETTINGS, *_READERS), _TOP, " of an invocation")
    document.update(_inputs(call, body))
    document.update(_outputs(call, body))
    document.update(_compute(body))
    document.update(_texts(body))
    if deployment:
        document["deployment_name"] = deployment
    if "job_name" not in document and _is_uuid(request_id):
        # As Azure names them.
        document["job_name"] = f"batchjob-{request_id.lower()}"
    return document


def to_resource(endpoint: str, job: Job) -> Resource:
    return Resource(
        (TYPE, endpoint, "jobs", job.name),
        {"name": job.name, "status": job.status.value, "displayName": job.display_name},
        job.created_at,
        job.owner,
    )


def _inputs(call: Call, body: Mapping[str, Any]) -> dict[str, Any]:
    written = object_at(body, "inputData")
    for name, value in written.items():
        if isinstance(value, Mapping) and str(value.get("jobInputType")).lower() == "literal":
            raise InvalidSpec(
                f"input `{str(name)[:80]}` is a literal, and a model scores files",
                "name a folder or a file: `Input(type='uri_folder', path=…)`",
                at=(*_TOP, "inputData", str(name)),
            )
    reader = Reader(call.workspace.name, lambda code: code)
    try:
        read = reader.inputs(written)["inputs"]
    except TorchyardError as error:
        error.at = (*_TOP, "inputData", *tuple(error.at)[2:])
        raise
    return {"inputs": {name: value for name, value in read.items() if value is not None}}


def _outputs(call: Call, body: Mapping[str, Any]) -> dict[str, Any]:
    """Where the predictions go: a folder, whatever its name is; or a file in a folder."""
    output = _of_dataset(call, body)
    document: dict[str, Any] = {}
    written = object_at(body, "outputData")
    if len(written) > 1 or (written and output):
        raise InvalidSpec(
            "a model's job has one output", f"for example `{OUTPUT}`", at=(*_TOP, "outputData")
        )
    for name in written:
        at = (*_TOP, "outputData", str(name))
        part = object_at(written, name)
        kind = fields.text(part, "jobOutputType", at).replace("_", "").lower() or _FOLDER
        uri = fields.text(part, "uri", at)
        if kind == _FILE:
            uri, _, document["output_file_name"] = uri.rpartition("/")
        elif kind != _FOLDER:
            raise InvalidSpec(
                f"output `{str(name)[:80]}` is a `{kind[:40]}`", "use `uri_folder`", at=at
            )
        if uri:
            output["path"] = uri
        if part.get("mode"):
            output["mode"] = choice_of(str(part["mode"]), OUTPUT_MODES, (*at, "mode"))
    return {**document, "outputs": {OUTPUT: output}} if output else document


def _of_dataset(call: Call, body: Mapping[str, Any]) -> dict[str, Any]:
    """The older form: a datastore and a path in it."""
    part, at = object_at(body, "outputDataset"), (*_TOP, "outputDataset")
    if not part:
        return {}
    reader = Reader(call.workspace.name, lambda code: code)
    id = fields.text(part, "datastoreId", at).removeprefix("azureml:")
    store = reader.name_of(id, "datastores")
    path = fields.text(part, "path", at).strip("/")
    if not store:
        raise InvalidSpec(
            "`outputDataset` has no `datastoreId`", "name a datastore of this workspace", at=at
        )
    return {"path": f"azureml://datastores/{store}/paths/{path}"}


def _compute(body: Mapping[str, Any]) -> dict[str, Any]:
    part, at = object_at(body, "compute"), (*_TOP, "compute")
    refuse_others(part, _OF_COMPUTE, at)
    if part.get("target"):
        raise InvalidSpec(
            "an invocation does not choose its compute",
            "choose a deployment: it has one",
            code="not_served",
            at=(*at, "target"),
        )
    count = part.get("instanceCount")
    return {} if count is None else {"instance_count": _number(count)}


def _texts(body: Mapping[str, Any]) -> dict[str, Any]:
    texts = fields.texts(body, "properties", _TOP)
    experiment = texts.pop("experimentName", "")
    document: dict[str, Any] = {"experiment_name": experiment} if experiment else {}
    return {**document, "properties": texts} if texts else document


def _number(value: Any) -> Any:
    """Clients' `params_override` has texts; what isn't a number is refused by the file's table."""
    return int(value) if isinstance(value, str) and value.lstrip("-").isdecimal() else value


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False
