"""SDK v1's target `local`: a job on the cluster `local`, or a script in the user's own Python.

Owns: the request for one, the zip file that the client unpacks beside a copy of the script's folder
and starts, the requests of the program in it below `runs/{name}/local`.
Leaves: what the program does to local_program/program.py, its run to jobs/requests/local_runs.py,
jobs to execution.py and jobs/requests/late_code.py.
Always: the zip holds no secret, for the client leaves it where everybody on its machine can read
it; the program needs only Python.

Source: azureml-core 1.61, `azureml/_execution/_commands.py`: the client sends `definition.json`,
starts `azureml-setup/Invocation.sh` of the zip with bash in the background, its output thrown away,
and then changes the run's properties, among them `ContentSnapshotId`.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import shlex
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from starlette.concurrency import run_in_threadpool

from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.sdk_v1 import environments, execution, forms, input_datasets
from torchyard.azureml.sdk_v1 import run_configs as configs
from torchyard.azureml.sdk_v1.datasets import Datasets
from torchyard.base import files
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.compute.types import LOCAL
from torchyard.jobs import actions, owners
from torchyard.jobs.attempts import planner
from torchyard.jobs.files import log_quota
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import ENDED, Job
from torchyard.jobs.requests import late_code, local_runs
from torchyard.jobs.services import FileServices, RecordServices, Services, ServicesOf
from torchyard.jobs.spec import parts
from torchyard.local_program import program
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_FOLDER, _PROGRAM = "azureml-setup", "program.py"
_LOG = "user_logs/"
_MAX_TEXT = 10_000
_NOTHING = "# The run is a job on the server's cluster `local`.\n"
# The third is the Python that runs the client.
_START = f"""\
#!/bin/bash
here="$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)"
for python in python3 python "$(readlink "/proc/$PPID/exe")"; do
    if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        exec "$python" -I "$here/{_PROGRAM}" "$here"
    fi
