"""SDK v1's target `local`: a run on the user's own machine, recorded here.

Owns: the request for one, and what its program asks below `runs/{name}/local`.
Leaves: the run to jobs/requests/local_runs.py, what the program is sent to local_archive.py, what
it does to local_program/program.py.
Always: the script's folder stays on the user's machine, but for the snapshot that the client sends;
an environment is built here only for a program that may read it here.

Source: azureml-core 1.61 sends two files, `definition.json` and `aml_config.zip`, and takes a zip.
"""

import base64
import binascii
import email
import email.policy
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from torchyard.azureml.blob.links import Links
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute, NotServed
from torchyard.azureml.sdk_v1 import (
    environments as v1_environments,
)
from torchyard.azureml.sdk_v1 import (
    local_archive,
    local_configs,
    run_configs,
)
from torchyard.azureml.sdk_v1.datasets import Datasets
from torchyard.base import files
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.data import actions as data
from torchyard.data.datastores import ARTIFACT_STORE, artifacts_of
from torchyard.environments.requested_builds import Builds
from torchyard.jobs import actions
from torchyard.jobs.attempts import planner
from torchyard.jobs.files import log_quota
from torchyard.jobs.records.types import ENDED, Job, JobError, Status
from torchyard.jobs.requests import local_runs
from torchyard.jobs.services import Services
from torchyard.jobs.spec import values

_DEFINITION = "definition.json"
_MOST_PLACES = 1000
_LONGEST = 10_000
_REPORTED = (Status.PREPARING, Status.RUNNING, Status.FINALIZING, *ENDED)
_LOGS = ("user_logs/", "azureml-logs/", "logs/")


def routes(
    services: Services, datasets: Datasets, links: Links, builds: Builds, caller: Caller
) -> APIRouter:
    """What Experiment.submit asks for the target `local`, and what comes of it."""
    found = APIRouter(prefix="/execution/experiments/{experiment}", route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]
    below = "/runs/{name}/local"

    @found.post("/localrun")
    async def submit(call: the_call, experiment: str, request: Request) -> Response:
        definition = _definition(request.headers.get("content-type", ""), await request.body())
        job = submitted(services, datasets, call, experiment, definition, _is_here(request))
        task = {
            "server": call.base,
            "path": f"/execution/v1.0{call.workspace_id}/experiments/{experiment}/runs/{job.name}"
            "/local",
            **local_runs.spec_of(job).to_json(),
        }
        return Response(local_archive.content(services.home, task), media_type="application/zip")

    @found.post("/localprepare")
    def prepare(call: the_call, experiment: str) -> JSONResponse:
        raise NotServed(
            "a run that only prepares its target is not served",
            "build the environment with `yard environment build`",
        )

    @found.post(below)
    def begin(call: the_call, name: str) -> JSONResponse:
        job = _run(services, call, name)
        token = local_runs.begin(services, job, str(call.document.get("machine") or ""))
        return JSONResponse({"variables": _variables(services, call, job, token)})

    @found.post(f"{below}/report")
    def report(call: the_call, name: str) -> JSONResponse:
        told = call.document
        status = actions.status_named(str(told.get("status")))
        if status not in _REPORTED:
            raise InvalidInput(f"a local run is never {status.value}", at=["status"])
        code = told.get("exit_code")
        job = local_runs.report(
            services,
            _run(services, call, name),
            status,
            code if isinstance(code, int) else None,
            _error(told.get("error")) if status is Status.FAILED else None,
        )
        return JSONResponse({"status": job.status.value})

    @found.put(f"{below}/logs")
    def append(call: the_call, name: str) -> JSONResponse:
        return _append(services, _run(services, call, name), call.document)

    @found.post(f"{below}/places")
    def places(call: the_call, name: str) -> JSONResponse:
        folder = artifacts_of(_run(services, call, name).name)
        asked = call.document.get("paths")
        if not isinstance(asked, list) or len(asked) > _MOST_PLACES:
            raise InvalidInput(f"`paths` is no list of up to {_MOST_PLACES}", at=["paths"])
        link = partial(links.url, call, ARTIFACT_STORE, write=True, host_style=False)
        found = {path: link(f"{folder}/{files.safe_relative(str(path))}") for path in asked}
        return JSONResponse({"urls": {path: _quoted(url) for path, url in found.items()}})

    @found.get(f"{below}/inputs")
    def inputs(call: the_call, name: str) -> JSONResponse:
        spec = local_runs.spec_of(_run(services, call, name))
        return JSONResponse(
            {
                "inputs": {
                    input_name: _input(services, links, call, job_input["path"])
                    for input_name, job_input in spec.inputs.items()
                }
            }
        )

    @found.post(f"{below}/environment")
    def environment(call: the_call, name: str) -> JSONResponse:
        spec, offset = local_runs.spec_of(_run(services, call, name)), call.document.get("offset")
        return JSONResponse(_environment(services, builds, call, spec.environment, offset))

    return found


