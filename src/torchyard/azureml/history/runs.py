"""Jobs and runs as the run history tells them.

Owns: the JSON of a run, of its details and of its error.
Leaves: the routes to routes.py, jobs as ARM resources to arm/job_resources.py.
Always: an error says what `yard job show` says: cause, hint, rank and node, where in the user's
code, the last lines; no secret is shown.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from torchyard.azureml.arm import job_resources
from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Call
from torchyard.azureml.sdk_v1 import run_definitions
from torchyard.base.errors import TorchyardError
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.data.types import DATA_TYPES
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.job_events import notices_of
from torchyard.jobs.records.types import Job, JobError
from torchyard.jobs.requests import local_runs
from torchyard.jobs.services import Services

Link = Callable[[Call, str, str], str]
"""A signed link to a file of a datastore: (call, datastore, path)."""

_ASSET_TYPES = {
    "uri_file": "UriFile",
    "uri_folder": "UriFolder",
    "mltable": "MLTable",
    "custom_model": "CustomModel",
    "mlflow_model": "MLFlowModel",
    "triton_model": "TritonModel",
}
_AGENT = re.compile(r"azure-ai-ml/(\d{1,4})\.(\d{1,4})")
_PLAIN_TYPES_FROM = (1, 35)
# Lines of a traceback that are told; the rest is in the log.
_LINES = 40
_SERVICE = "torchyard"
_TRACEBACK = "Traceback (most recent call last)"


def container(job: str) -> str:
    """What Azure calls a run's folder of artifacts."""
    return f"dcid.{job}"


def to_json(call: Call, job: Job) -> dict[str, Any]:
    """A run, with every key that a client of SDK v1 or v2 reads."""
    started_by = {
        "userObjectId": _guid(job.owner),
        "userName": job.owner,
        "userTenantId": None,
        "upn": job.owner,
    }
    is_script = job.type == "command" or local_runs.is_local(job)
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
        "runType": "azureml.scriptrun" if is_script else "azureml.interactiverun",
        "runTypeV2": {
            "orchestrator": "Execution" if is_script else None,
            "traits": [],
            "attribution": None,
            "computeType": None,
        },
        "tags": job.tags,
        "properties": job.properties,
        "parameters": {},
        "target": _target(job),
        "primaryMetricName": None,
        "services": {},
        "inputDatasets": [],
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


def details(services: Services, call: Call, job: Job, link: Link) -> dict[str, Any]:
    """What `stream` asks for again and again: status, logs by their links, error, warnings."""
    notices = [
        {"source": _SERVICE, "message": message}
        for message in notices_of(actions.events(services, job))
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
        "tags": job.tags,
        "properties": job.properties,
        "parameters": {},
        "inputDatasets": [],
        "outputDatasets": [],
        "runDefinition": run_definitions.of(services.environments, job),
        "rootRunId": job.parent or job.name,
        "runNumber": job.id,
        "inputs": {},
        "outputs": outputs(job),
    }
    folder = artifacts_of(job.name)
    logs = {
        path: link(call, ARTIFACT_STORE, f"{folder}/{path}")
        for path, _ in artifacts.logs_of(services, job)
    }
    return {**_masked(job, body), "logFiles": logs}


def _target(job: Job) -> str | None:
    return local_runs.TARGET if local_runs.is_local(job) else job.compute or None


def error_json(call: Call, job: Job) -> dict[str, Any] | None:
    """Why a job failed, in the form that clients print as it is."""
    error = job.error
    if error is None:
        return None
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "details": [{"code": "Hint", "message": error.hint}] if error.hint else [],
            "additionalInfo": [{"type": _SERVICE, "info": info}] if (info := _info(error)) else [],
        },
        "componentName": _SERVICE,
        "location": call.workspace.location,
        "time": _time(job.ended_at),
    }


def outputs(job: Job, agent: str = "") -> dict[str, Any]:
    """The named outputs of a job, by an id that `batchGetResolvedUris` takes back.

    Args:
        agent: the User-Agent of who asks; azure-ai-ml knows types of data by other words from
            1.35 on.
    """
    if job.type != "command":
        return {}
    version = _AGENT.search(agent)
    plain = version is not None and (int(version[1]), int(version[2])) >= _PLAIN_TYPES_FROM
    found = {}
    for name, output in job.spec.outputs.items():
        type = _ASSET_TYPES[output.type]
        if plain:
            # Its way to ask for a model's place fails before it asks; files are found as data.
            type = output.type if output.type in DATA_TYPES else "uri_folder"
        found[name] = {"assetId": f"azureml://jobs/{job.name}/outputs/{name}", "type": type}
    return found


def definition(call: Call, job: Job) -> dict[str, Any] | None:
    """The job as its ARM resource's properties, for who asks for its specification."""
    found = job_resources.to_resource(call, job, "").properties
    return None if found is None else dict(found)


def _info(error: JobError) -> dict[str, Any]:
    told = error.details
    found: dict[str, Any] = {
        key: told[key]
        for key in ("rank", "node", "exit_code", "signal", "exception", "log")
        if told.get(key) not in (None, "")
    }
    lines = [str(line) for line in told.get("log_lines") or []]
    traceback = str(told.get("traceback") or "").rstrip()
    # Most tracebacks end the log, and are shown there as they were printed.
    if traceback and not any(_TRACEBACK in line for line in lines):
        found["traceback"] = traceback.splitlines()[-_LINES:]
    if lines:
        found["last_lines"] = lines
    if told.get("stood"):
        found["stood"] = [f"rank {one.get('rank')}: {one.get('where')}" for one in told["stood"]]
    return found


def _masked(job: Job, body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job_masking.masked(job, body)
    # Names are not words: one that holds a secret by chance stays what it is called.
    return {**found, "runId": job.name}


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else timestamp(moment)


def _guid(*words: str) -> str:
    """A GUID that these words always give."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "torchyard:" + "/".join(words)))


def refused(error: TorchyardError) -> dict[str, Any]:
    """What a batch answers for one of its things."""
    return {"code": error.code, "message": f"{error.message}. Hint: {error.hint}"}
