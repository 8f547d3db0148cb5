"""SDK v1's target `local`: a run on the user's own machine, recorded here.

Owns: the request for one, and the requests of its program below `runs/{name}/local`.
Leaves: the run to jobs/requests/local_runs.py, the program's files to local_archive.py, the run's
inputs to local_inputs.py, what the program does to local_program/program.py.
Always: the script's folder stays on the user's machine, except for the snapshot that the client
sends; the server builds an environment only for a program that can read it there.

Source: azureml-core 1.61 sends two files, `definition.json` and `aml_config.zip`, and takes a zip.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.blob.links import BlobLinks
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.context import AzureContext, Context
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.sdk_v1 import (
    environments as v1_environments,
)
from torchyard.azureml.sdk_v1 import (
    forms,
    input_datasets,
    local_archive,
    local_configs,
    local_inputs,
    run_configs,
)
from torchyard.azureml.sdk_v1.datasets import Datasets
from torchyard.base import files
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.jobs import actions, owners
from torchyard.jobs.attempts import planner
from torchyard.jobs.files import log_quota
from torchyard.jobs.records.types import ENDED, Job, JobError, Status
from torchyard.jobs.requests import local_runs
from torchyard.jobs.services import FileServices, RecordServices, Services, ServicesOf
from torchyard.jobs.spec import values
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_DEFINITION = "definition.json"
_MAX_PATHS = 1000
_MAX_TEXT = 10_000
_REPORTED = (Status.PREPARING, Status.RUNNING, Status.FINALIZING, *ENDED)
_LOGS = ("user_logs/", "azureml-logs/", "logs/")


routes = RouteTable("/execution/experiments/{experiment}")
_RUN = "/runs/{name}/local"


@routes.post("/localrun")
@needs(Permission.WRITE)
async def start(
    call: AzureCall, services: ServicesOf, experiment: str, request: Request
) -> Response:
    definition = forms.json_file(
        _DEFINITION, request.headers.get("content-type", ""), await request.body()
    )
    is_local = _is_same_machine(request)
    archive = partial(_start, services, call, experiment, definition, is_local)
    return Response(await run_in_threadpool(archive), media_type="application/zip")


@routes.post("/localprepare")
@needs(Permission.WRITE)
def prepare(call: AzureCall, experiment: str) -> JSONResponse:
    raise NotServed(
        "a run that only prepares its target is not served",
        "build the environment with `yard environment build`",
    )


@routes.post(_RUN)
@needs(Permission.JOB)
def begin(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    job = _find(services, call, name)
    token = local_runs.begin(services, job, str(call.document.get("machine") or ""))
    return JSONResponse({"variables": _variables(services, call, job, token)})


@routes.post(f"{_RUN}/report")
@needs(Permission.JOB)
def report(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    job, document = _find(services, call, name), call.document
    status = actions.status_named(str(document.get("status")))
    if status not in _REPORTED:
        raise InvalidInput(f"a local run is never {status.value}", at=["status"])
    exit_code = document.get("exit_code")
    job = local_runs.report(
        services,
        job,
        status,
        exit_code if isinstance(exit_code, int) else None,
        _error(document.get("error")) if status is Status.FAILED else None,
    )
    return JSONResponse({"status": job.status.value})


@routes.put(f"{_RUN}/logs")
@needs(Permission.LOG)
def append_log(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    return _append(services, _find(services, call, name), call.document)


@routes.post(f"{_RUN}/places")
@needs(Permission.JOB)
def get_upload_urls(
    call: AzureCall, services: ServicesOf, links: BlobLinks, name: str
) -> JSONResponse:
    folder = artifacts_of(_find(services, call, name).name)
    paths = call.document.get("paths")
    if not isinstance(paths, list) or len(paths) > _MAX_PATHS:
        raise InvalidInput(f"`paths` is not a list of up to {_MAX_PATHS} paths", at=["paths"])
    link = partial(links.url, call, ARTIFACT_STORE, write=True, host_style=False)
    urls = {path: link(f"{folder}/{files.safe_relative(str(path))}") for path in paths}
    return JSONResponse({"urls": {path: _quoted(url) for path, url in urls.items()}})


@routes.get(f"{_RUN}/inputs")
@needs(Permission.JOB)
def get_inputs(call: AzureCall, services: ServicesOf, links: BlobLinks, name: str) -> JSONResponse:
    spec = local_runs.spec_of(_find(services, call, name))
    inputs = {
        input_name: local_inputs.listing(services, links, call, job_input["path"])
        for input_name, job_input in spec.inputs.items()
    }
    return JSONResponse({"inputs": inputs})


@routes.get(f"{_RUN}/inputs/{{input_name}}")
@needs(Permission.JOB)
def get_input_file(
    call: AzureCall, services: ServicesOf, name: str, input_name: str
) -> StreamingResponse:
    spec = local_runs.spec_of(_find(services, call, name))
    if input_name not in spec.inputs:
        raise NotFound(f"run `{name}` has no input `{input_name}`")
    path, file = spec.inputs[input_name]["path"], str(call.query.get("path") or "")
    return local_inputs.content(services, call, path, file)


@routes.post(f"{_RUN}/environment")
@needs(Permission.JOB)
def get_environment(call: AzureCall, context: Context, name: str) -> JSONResponse:
    spec = local_runs.spec_of(_find(context.services, call, name))
    offset = call.document.get("offset")
    return JSONResponse(_environment(context, call, spec.environment, offset))


def _start(
    services: Services,
    call: Call,
    experiment: str,
    definition: Mapping[str, Any],
    is_local: bool,
) -> bytes:
    """Submit the run; the zip file with its program."""
    job = submit(services, call, experiment, definition, is_local)
    path = f"/execution/v1.0{call.workspace_id}/experiments/{experiment}/runs/{job.name}/local"
    task = {"server": call.base, "path": path, **local_runs.spec_of(job).to_json()}
    return local_archive.content(services.home, task)


def submit(
    services: Services,
    call: Call,
    experiment: str,
    definition: Mapping[str, Any],
    is_local: bool,
) -> Job:
    """The run that a submitted configuration became.

    Args:
        is_local: whether the client is on this machine.

    Raises:
        InvalidInput: a part of it contradicts another.
        NotServed: a part of it is not available on the target `local`.
    """
    configuration = run_configs.object_at(definition, "Configuration")
    workspace, datasets = call.workspace.name, Datasets(services)
    name = str(call.query.get("runId") or "")
    if not configuration or not values.NAME.match(name):
        raise InvalidInput("the request has no `Configuration`, or no valid name as `runId`")
    local_configs.refuse_machine(run_configs.object_at(definition, "TelemetryValues"))
    spec = local_configs.spec_of(
        configuration,
        partial(datasets.of_configuration, workspace),
        partial(datasets.of_reference, workspace),
    )
    spec = replace(spec, inputs=local_inputs.pinned(services, workspace, spec.inputs))
    if local_configs.is_user_managed(configuration):
        environment = _registered(services, call, configuration)
    else:
        environment = _for_build(services, call, configuration, is_local)
    spec = replace(spec, environment=environment)
    with services.db.write() as connection:
        record = actions.ensure_experiment(connection, services.clock, workspace, experiment)
    job = local_runs.create(
        services,
        workspace,
        name,
        experiment_id=record.id,
        owner=call.identity.user,
        parent=str(definition.get("ParentRunId") or ""),
        variables=run_configs.variables_of(configuration),
        spec=spec,
    )
    properties = input_datasets.properties_of(datasets, workspace, configuration)
    return actions.add_properties(services, workspace, job.name, properties) if properties else job


def _registered(services: FileServices, call: Call, configuration: Mapping[str, Any]) -> str | None:
    """The environment of the user's own Python, as `run.get_environment()` requests it.

    None for one without a name, and for one that could not be registered: the run doesn't need it.
    """
    requested = run_configs.object_at(configuration, "environment")
    try:
        ref = v1_environments.for_job(services.environments, services.clock, call, requested)
    except TorchyardError:
        return None
    return ref if isinstance(ref, str) else None


def _for_build(
    services: FileServices, call: Call, configuration: Mapping[str, Any], is_local: bool
) -> Any:
    """The environment to build, as a job's `environment`; refused where it can't be built."""
    hint = "set `environment.python.user_managed_dependencies = True` to run in your own Python"
    if not is_local:
        raise NotServed(
            "the environment of a run on the target `local` is built by the server, and the "
            "server is on another machine",
            f"{hint}, or name a compute target",
        )
    environments = services.environments
    requested = run_configs.object_at(configuration, "environment")
    environment = v1_environments.for_job(environments, services.clock, call, requested)
    spec = environments.resolver.resolve(environment, call.workspace.name)
    if spec.image is not None:
        raise NotServed(
            "the environment of a run on the target `local` can't be an image",
            f"{hint}, or name a compute target: images run there without Docker",
        )
    environments.builds.refuse_impossible(spec)
    return environment


def _environment(
    context: AzureContext, call: Call, environment: Any, offset: Any
) -> Mapping[str, Any]:
    environments, builds = context.services.environments, context.builds
    spec = environments.resolver.resolve(environment, call.workspace.name)
    folder = environments.builds.use(spec)
    if folder is not None:
        lock = environments.folders.shells_file(spec)
        return {"status": "ready", "folder": str(folder), "lock": str(lock)}
    if not isinstance(offset, int):
        return builds.begin(spec)
    progress = builds.show(spec.hash, offset)
    if progress["status"] == "failed":
        return progress
    # This continues a build that was interrupted when the server ended; the next request finds a
    # build that is complete by now.
    builds.begin(spec)
    return {**progress, "status": "building"}


def _append(services: FileServices, job: Job, chunk: Mapping[str, Any]) -> JSONResponse:
    path, offset = files.safe_relative(str(chunk.get("path") or "")), chunk.get("offset")
    if not path.startswith(_LOGS) or not isinstance(offset, int) or offset < 0:
        raise InvalidInput(f"`{path[:200]}` at {offset} is not a position in a log")
    try:
        content = base64.b64decode(str(chunk.get("content") or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("the log's `content` is not base64", at=["content"]) from error
    status, body = log_quota.answer(services, job, 0, path, offset, content)
    return JSONResponse(body, status)


def _variables(services: Services, call: Call, job: Job, token: str) -> dict[str, str]:
    """The script's environment variables, beside those of its user."""
    workspace = call.workspace
    for_clients = services.client_endpoints.variables(job, token)
    signed = for_clients.get("AZUREML_RUN_TOKEN", token)
    return {
        **planner.run_variables(workspace, job, call.base),
        "AZUREML_RUN_TOKEN": signed,
        "AZUREML_RUN_TOKEN_EXPIRY": for_clients.get("AZUREML_RUN_TOKEN_EXPIRY", "4102444800"),
        "AZUREML_FRAMEWORK": "Python",
        "AZUREML_COMMUNICATOR": "None",
        "AZUREML_TARGET_TYPE": local_runs.TARGET,
        "MLFLOW_TRACKING_URI": f"{call.base}/mlflow/{workspace.name}",
        "MLFLOW_TRACKING_TOKEN": signed,
        **local_runs.variables_of(job),
    }


