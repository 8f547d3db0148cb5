"""SDK v1's execution service: a ScriptRunConfig becomes a job.

Owns: reading the request, the answers about its start and end.
Leaves: the configuration to run_configs.py, the job to jobs/, the target `local` to local_runs.py.
Always: the run has the id that the client chose; asked again it is the same run.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute, NotServed
from torchyard.azureml.sdk_v1 import computes, environments, run_configs
from torchyard.azureml.sdk_v1.datasets import Datasets
from torchyard.azureml.sdk_v1.snapshots import Snapshots
from torchyard.base.errors import InvalidInput
from torchyard.compute.types import LOCAL
from torchyard.jobs import actions
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services


def routes(
    services: Services, snapshots: Snapshots, datasets: Datasets, caller: Caller
) -> APIRouter:
    """`/execution/v1.0`, the requests of Experiment.submit."""
    found = APIRouter(prefix="/execution/experiments/{experiment}", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.post("/snapshotrun")
    def start(call: the_call, experiment: str) -> JSONResponse:
        job = submit(services, snapshots, datasets, call, experiment)
        return JSONResponse({"runId": job})

    @found.post("/snapshotprepare")
    def prepare(call: the_call, experiment: str) -> JSONResponse:
        raise NotServed(
            "a run that only prepares its target is not served",
            "build the environment with `yard environment build`",
        )

    @found.post("/startrun")
    def zipped(call: the_call, experiment: str) -> JSONResponse:
        raise NotServed(
            "a run with its code in a zip file is not served", "unset AML_FORCE_EXECUTE_WITH_ZIP"
        )

    # `name`, for access.py sees by it whose the job is.
    @found.post("/runs/{name}/cancel")
    def cancel(call: the_call, experiment: str, name: str) -> JSONResponse:
        actions.cancel(services, call.workspace.name, name)
        return JSONResponse({})

    return found


def submit(
    services: Services, snapshots: Snapshots, datasets: Datasets, call: Call, experiment: str
) -> str:
    """The id of the run that a submitted configuration became."""
    configuration = call.document.get("Configuration")
    if not isinstance(configuration, Mapping):
        raise InvalidInput("the request has no `Configuration`")
    if str(configuration.get("target") or "local").lower() == "local":
        raise _outside()
    workspace = call.workspace.name
    asked = configuration.get("environment")
    environment = environments.for_job(
        services.environments, services.clock, call, asked if isinstance(asked, Mapping) else {}
    )
    document: dict[str, Any] = run_configs.job_document(
        configuration,
        environment,
        partial(datasets.of_configuration, workspace),
        partial(datasets.of_reference, workspace),
    )
    if computes.is_local(Computes(services), call, document["compute"]):
        document["compute"] = LOCAL
    document["name"] = call.query.get("runId") or None
    document["experiment_name"] = experiment
    snapshot_id = str(call.document.get("SnapshotId") or "")
    if snapshot_id:
        document["code"] = f"snapshot:{snapshots.find(workspace, snapshot_id).id}"
        document["properties"] = {"ContentSnapshotId": snapshot_id}
    if call.document.get("ParentRunId"):
        document["parent_job_name"] = call.document["ParentRunId"]
    document = {key: value for key, value in document.items() if value is not None}
    job, _ = submission.create(services, workspace, document, call.identity)
    return job.name


def _outside() -> NotServed:
    return NotServed(
        "a run on the target `local` is not the server's to start: the client starts it itself",
        "submit it by `Experiment.submit`, or name a compute target",
    )
