"""Our command job as the properties of an Azure resource.

Owns: the translation from a job and its document to Azure's JSON, key by key.
Leaves: the opposite direction to job_documents.py, sweeps to sweep_resources.py, the resource
around the properties to job_views.py, runs in the run history to history/runs.py.
Always: what a client reads and puts again means the same job; no secret is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from torchyard.azureml.arm import assets
from torchyard.azureml.arm.job_documents import PRIORITIES
from torchyard.azureml.common.calls import Call
from torchyard.base.documents import secret_variables
from torchyard.data.types import MODEL_TYPES, ONNX_TYPE
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.spec.inputs import LITERAL, Input, Output
from torchyard.jobs.spec.interactive_services import Service
from torchyard.jobs.spec.job_spec import JobSpec

ANONYMOUS = "CliV2AnonymousEnvironment"
"""Azure's clients' name for an environment without a name."""

_SNAPSHOT = "snapshot:"
DISTRIBUTIONS = {"pytorch": "PyTorch", "mpi": "Mpi", "tensorflow": "TensorFlow"}
MODES = {
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
TIERS = {"spot": "Spot", "basic": "Basic", "standard": "Standard", "premium": "Premium"}
SERVICE_TYPES = {
    "jupyter_lab": "JupyterLab",
    "tensor_board": "TensorBoard",
    "vs_code": "VSCode",
    "custom": "Custom",
}
_EMAIL_EVENTS = {"Completed": "JobCompleted", "Failed": "JobFailed", "Canceled": "JobCancelled"}
_RESOURCES = {"instance_type": "instanceType", "shm_size": "shmSize"}


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


def services(call: Call, job: Job, requested: Mapping[str, Service]) -> dict[str, Any]:
    """The two links that clients show of every job, and the services that it asked for; where
    those are, the run history says.
    """
    host = call.base.partition("://")[2]
    page = f"{call.base}/runs/{quote(job.name)}?wsid={call.workspace_id}"
    return {
        **{name: _service(service) for name, service in requested.items()},
        "Tracking": {
            "jobServiceType": "Tracking",
            "endpoint": f"azureml://{host}/mlflow/v1.0{call.workspace_id}?",
        },
        "Studio": {"jobServiceType": "Studio", "endpoint": page},
    }


def _service(service: Service) -> dict[str, Any]:
    extra = {"logDir": service.log_dir, "command": service.command}
    return {
        "jobServiceType": SERVICE_TYPES.get(service.type, "Custom"),
        "port": service.port or None,
        "nodes": {"nodesValueType": "All"} if service.all_nodes else None,
        "properties": {key: value for key, value in extra.items() if value},
    }


def command(call: Call, job: Job, environment_hash: str) -> dict[str, Any]:
    """The properties of a command job's resource.

    Args:
        environment_hash: of the job's environment; needed if that has no name.
    """
    read = parse_job(job).spec
    return {
        "jobType": "Command",
        "command": job_masking.masked(job, read.command),
        **trial_parts(call, read, job.document, environment_hash),
        **common_parts(call, job, read),
        "limits": _limits(read),
        "parameters": {},
    }


def trial_parts(
    call: Call, read: JobSpec, document: Mapping[str, Any], environment_hash: str
) -> dict[str, Any]:
    """What a sweep has in its trial, without the command."""
    masked = secret_variables.masked_document(document)
    return {
        "codeId": _code(call, read.code),
        "environmentId": _environment(call, read.environment, environment_hash),
        "environmentVariables": dict(masked.get("environment_variables") or {}),
        "distribution": _distribution(read),
        "resources": _resources(read, document),
    }


def common_parts(call: Call, job: Job, read: JobSpec) -> dict[str, Any]:
    """What every type of job has at its top."""
    return {
        **described(job),
        "computeId": call.id("computes", read.compute),
        "inputs": _inputs(call, job, read.inputs),
        "outputs": {name: _output(call, output) for name, output in read.outputs.items()},
        "identity": identity(job.document),
        "queueSettings": _queue(read, job.document),
        "notificationSetting": _notification(read),
        "parentJobName": read.parent_job_name or None,
        "services": services(call, job, read.services if job.has_ranks else {}),
    }


def described(job: Job) -> dict[str, Any]:
    """Status and labels, which every type of job has."""
    labels: dict[str, Any] = job_masking.masked(
        job,
        {
            "displayName": job.display_name,
            "description": job.description,
            "tags": job.tags,
            "properties": job.properties,
            "experimentName": job.experiment_name,
        },
    )
    return {"status": job.status.value, "isArchived": job.archived, **labels}


def _code(call: Call, code: str) -> str | None:
    """A snapshot is a code with the snapshot's id as its name."""
    snapshot = code.removeprefix(_SNAPSHOT)
    return call.id("codes", snapshot, "versions", "1") if snapshot else None


def _environment(call: Call, written: str | dict[str, Any], environment_hash: str) -> str:
    reference = written if isinstance(written, str) else anonymous(environment_hash)
    return assets.version_id(call, "environments", reference)


def _inputs(call: Call, job: Job, inputs: Mapping[str, Input]) -> dict[str, Any]:
    documents = {name: _input(call, job_input) for name, job_input in inputs.items()}
    return dict(job_masking.masked(job, documents))


def _input(call: Call, job_input: Input) -> dict[str, Any]:
    if job_input.type == LITERAL:
        return {"jobInputType": LITERAL, "value": job_input.value}
    uri = input_uri(call, job_input.type, job_input.path)
    return {"jobInputType": job_input.type, "uri": uri, "mode": MODES[job_input.mode]}


def input_uri(call: Call, type: str, path: str) -> str:
    """The path of an input as Azure writes it.

    Args:
        type: of the input.
    """
    uri = assets.long_uri(call, path)
    if not uri.startswith("azureml:") or uri.startswith("azureml:/"):
        return uri
    return f"azureml:{assets.version_id(call, 'models' if type in MODEL_TYPES else 'data', uri)}"


def output_type(type: str) -> str:
    """Azure's clients know no type for ONNX."""
    return "custom_model" if type == ONNX_TYPE else type


def _output(call: Call, job_output: Output) -> dict[str, Any]:
    return {
        "jobOutputType": output_type(job_output.type),
        "uri": assets.long_uri(call, job_output.path) or None,
        "mode": MODES[job_output.mode],
        "assetName": job_output.name or None,
        "assetVersion": job_output.version or None,
    }


def _distribution(read: JobSpec) -> dict[str, Any] | None:
    kind = DISTRIBUTIONS.get(read.distribution)
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


def identity(document: Mapping[str, Any]) -> dict[str, Any] | None:
    written = str((document.get("identity") or {}).get("type") or "")
    kind = _IDENTITIES.get(written.replace("_", "").lower())
    return None if kind is None else {"identityType": kind}


def _notification(read: JobSpec) -> dict[str, Any] | None:
    emails = [recipient for recipient in read.recipients if recipient.email]
    if not emails:
        return None
    return {
        "emailOn": [_EMAIL_EVENTS[status] for status in emails[0].on],
        "emails": [recipient.email for recipient in emails],
    }


def _queue(read: JobSpec, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """Only if the job has queue settings: clients of 1.12 do not know `priority`."""
    if not document.get("queue_settings"):
        return None
    numbers = {name: number for number, name in PRIORITIES.items()}
    return {"jobTier": TIERS[read.job_tier], "priority": numbers[read.priority]}
