"""Jobs and runs in the run history.

Owns: the JSON of a run, of its details and of its error.
Leaves: the routes to run_routes.py, jobs as ARM resources to arm/job_views.py.
Always: an error says what `yard job show` says: cause, hint, rank and node, where in the user's
code, the last lines; no secret is shown.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from torchyard.azureml.arm import job_resources, job_views
from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Call
from torchyard.azureml.history import sweep_runs
from torchyard.azureml.sdk_v1 import input_datasets, run_definitions
from torchyard.base.db import Database
from torchyard.base.errors import TorchyardError
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.data.types import DATA_TYPES
from torchyard.interactive.running_services import ServiceState
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts, build_logs
from torchyard.jobs.files import outputs as job_outputs
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, JobError, parse_job
from torchyard.jobs.requests import local_runs
from torchyard.jobs.services import FileServices, RecordServices
from torchyard.jobs.spec import retry
from torchyard.sweeps import actions as sweeps

Link = Callable[[Call, str, str], str]
"""A signed link to a file of a datastore: (call, datastore, path)."""

_ASSET_TYPES = {
    "uri_file": "UriFile",
    "uri_folder": "UriFolder",
    "mltable": "MLTable",
    "custom_model": "CustomModel",
    "mlflow_model": "MLFlowModel",
    "triton_model": "TritonModel",
    "onnx_model": "CustomModel",
}
_AGENT = re.compile(r"azure-ai-ml/(\d{1,4})\.(\d{1,4})")
_PLAIN_TYPES_FROM = (1, 35)
# Lines of a traceback in an error; the rest is in the log.
_LINES = 40
# All others are the script's, the job file's or its environment's.
_OF_THE_SYSTEM = (
    *retry.INTERRUPTIONS,
    *("launch_failed", "engine_unreachable", "rendezvous_failed", "worker_failed"),
)
_SERVICE = "torchyard"
_TRACEBACK = "Traceback (most recent call last)"


def container(job: str) -> str:
    """Azure's name for a run's folder of artifacts."""
    return f"dcid.{job}"


def to_json(call: Call, job: Job) -> dict[str, Any]:
    """A run, with every key that a client of SDK v1 or v2 reads."""
    started_by = {
        "userObjectId": _guid(job.owner),
        "userName": job.owner,
        "userTenantId": None,
        "upn": job.owner,
    }
    is_script = job.has_ranks or local_runs.is_local(job)
    body = {
        "runNumber": job.id,
        "runId": job.name,
        "rootRunId": job.parent or job.name,
        "runUuid": _guid(job.workspace, job.name),
        "rootRunUuid": _guid(job.workspace, job.parent or job.name),
        "parentRunId": job.parent or None,
        "parentRunUuid": _guid(job.workspace, job.parent) if job.parent else None,
        "experimentId": str(job.experiment_id),
        "status": job.status.value,
        "createdUtc": timestamp(job.created_at),
        "startTimeUtc": _time(job.started_at),
        "endTimeUtc": _time(job.ended_at),
        "lastModifiedUtc": timestamp(job.ended_at or job.started_at or job.created_at),
        "createdBy": started_by,
        "lastModifiedBy": started_by,
        "userId": started_by["userObjectId"],
        "name": job.display_name,
        "displayName": job.display_name,
        "description": job.description,
        "dataContainerId": container(job.name),
        "hidden": job.archived,
        "runType": _run_type(job, is_script),
        "runTypeV2": {
            "orchestrator": _orchestrator(job, is_script),
            "traits": [],
            "attribution": None,
            "computeType": None,
        },
        "tags": _tags(call, job),
        "properties": _properties(job),
        "parameters": {},
        "target": _target(job),
        "primaryMetricName": None,
        "services": {},
        "inputDatasets": input_datasets.of_run(job.properties),
        "outputDatasets": [],
        "runDefinition": None,
        "error": error_json(call, job),
        "warnings": [],
        "heartbeatEnabled": False,
        "options": {"generateDataContainerIdIfNotSpecified": True},
        "isVirtual": False,
        "token": None,
        "tokenExpiryTimeUtc": None,
        "cancelUri": f"{call.base}/history/v1.0{call.workspace_id}/runs/{job.name}/cancel",
        "inputs": {},
        "outputs": outputs(job),
    }
    return _masked(job, body)


def service_instance(state: ServiceState, link: str) -> dict[str, Any]:
    """A service on one node; `link` opens it."""
    error = {"error": {"code": "ServiceFailed", "message": state.message}}
    return {
        "type": job_resources.SERVICE_TYPES.get(state.type, "Custom"),
        "port": state.port or None,
        "status": state.state,
        "error": error if state.state == "Failed" else None,
        "endpoint": link or None,
        "properties": {},
    }


def details(services: FileServices, call: Call, job: Job, link: Link) -> dict[str, Any]:
    """What `stream` repeatedly requests: status, links to logs, error, warnings."""
    notices = [
        {"source": _SERVICE, "message": message}
        for message in notices_of(actions.events(services.db, job))
    ]
    body = {
        "runId": job.name,
        "target": _target(job),
        "status": job.status.value,
        "parentRunId": job.parent or None,
        "createdTimeUtc": timestamp(job.created_at),
        "startTimeUtc": _time(job.started_at),
        "endTimeUtc": _time(job.ended_at),
        "services": {},
        "error": error_json(call, job),
        "warnings": notices,
        "tags": _tags(call, job),
        "properties": _properties(job),
        "parameters": {},
        "inputDatasets": input_datasets.of_run(job.properties),
        "outputDatasets": [],
        "runDefinition": run_definitions.definition_of(services.environments, job),
        "rootRunId": job.parent or job.name,
        "runNumber": job.id,
        "inputs": {},
        "outputs": outputs(job),
    }
    folder = artifacts_of(job.name)
    paths = [path for path, _ in artifacts.logs_of(services.logs, job)]
    if not paths and build_logs.is_there(services, job):
        paths = [build_logs.PATH]
    logs = {path: link(call, ARTIFACT_STORE, f"{folder}/{path}") for path in paths}
    return with_trials(services.db, job, {**_masked(job, body), "logFiles": logs})


def with_trials(db: Database, job: Job, run: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON of a run or of its details, with what is known of a sweep's trials."""
    if not sweep_runs.is_sweep(job):
        return dict(run)
    trial_tags = job_masking.masked(job, sweep_runs.trial_tags(sweeps.parameters(db, job)))
    return {**run, "tags": {**run["tags"], **trial_tags}}


