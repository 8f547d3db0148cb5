"""Our command job as an Azure resource.

Owns: the translation from a job and its document to Azure's JSON, key by key.
Leaves: the opposite direction to job_documents.py, runs in the run history to history/runs.py.
Always: what a client reads and puts again means the same job; no secret is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchyard.azureml.arm import assets
from torchyard.azureml.arm.job_documents import PRIORITIES
from torchyard.azureml.arm.resources import Resource
from torchyard.azureml.common.calls import Call
from torchyard.base import refs
from torchyard.base.errors import InvalidInput
from torchyard.data.types import MODEL_TYPES
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job
from torchyard.jobs.spec import secrets
from torchyard.jobs.spec.inputs import LITERAL, Input, Output
from torchyard.jobs.spec.job_spec import JobSpec

ANONYMOUS = "CliV2AnonymousEnvironment"
"""Azure's clients' name for an environment without a name."""

_SNAPSHOT = "snapshot:"
_DISTRIBUTIONS = {"pytorch": "PyTorch", "mpi": "Mpi", "tensorflow": "TensorFlow"}
_MODES = {
    "ro_mount": "ReadOnlyMount",
    "rw_mount": "ReadWriteMount",
    "mount": "ReadWriteMount",
    "upload": "Upload",
    "download": "Download",
    "direct": "Direct",
    "eval_mount": "EvalMount",
    "eval_download": "EvalDownload",
}
_IDENTITIES = {
    "amltoken": "AMLToken",
    "useridentity": "UserIdentity",
    "managed": "Managed",
    "managedidentity": "Managed",
}
_TIERS = {"spot": "Spot", "basic": "Basic", "standard": "Standard", "premium": "Premium"}
_RESOURCES = {"instance_type": "instanceType", "shm_size": "shmSize"}


def to_resource(
    call: Call, job: Job, environment_hash: str, params: Mapping[str, str] | None = None
) -> Resource:
    """
    Args:
        environment_hash: of the job's environment; needed if that has no name.
        params: what the job's script logged as its parameters.
    """
    properties = _command(call, job, environment_hash) if job.type == "command" else None
    if properties is not None and params:
        properties["parameters"] = job_masking.masked(job, dict(params))
    return Resource(
        ("jobs", job.name),
        # Not a job but a run: clients read it from the run history.
        properties,
        job.created_at,
        job.owner,
        job.ended_at or job.started_at,
    )


def anonymous(environment_hash: str) -> str:
    """The reference of an environment without a name."""
    return f"azureml:{ANONYMOUS}:{environment_hash}"


def duration(seconds: float) -> str:
    """Seconds as an ISO 8601 duration: `PT1H30M`, `PT45S`."""
    hours, remainder = divmod(round(seconds), 3600)
    minutes, seconds_left = divmod(remainder, 60)
    text = "".join(
        f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds_left, "S")) if n
    )
    return f"PT{text or '0S'}"


def services(call: Call, job: Job) -> dict[str, Any]:
    """The two links that clients show of every job."""
    host = call.base.partition("://")[2]
    page = f"{call.base}/runs/{quote(job.name)}?wsid={call.workspace_id}"
    return {
        "Tracking": {
            "jobServiceType": "Tracking",
            "endpoint": f"azureml://{host}/mlflow/v1.0{call.workspace_id}?",
        },
        "Studio": {"jobServiceType": "Studio", "endpoint": page},
    }


def _command(call: Call, job: Job, environment_hash: str) -> dict[str, Any]:
    read = job.spec
    masked = secrets.masked_document(job.document)
    described: dict[str, Any] = job_masking.masked(
        job,
        {
            "command": read.command,
            "displayName": job.display_name,
            "description": job.description,
            "tags": job.tags,
            "properties": job.properties,
            "experimentName": job.experiment_name,
        },
    )
    return {
        "jobType": "Command",
        "status": job.status.value,
        "isArchived": job.archived,
        **described,
        "codeId": _code(call, read.code),
        "computeId": call.id("computes", read.compute),
        "environmentId": _environment(call, read.environment, environment_hash),
        "environmentVariables": dict(masked.get("environment_variables") or {}),
        "distribution": _distribution(read),
        "inputs": _inputs(call, job, read.inputs),
        "outputs": {name: _output(call, output) for name, output in read.outputs.items()},
        "resources": _resources(read, job.document),
        "limits": _limits(read),
        "identity": _identity(job.document),
        "queueSettings": _queue(read, job.document),
        "parentJobName": read.parent_job_name or None,
        "services": services(call, job),
        "parameters": {},
    }


def _code(call: Call, code: str) -> str | None:
    """A snapshot is a code with the snapshot's id as its name."""
    snapshot = code.removeprefix(_SNAPSHOT)
    return call.id("codes", snapshot, "versions", "1") if snapshot else None