def submitted(
    services: Services,
    datasets: Datasets,
    call: Call,
    experiment: str,
    definition: Mapping[str, Any],
    is_here: bool,
) -> Job:
    """The run that a submitted configuration became.

    Args:
        is_here: whether the client is on this machine.

    Raises:
        InvalidInput: a part of it contradicts another.
        NotServed: a part of it is not to be had on the target `local`.
    """
    configuration = run_configs.mapping(definition, "Configuration")
    workspace, name = call.workspace.name, str(call.query.get("runId") or "")
    if not configuration or not values.NAME.match(name):
        raise InvalidInput("the request has no `Configuration`, or no `runId` that is a run's name")
    local_configs.refuse_machine(run_configs.mapping(definition, "TelemetryValues"))
    spec = local_configs.spec_of(
        configuration,
        partial(datasets.of_configuration, workspace),
        partial(datasets.of_reference, workspace),
    )
    for key, job_input in spec.inputs.items():
        if not data.locate(services.db, services.datastores, workspace, job_input["path"]).store:
            raise NotServed(
                f"input `{key}` of a run on the target `local` lies in no datastore",
                "upload it to one, or download it in the script",
            )
    if not local_configs.is_user_managed(configuration):
        spec = replace(spec, environment=_for_build(services, call, configuration, is_here))
    with services.db.write() as connection:
        place = actions.ensure_experiment(connection, services, workspace, experiment)
    return local_runs.create(
        services,
        workspace,
        name,
        experiment_id=place.id,
        owner=call.identity.user,
        parent=str(definition.get("ParentRunId") or ""),
        variables=run_configs.variables_of(configuration),
        spec=spec,
    )


def _for_build(
    services: Services, call: Call, configuration: Mapping[str, Any], is_here: bool
) -> Any:
    """What to build, as a job's `environment`; refused where that can't be done."""
    own = "set `environment.python.user_managed_dependencies = True` to run in a Python of your own"
    if not is_here:
        raise NotServed(
            "the environment of a run on the target `local` is built by the server, and the "
            "server is on another machine",
            f"{own}, or name a compute target",
        )
    environments = services.environments
    environment = run_configs.mapping(configuration, "environment")
    asked = v1_environments.for_job(environments, services.clock, call, environment)
    spec = environments.resolve(asked, call.workspace.name)
    if spec.image is not None:
        raise NotServed(
            "the environment of a run on the target `local` can't be an image",
            f"{own}, or name a compute target: images run there without Docker",
        )
    environments.refuse_impossible(spec)
    return asked


def _environment(
    services: Services, builds: Builds, call: Call, asked: Any, offset: Any
) -> Mapping[str, Any]:
    spec = services.environments.resolve(asked, call.workspace.name)
    folder = services.environments.use(spec)
    if folder is not None:
        lock = services.environments.shells_file(spec)
        return {"status": "ready", "folder": str(folder), "lock": str(lock)}
    if not isinstance(offset, int):
        return builds.begin(spec)
    told = builds.show(spec.hash, offset)
    if told["status"] == "failed":
        return told
    # One that a server broke off, when it ended, is taken up again; one that is ready by now, the
    # next look finds.
    builds.begin(spec)
    return {**told, "status": "building"}