def _find(services: RecordServices, call: Call, name: str) -> Job:
    job = owners.get_own(services, call.workspace.name, name, call.identity)
    if not local_runs.is_local(job):
        raise InvalidInput(f"`{name}` is not a run on the target `local`")
    return job


def _error(document: Any) -> JobError:
    error: Mapping[str, Any] = document if isinstance(document, Mapping) else {}
    details = error.get("details")
    return JobError(
        str(error.get("code") or "local_run")[:100],
        str(error.get("message") or "the script failed")[:_MAX_TEXT],
        str(error.get("hint") or "")[:_MAX_TEXT],
        dict(details) if isinstance(details, Mapping) else {},
    )


def _is_same_machine(request: Request) -> bool:
    """Whether the client is on this machine: then both ends of the connection have one address."""
    if request.client is None:
        return False
    server_host = (request.scope.get("server") or ("",))[0]
    try:
        client_host = request.client.host
        return client_host == server_host or ipaddress.ip_address(client_host).is_loopback
    except ValueError:
        return False


def _quoted(url: str) -> str:
    """A link that is quoted completely, for the program does not quote links as SDK v1 does."""
    path, question_mark, query = url.partition("?")
    scheme, separator, location = path.partition("://")
    return f"{scheme}{separator}{quote(location, safe='/:%@')}{question_mark}{query}"
