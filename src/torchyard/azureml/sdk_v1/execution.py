"""SDK v1's execution service: a ScriptRunConfig becomes a job.

Owns: reading the request, the responses about its start and end.
Leaves: the configuration to run_configs.py, the job to jobs/, the target `local` to local_runs.py.
Always: the run has the id that the client chose; a repeated request returns the same run.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi.responses import JSONResponse

from torchyard.azureml.arm.computes import Computes
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.sdk_v1 import computes, environments, input_datasets, run_configs
from torchyard.azureml.sdk_v1.datasets import Datasets
from torchyard.azureml.sdk_v1.snapshots import Snapshots
from torchyard.base.errors import InvalidInput
from torchyard.compute.types import LOCAL
from torchyard.jobs import actions, owners
from torchyard.jobs.requests import submission
from torchyard.jobs.services import Services, ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

routes = RouteTable("/execution/experiments/{experiment}")


@routes.post("/snapshotrun")
@needs(Permission.WRITE)
def start(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    return JSONResponse({"runId": submit(services, call, experiment)})


@routes.post("/snapshotprepare")
@needs(Permission.WRITE)
def prepare(call: AzureCall, experiment: str) -> JSONResponse:
    raise NotServed(
        "a run that only prepares its target is not served",
        "build the environment with `yard environment build`",
    )


@routes.post("/startrun")
@needs(Permission.WRITE)
def start_from_zip(call: AzureCall, experiment: str) -> JSONResponse:
    raise NotServed(
        "a run with its code in a zip file is not served", "unset AML_FORCE_EXECUTE_WITH_ZIP"
    )


@routes.post("/runs/{name}/cancel")
@needs(Permission.JOB)
def cancel(call: AzureCall, services: ServicesOf, experiment: str, name: str) -> JSONResponse:
    owners.get_own(services, call.workspace.name, name, call.identity)
    actions.cancel(services, call.workspace.name, name)
    return JSONResponse({})


def submit(services: Services, call: Call, experiment: str) -> str:
    """The id of the run that a submitted configuration became."""
    configuration = call.document.get("Configuration")
    if not isinstance(configuration, Mapping):
        raise InvalidInput("the request has no `Configuration`")
    if str(configuration.get("target") or "local").lower() == "local":
        raise NotServed(
            "the client, not the server, starts a run on the target `local`",
            "submit it by `Experiment.submit`, or name a compute target",
        )
    document = document_of(
        services, call, configuration, str(call.document.get("SnapshotId") or "")
    )
    document = named(call, document, experiment, call.document)
    job, _ = submission.create(services, call.workspace.name, document, call.identity)
    return job.name


def named(
    call: Call, document: Mapping[str, Any], experiment: str, request: Mapping[str, Any]
) -> dict[str, Any]:
    """A job file with the name, the experiment and the parent that the client chose."""
    names = {
        "name": call.query.get("runId"),
        "experiment_name": experiment,
        "parent_job_name": request.get("ParentRunId"),
    }
    return {**document, **{key: value for key, value in names.items() if value}}


def document_of(
    services: Services, call: Call, configuration: Mapping[str, Any], snapshot_id: str
) -> dict[str, Any]:
    """The job file that a run configuration stands for, without name and experiment.

    Args:
        snapshot_id: of its code, by the client's id; empty for none.

    Raises:
        InvalidInput: a part contradicts another.
        NotServed: a part that torchyard does not have.
        NotFound: it names something that does not exist.
    """
    workspace, datasets = call.workspace.name, Datasets(services)
    environment = configuration.get("environment")
    document: dict[str, Any] = run_configs.job_document(
        configuration,
        environments.for_job(
            services.environments,
            services.clock,
            call,
            environment if isinstance(environment, Mapping) else {},
        ),
        partial(datasets.of_configuration, workspace),
        partial(datasets.of_reference, workspace),
    )
    if computes.is_local(Computes(services), call, document["compute"]):
        document["compute"] = LOCAL
    properties = input_datasets.properties_of(datasets, workspace, configuration)
    if snapshot_id:
        snapshot = Snapshots(services.blobs, services.datastores).find(workspace, snapshot_id)
        document["code"] = f"snapshot:{snapshot.id}"
        properties["ContentSnapshotId"] = snapshot_id
    if properties:
        document["properties"] = properties
    return document