def _input(services: Services, links: Links, call: Call, path: str) -> dict[str, Any]:
    """The files of an input, each with its address."""
    place = data.locate(services.db, services.datastores, call.workspace.name, path)
    single = place.files.entry(place.path) if place.path else None
    if single is not None:
        entries = {place.path.rpartition("/")[2]: place.path}
    else:
        top = f"{place.path}/" if place.path else ""
        entries = {one.path: f"{top}{one.path}" for one in place.files.walk(place.path)}
    if not entries:
        raise NotFound(f"there are no files at `{place.uri}`")
    found = [
        {"path": path, "url": links.url(call, place.store, stored, host_style=False)}
        for path, stored in entries.items()
    ]
    return {"is_file": single is not None, "files": found}


def _append(services: Services, job: Job, told: Mapping[str, Any]) -> JSONResponse:
    path, offset = files.safe_relative(str(told.get("path") or "")), told.get("offset")
    if not path.startswith(_LOGS) or not isinstance(offset, int) or offset < 0:
        raise InvalidInput(f"`{path[:200]}` at {offset} is no place for a log")
    try:
        content = base64.b64decode(str(told.get("content") or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("the log's `content` is no base64", at=["content"]) from error
    status, answer = log_quota.answer(services, job, 0, path, offset, content)
    return JSONResponse(answer, status)


def _variables(services: Services, call: Call, job: Job, token: str) -> dict[str, str]:
    """What the script's environment holds beside that of its user."""
    workspace = call.workspace
    door = services.client_door.variables(job, token)
    signed = door.get("AZUREML_RUN_TOKEN", token)
    return {
        **planner.run_variables(workspace, job, call.base),
        "AZUREML_RUN_TOKEN": signed,
        "AZUREML_RUN_TOKEN_EXPIRY": door.get("AZUREML_RUN_TOKEN_EXPIRY", "4102444800"),
        "AZUREML_FRAMEWORK": "Python",
        "AZUREML_COMMUNICATOR": "None",
        "AZUREML_TARGET_TYPE": local_runs.TARGET,
        "MLFLOW_TRACKING_URI": f"{call.base}/mlflow/{workspace.name}",
        "MLFLOW_TRACKING_TOKEN": signed,
        **local_runs.variables_of(job),
    }


def _run(services: Services, call: Call, name: str) -> Job:
    job = actions.get(services, call.workspace.name, name)
    if not local_runs.is_local(job):
        raise InvalidInput(f"`{name}` is no run on the target `local`")
    return job


def _error(told: Any) -> JobError:
    found: Mapping[str, Any] = told if isinstance(told, Mapping) else {}
    details = found.get("details")
    return JobError(
        str(found.get("code") or "local_run")[:100],
        str(found.get("message") or "the script failed")[:_LONGEST],
        str(found.get("hint") or "")[:_LONGEST],
        dict(details) if isinstance(details, Mapping) else {},
    )


def _definition(content_type: str, body: bytes) -> Mapping[str, Any]:
    """The JSON among the files of a form."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode()
    form = email.message_from_bytes(head + body, policy=email.policy.HTTP)
    for part in form.iter_parts() if form.is_multipart() else ():
        if part.get_filename() == _DEFINITION:
            try:
                found = json.loads(part.get_content())
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"`{_DEFINITION}` is no JSON") from error
            if isinstance(found, dict):
                return found
    raise InvalidInput(f"the request holds no `{_DEFINITION}`", "send it as a form with files")


def _is_here(request: Request) -> bool:
    """Whether the client is on this machine: a connection within one has one address twice."""
    if request.client is None:
        return False
    own = (request.scope.get("server") or ("",))[0]
    try:
        return request.client.host == own or ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _quoted(url: str) -> str:
    """Links for writing are quoted barely, for SDK v1 quotes them again; this program does not."""
    path, mark, query = url.partition("?")
    top, slashes, rest = path.partition("://")
    return f"{top}{slashes}{quote(rest, safe='/:%@')}{mark}{query}"