def _run_type(job: Job, is_script: bool) -> str:
    if sweep_runs.is_sweep(job):
        return sweep_runs.RUN_TYPE
    return "azureml.scriptrun" if is_script else "azureml.interactiverun"


def _orchestrator(job: Job, is_script: bool) -> str | None:
    if sweep_runs.is_sweep(job):
        return "HyperDrive"
    return "Execution" if is_script else None


def _tags(call: Call, job: Job) -> dict[str, str | None]:
    """A tag without a value has null, as `run.tag("x")` sent it."""
    tags: dict[str, str | None] = {name: value or None for name, value in job.tags.items()}
    return {**tags, **sweep_runs.tags(call, job)} if sweep_runs.is_sweep(job) else tags


def _properties(job: Job) -> Mapping[str, str]:
    return sweep_runs.properties(job) if sweep_runs.is_sweep(job) else job.properties


def _target(job: Job) -> str | None:
    return local_runs.TARGET if local_runs.is_local(job) else job.compute or None


def error_json(call: Call, job: Job) -> dict[str, Any] | None:
    """The error of a job, in the form that clients print unchanged."""
    error = job.error
    if error is None:
        return None
    return {
        "error": {
            **_codes(error.code),
            "message": error.message,
            "details": [{"code": "Hint", "message": error.hint}] if error.hint else [],
            "additionalInfo": [{"type": _SERVICE, "info": info}] if (info := _info(error)) else [],
        },
        "componentName": _SERVICE,
        "location": call.workspace.location,
        "time": _time(job.ended_at),
    }


def _codes(code: str) -> dict[str, Any]:
    """Whose fault it is, which Azure's clients go by, with our code inside; a code that a client
    reported itself is a word of its own.
    """
    if code[:1].isupper():
        return {"code": code}
    outer = "SystemError" if code in _OF_THE_SYSTEM else "UserError"
    return {"code": outer, "innerError": {"code": code}}


def outputs(job: Job) -> dict[str, Any]:
    """The named outputs of a job, by an id that `batchGetResolvedUris` accepts."""
    if not job.has_ranks:
        return {}
    return {
        name: _output(job, name, _ASSET_TYPES[output.type])
        for name, output in parse_job(job).spec.outputs.items()
    }


def outputs_for(services: RecordServices, job: Job, agent: str) -> dict[str, Any]:
    """As `outputs`, with those of a pipeline, which its steps have made.

    Args:
        agent: the client's User-Agent; azure-ai-ml has other names for types of data from 1.35 on.
    """
    version = _AGENT.search(agent)
    plain = version is not None and (int(version[1]), int(version[2])) >= _PLAIN_TYPES_FROM
    if job.has_ranks:
        made = {name: (job, name) for name in parse_job(job).spec.outputs}
    else:
        made = job_outputs.makers(services, job)
    outputs_json = {}
    for name, (child, output) in made.items():
        type = parse_job(child).spec.outputs[output].type
        if plain:
            # Its code for a model's path fails before it sends a request; it finds files as data.
            written = type if type in DATA_TYPES else "uri_folder"
        else:
            written = _ASSET_TYPES[type]
        outputs_json[name] = _output(job, name, written)
    return outputs_json


def _output(job: Job, name: str, type: str) -> dict[str, str]:
    return {"assetId": f"azureml://jobs/{job.name}/outputs/{name}", "type": type}


def definition(call: Call, job: Job) -> dict[str, Any] | None:
    """The job as its ARM resource's properties, for clients that request its specification."""
    properties = job_views.to_resource(call, job, "").properties
    return None if properties is None else dict(properties)


def _info(error: JobError) -> dict[str, Any]:
    details = error.details
    info: dict[str, Any] = {
        key: details[key]
        for key in ("rank", "node", "exit_code", "signal", "exception", "log")
        if details.get(key) not in (None, "")
    }
    lines = [str(line) for line in details.get("log_lines") or []]
    traceback = str(details.get("traceback") or "").rstrip()
    # Most tracebacks end the log, which shows them as they were printed.
    if traceback and not any(_TRACEBACK in line for line in lines):
        info["traceback"] = traceback.splitlines()[-_LINES:]
    if lines:
        info["last_lines"] = lines
    if details.get("stood"):
        info["stood"] = [
            f"rank {rank.get('rank')}: {rank.get('where')}" for rank in details["stood"]
        ]
    return info


def _masked(job: Job, body: Mapping[str, Any]) -> dict[str, Any]:
    # Names are not masked: one that contains a secret by chance stays as it is.
    return {**job_masking.masked(job, body), "runId": job.name}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)


def _guid(*parts: str) -> str:
    """The GUID of these texts, always the same."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "torchyard:" + "/".join(parts)))


def batch_error_json(error: TorchyardError) -> dict[str, Any]:
    """The error of one item of a batch."""
    return {"code": error.code, "message": f"{error.message}. Hint: {error.hint}"}