def _environment(call: Call, written: str | dict[str, Any], environment_hash: str) -> str:
    reference = written if isinstance(written, str) else anonymous(environment_hash)
    return _by_id(call, "environments", reference)


def _by_id(call: Call, type: str, reference: str) -> str:
    """The resource path of `azureml:name:version`; any other reference unchanged."""
    try:
        ref = refs.parse(reference)
    except InvalidInput:
        return reference
    if ref.registry or not ref.version:
        return reference
    return call.id(type, ref.name, "versions", ref.version)


def _inputs(call: Call, job: Job, inputs: Mapping[str, Input]) -> dict[str, Any]:
    documents = {name: _input(call, job_input) for name, job_input in inputs.items()}
    return dict(job_masking.masked(job, documents))


def _input(call: Call, job_input: Input) -> dict[str, Any]:
    if job_input.type == LITERAL:
        return {"jobInputType": LITERAL, "value": job_input.value}
    type = "models" if job_input.type in MODEL_TYPES else "data"
    path = assets.long_uri(call, job_input.path)
    if path.startswith("azureml:") and not path.startswith("azureml:/"):
        path = f"azureml:{_by_id(call, type, path)}"
    return {"jobInputType": job_input.type, "uri": path, "mode": _MODES[job_input.mode]}


def _output(call: Call, job_output: Output) -> dict[str, Any]:
    return {
        "jobOutputType": job_output.type,
        "uri": assets.long_uri(call, job_output.path) or None,
        "mode": _MODES[job_output.mode],
        "assetName": job_output.name or None,
        "assetVersion": job_output.version or None,
    }


def _distribution(read: JobSpec) -> dict[str, Any] | None:
    kind = _DISTRIBUTIONS.get(read.distribution)
    if kind is None:
        return None
    distribution: dict[str, Any] = {"distributionType": kind}
    if kind == "TensorFlow":
        tasks = read.instance_count * read.process_count_per_instance
        distribution["workerCount"] = tasks - read.parameter_servers
        distribution["parameterServerCount"] = read.parameter_servers
        return distribution
    distribution["processCountPerInstance"] = read.process_count_per_instance
    if read.communication_backend:
        distribution["communicationBackend"] = read.communication_backend
    return distribution


def _resources(read: JobSpec, document: Mapping[str, Any]) -> dict[str, Any]:
    written = document.get("resources") or {}
    fields = {
        key: written[field_name]
        for field_name, key in _RESOURCES.items()
        if written.get(field_name)
    }
    return {"instanceCount": read.instance_count, **fields, "properties": {}}


def _limits(read: JobSpec) -> dict[str, Any] | None:
    if not read.timeout_s:
        return None
    return {"jobLimitsType": "Command", "timeout": duration(read.timeout_s)}


def _identity(document: Mapping[str, Any]) -> dict[str, Any] | None:
    written = str((document.get("identity") or {}).get("type") or "")
    kind = _IDENTITIES.get(written.replace("_", "").lower())
    return None if kind is None else {"identityType": kind}


def _queue(read: JobSpec, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Only if the job has queue settings: clients of 1.12 do not know `priority`."""
    if not document.get("queue_settings"):
        return None
    numbers = {name: number for number, name in PRIORITIES.items()}
    return {"jobTier": _TIERS[read.job_tier], "priority": numbers[read.priority]}
