"""SDK v1's HyperDrive service: a HyperDriveConfig becomes a sweep.

Owns: reading the request, the responses about a sweep's start and end, their errors.
Leaves: the configuration to hyperdrive_configs.py and execution.py, the sweep to sweeps/, what a
`HyperDriveRun` reads of it to history/sweep_runs.py, resumed children to resumed_children.py.
Always: an error has a number and a text at its top, which is all that this client shows.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.errors import AzureRoute, NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.sdk_v1 import execution, forms, hyperdrive_configs, resumed_children
from torchyard.azureml.sdk_v1.run_configs import object_at
from torchyard.base.errors import InvalidInput
from torchyard.jobs import actions, owners
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services, ServicesOf
from torchyard.sweeps import actions as sweeps
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_FILE = "config.json"
_TRIAL_KEYS = (
    "command",
    "code",
    "environment",
    "environment_variables",
    "distribution",
    "resources",
)
_SWEEP_KEYS = ("compute", "inputs", "outputs", "properties")


class _NumberedErrors(AzureRoute):
    """A route whose errors also have `code` and `message` at the top."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            response = await handle(request)
            if response.status_code < 400:
                return response
            body = json.loads(bytes(response.body))
            top = {"code": response.status_code, "message": body["error"]["message"]}
            return JSONResponse({**body, **top}, response.status_code)

        return answer


routes = RouteTable("/hyperdrive/experiments/{experiment}", _NumberedErrors)


@routes.post("/runs", "/runs/{parent}", "/hdruns/{run_id}")
@needs(Permission.WRITE)
async def create(
    call: AzureCall,
    services: ServicesOf,
    request: Request,
    experiment: str,
    parent: str = "",
    run_id: str = "",
) -> JSONResponse:
    content_type = request.headers.get("content-type", "")
    config = forms.json_file(_FILE, content_type, await request.body())
    job = await run_in_threadpool(submit, services, call, experiment, config, run_id, parent)
    return JSONResponse({"code": 201, "result": _response(config, job)}, 201)


@routes.post("/runs/{name}/cancel")
@needs(Permission.JOB)
def cancel(call: AzureCall, services: ServicesOf, experiment: str, name: str) -> JSONResponse:
    owners.get_own(services, call.workspace.name, name, call.identity)
    actions.cancel(services, call.workspace.name, name)
    return JSONResponse({"code": 200, "result": "the run is being canceled"})


def submit(
    services: Services,
    call: Call,
    experiment: str,
    config: Mapping[str, Any],
    run_id: str = "",
    parent: str = "",
) -> Job:
    """The sweep that a HyperDriveConfig became.

    Args:
        run_id: what the user wants it to be called; empty for a new name.
        parent: the run that submits it; empty for none.

    Raises:
        InvalidInput: a part is missing or contradicts another.
        NotServed: a part that torchyard does not have.
    """
    sweep = hyperdrive_configs.sweep_keys(config)
    definition = object_at(object_at(config, "platform_config"), "Definition")
    configuration = object_at(definition, "Overrides")
    if not configuration:
        raise InvalidInput("the HyperDriveConfig has no run configuration", at=["platform_config"])
    if str(configuration.get("target") or "local").lower() == "local":
        raise NotServed("HyperDrive does not run on the target `local`", "name a compute target")
    snapshot_id = str(definition.get("SnapshotId") or "")
    job_file = execution.document_of(services, call, configuration, snapshot_id)
    names = sweep["search_space"]
    job_file["command"] = hyperdrive_configs.with_parameters(job_file["command"], names)
    timeout_s = job_file.get("limits", {}).get("timeout")
    if timeout_s:
        sweep["limits"]["trial_timeout"] = timeout_s
    document = {
        "type": sweeps.TYPE,
        "name": run_id or f"HD_{uuid.uuid4()}",
        "experiment_name": experiment,
        **sweep,
        **{key: job_file[key] for key in _SWEEP_KEYS if job_file.get(key)},
        "trial": {key: job_file[key] for key in _TRIAL_KEYS if job_file.get(key)},
    }
    if parent:
        document["parent_job_name"] = parent
    document = resumed_children.with_earlier_runs(services, call.workspace.name, config, document)
    job, _ = sweeps.create(services, call.workspace.name, document, call.identity)
    return job


def _response(config: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """What the request said, with the run's id."""
    platform = {**object_at(config, "platform_config"), "ParentRunId": job.name}
    keys = ("generator_config", "policy_config", "primary_metric_config", "platform")
    return {
        **{key: config.get(key) for key in keys},
        "name": job.experiment_name,
        "max_total_jobs": config.get("max_total_jobs"),
        "max_concurrent_jobs": config.get("max_concurrent_jobs"),
        "max_duration_minutes": config.get("max_duration_minutes"),
        "platform_config": platform,
        "experiment_id": job.name,
        "hyperdrive_run_id": job.name,
        "status": job.status.value,
    }