done
echo "no Python 3.9 or later was found on PATH" >"$here/{program.LOG}"
exit 1
"""

routes = RouteTable("/execution/experiments/{experiment}")
_RUN = "/runs/{name}/local"


@routes.post("/localrun")
@needs(Permission.WRITE)
async def start(
    call: AzureCall, services: ServicesOf, experiment: str, request: Request
) -> Response:
    definition = forms.json_file(
        "definition.json", request.headers.get("content-type", ""), await request.body()
    )
    content = partial(_start, services, call, experiment, definition)
    return Response(await run_in_threadpool(content), media_type="application/zip")


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
    return JSONResponse({"variables": _variables(services, call, job)})


@routes.put(f"{_RUN}/logs")
@needs(Permission.LOG)
def append_log(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    """Whole lines, so that a secret is in one piece; the run's status, which may be Canceled."""
    job, chunk = _find(services, call, name), call.document
    path, offset = files.safe_relative(str(chunk.get("path") or "")), chunk.get("offset")
    if not path.startswith(_LOG) or not isinstance(offset, int) or offset < 0:
        raise InvalidInput(f"`{path[:200]}` at {offset} is not a position in a log")
    try:
        content = base64.b64decode(str(chunk.get("content") or ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput("the log's `content` is not base64", at=["content"]) from error
    masked = job_masking.masker(job).mask(content)
    status, body = log_quota.answer(services, job, 0, path, offset, masked)
    return JSONResponse({**body, "status": job.status.value}, status)


@routes.put(f"{_RUN}/end")
@needs(Permission.JOB)
def end(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    job, report = _find(services, call, name), call.document
    status, exit_code = actions.status_named(str(report.get("status"))), report.get("exit_code")
    if status not in ENDED or not isinstance(exit_code, int | None):
        raise InvalidInput("the request does not say how the run ended", at=["status"])
    message = job_masking.masker(job).text(str(report.get("message") or "")[:_MAX_TEXT])
    job = local_runs.end(services, job, status, exit_code, message)
    return JSONResponse({"status": job.status.value})


def _start(services: Services, call: Call, experiment: str, definition: Mapping[str, Any]) -> bytes:
    """Submit the run; the zip file for the client.

    Raises:
        InvalidInput: a part of the configuration contradicts another.
        NotServed: a part of it is not available on the target `local`.
    """
    configuration = configs.object_at(definition, "Configuration")
    name = str(call.query.get("runId") or "")
    if not configuration or not parts.NAME.match(name):
        raise InvalidInput("the request has no `Configuration`, or no valid name as `runId`")
    if _is_own_python(configuration):
        task = _submit_run(services, call, experiment, name, definition)
        source = Path(program.__file__).read_text(encoding="utf-8")
        return _zipped({"Invocation.sh": _START, program.TASK: task, _PROGRAM: source})
    _submit_job(services, call, experiment, definition)
    return _zipped({"Invocation.sh": _NOTHING})


def _is_own_python(configuration: Mapping[str, Any]) -> bool:
    environment = configs.object_at(configuration, "environment")
    dockers = configs.object_at(configuration, "docker"), configs.object_at(environment, "docker")
    in_image = dockers[0].get("useDocker") or dockers[1].get("enabled")
    return not in_image and bool(_python(configuration).get("userManagedDependencies"))


def _python(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    return configs.object_at(configs.object_at(configuration, "environment"), "python")


def _submit_job(
    services: Services, call: Call, experiment: str, definition: Mapping[str, Any]
) -> None:
    configuration = configs.object_at(definition, "Configuration")
    if configs.object_at(configuration, "history").get("snapshotProject") is False:
        raise NotServed(
            "a run without a snapshot on the target `local` is not served: it is a job on the "
            "server's cluster `local`",
            "set `history.snapshot_project` to True, or run in your own Python: "
            "`environment.python.user_managed_dependencies = True`",
        )
    document = execution.document_of(services, call, {**configuration, "target": LOCAL}, "")
    document = execution.named(call, document, experiment, definition)
    late_code.create(services, call.workspace.name, document, call.identity)


def _submit_run(
    services: Services, call: Call, experiment: str, name: str, definition: Mapping[str, Any]
) -> str:
    """The program's task, as JSON."""
    configuration = configs.object_at(definition, "Configuration")
    workspace, datasets = call.workspace.name, Datasets(services)
    inputs, variables = configs.inputs_of(
        configuration,
        partial(datasets.of_configuration, workspace),
        partial(datasets.of_reference, workspace),
    )
    _refuse(definition, inputs)
    interpreter = shlex.quote(str(_python(configuration).get("interpreterPath") or "python"))
    ids = configs.ids_of_direct(configuration)
    command = configs.command_line(configuration, variables, ids, interpreter)
    limit_s = configs.whole_number(
        configuration, "maxRunDurationSeconds", "max_run_duration_seconds", 0
    )
    with services.db.write() as connection:
        record = actions.ensure_experiment(connection, services.clock, workspace, experiment)
    own_variables = configs.variables_of(configuration)
    history = configs.object_at(configuration, "history")
    run_definition = {
        "script": configuration.get("script"),
        "command": configuration.get("command"),
        "useAbsolutePath": False,
        "arguments": configs.items_at(configuration, "arguments"),
        "framework": "Python",
        "communicator": "None",
        "target": local_runs.TARGET,
        "nodeCount": 1,
        "maxRunDurationSeconds": limit_s or None,
        "environmentVariables": own_variables,
        "environment": _registered(services, call, configuration),
        "history": dict(history),
    }
    job = local_runs.create(
        services,
        workspace,
        name,
        experiment_id=record.id,
        owner=call.identity.user,
        parent=str(definition.get("ParentRunId") or ""),
        variables=own_variables,
        definition=run_definition,
    )
    properties = input_datasets.properties_of(datasets, workspace, configuration)
    if properties:
        actions.add_properties(services, workspace, job.name, properties)
    run = f"/execution/v1.0{call.workspace_id}/experiments/{experiment}/runs/{name}/local"
    artifacts = f"mlflow-artifacts/artifacts/{job.experiment_id}/{job.name}/artifacts"
    task = {
        "server": call.base,
        "run": run,
        "files": f"/mlflow/{workspace}/api/2.0/{artifacts}",
        "command": command,
        "limit_s": limit_s,
        "keeps_outputs": history.get("outputCollection", True) is not False,
    }
    return json.dumps(task, indent=1)


def _refuse(definition: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """
    Raises:
        NotServed: a part that only a job has.
    """
    configuration = configs.object_at(definition, "Configuration")
    telemetry = configs.object_at(definition, "TelemetryValues")
    nodes = configs.whole_number(configuration, "nodeCount", "node_count", 1)
    communicator = str(configuration.get("communicator") or "none").lower()
    parts = {
        "Windows": str(telemetry.get("amlClientOSVersion") or "").startswith("Windows"),
        "Spark": str(configuration.get("framework") or "").lower() == "pyspark",
        "a distributed run": nodes > 1 or communicator != "none",
        "`OutputFileDatasetConfig`": configs.object_at(configuration, "outputData"),
        "a mounted or downloaded data set": any(
            job_input["mode"] != "direct" for job_input in inputs.values()
        ),
    }
    refused = next((part for part, is_there in parts.items() if is_there), "")
    if refused:
        raise NotServed(
            f"{refused} is not served in your own Python on the target `local`",
            "give the run an environment, which makes it a job on the server's cluster `local`, "
            "or name a compute target",
        )


def _registered(services: FileServices, call: Call, configuration: Mapping[str, Any]) -> str | None:
    """The environment of the user's own Python, as `run.get_environment()` requests it.

    None for one without a name, and for one that could not be registered: the run doesn't need it.
    """
    requested = configs.object_at(configuration, "environment")
    try:
        ref = environments.for_job(services.environments, services.clock, call, requested)
    except TorchyardError:
        return None
    return ref if isinstance(ref, str) else None


def _zipped(texts: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(f"{_FOLDER}/{name}", text)
    return buffer.getvalue()


def _variables(services: Services, call: Call, job: Job) -> dict[str, str]:
    """The script's environment variables, beside those of its user; the run begins."""
    workspace, token = call.workspace, local_runs.begin(services, job)
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
        **job.document["environment_variables"],
    }


def _find(services: RecordServices, call: Call, name: str) -> Job:
    job = owners.get_own(services, call.workspace.name, name, call.identity)
    if not local_runs.is_local(job):
        raise InvalidInput(f"`{name}` is not a run in its user's own Python")
    return job
