"""Turn a job into the plan that an executor gets.

Owns: the job variables that the server knows, fresh tokens, what the nodes must fetch.
Leaves: variables that only a node knows to worker/launch/variables.py.
Always: the plan is the only place where an attempt's tokens appear in the clear.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from torchyard.compute import actions as computes
from torchyard.compute.types import Compute
from torchyard.jobs.admission import gpus, quota_checks
from torchyard.jobs.files import outputs, scratch
from torchyard.jobs.files.outputs import OutputPlace
from torchyard.jobs.records import progress
from torchyard.jobs.records.types import Attempt, Job
from torchyard.jobs.services import Services
from torchyard.jobs.spec import (
    limit_properties,
    own_properties,
    rehearsal,
    secrets,
    watch_properties,
)
from torchyard.jobs.spec.inputs import Output
from torchyard.shared.plan import InputPlan, LaunchPlan, OutputPlan
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import quotas
from torchyard.workspaces.types import Identity, TokenKind, Workspace


@dataclass(frozen=True)
class _Node:
    """A node of a job's cluster; its fields are named as those of a `LaunchPlan`."""

    cluster: str
    size: str = ""
    cores: int = 0
    memory_bytes: int = 0
    gpus_per_node: int = 0


@dataclass(frozen=True)
class Launch:
    """What is known of an attempt that is to be launched.

    `environment` is the built one, None when no script will run; `input_plans` are as
    `inputs.plans` returns them.
    """

    workspace: Workspace
    job: Job
    attempt: Attempt
    environment: Path | None
    input_plans: dict[str, InputPlan]


def plans(
    connection: Connection, services: Services, launches: Sequence[Launch], server_url: str
) -> list[LaunchPlan]:
    """The plan of each attempt; its tokens are valid until the attempt ends."""
    # All is read before the first token is written: writes go together.
    places = {(launch.job.workspace, launch.job.compute) for launch in launches}
    clusters = {place: computes.find(connection, *place) for place in places}
    limits = {name: quotas.limits(connection, name) for name, _ in places}
    return [
        _plan(
            connection,
            services,
            launch,
            clusters[launch.job.workspace, launch.job.compute],
            launch.job.spec.timeout_s
            or float(quota_checks.longest_s(limits[launch.job.workspace], launch.job.owner)),
            server_url,
        )
        for launch in launches
    ]


def _plan(
    connection: Connection,
    services: Services,
    launch: Launch,
    compute: Compute | None,
    timeout_s: float,
    server_url: str,
) -> LaunchPlan:
    """
    Args:
        timeout_s: the job's own limit, or else what quotas allow its owner; 0 without any.
    """
    workspace, job, attempt = launch.workspace, launch.job, launch.attempt
    environment, spec = launch.environment, launch.job.spec
    report_token, run_token = _tokens(connection, services, job, attempt)
    image = services.environments.images.plan(environment) if environment else None
    return LaunchPlan(
        attempt_id=attempt.id,
        attempt=attempt.number,
        job=job.name,
        workspace=job.workspace,
        experiment=job.experiment_name,
        command=spec.command,
        server_url=server_url,
        report_token=report_token,
        run_token=run_token,
        scratch=str(scratch.folder(services, attempt.id)),
        distribution=spec.distribution,
        parameter_servers=spec.parameter_servers,
        node_count=job.node_count,
        processes_per_node=job.processes_per_node,
        environment=str(environment) if environment and not image else "",
        image=image,
        environment_variables=spec.environment_variables,
        secrets=secrets.marked(spec.properties),
        not_secrets=secrets.marked(spec.properties, secrets.PLAIN),
        variables={
            **variables(workspace, job, attempt, run_token, server_url),
            **services.client_endpoints.variables(job, run_token, environment),
        },
        code=spec.code.removeprefix("snapshot:"),
        inputs=launch.input_plans,
        outputs=_outputs(job),
        blobs="" if services.node.is_separate else str(services.blobs.folder),
        single_host=True,
        server_id=services.server_id,
        server_file=str(services.node.server_file),
        person=job.owner,
        timeout_s=timeout_s,
        rehearsed_gpus=_rehearsed_gpus(compute, job),
        communication_backend=spec.communication_backend,
        preflight=own_properties.preflight(spec.properties),
        limits=limit_properties.plan(job.properties, workspace, job.processes_per_node),
        **vars(_node(compute, services, job)),
        **vars(watch_properties.read(spec.properties)),
    )


def _tokens(
    connection: Connection, services: Services, job: Job, attempt: Attempt
) -> tuple[str, str]:
    """For reports of the attempt, and for what its script logs."""
    return (
        _new_token(connection, services, job, TokenKind.ATTEMPT, attempt.id),
        _new_token(connection, services, job, TokenKind.RUN, progress.run_subject(job)),
    )


def _new_token(
    connection: Connection, services: Services, job: Job, kind: TokenKind, subject: str
) -> str:
    token = workspaces.new_token(kind)
    identity = Identity(job.owner, kind, job.workspace, subject)
    workspaces.keep_token(connection, token, identity, services.clock.now())
    return token


def _rehearsed_gpus(compute: Compute | None, job: Job) -> int:
    gpus_per_node = (compute.gpus or 0) if compute else 0
    return rehearsal.gpus(job.properties, job.processes_per_node, gpus_per_node)


def _node(compute: Compute | None, services: Services, job: Job) -> _Node:
    if compute is None:
        return _Node(job.compute)
    return _Node(
        compute.name,
        compute.size,
        compute.cores or 0,
        compute.memory_bytes or 0,
        gpus.of_job(services, compute, job),
    )


def _outputs(job: Job) -> dict[str, OutputPlan]:
    places = outputs.places(job)
    return {name: _output(output, places[name]) for name, output in job.spec.outputs.items()}


def _output(output: Output, place: OutputPlace) -> OutputPlan:
    if output.mode == "direct":
        return OutputPlan(output.type, output.mode, value=place.uri)
    return OutputPlan(output.type, output.mode, file=place.file)


def _framework(distribution: str) -> dict[str, str]:
    """As azureml-core's run configurations name them."""
    framework, communicator = {
        "pytorch": ("PyTorch", "None"),
        "mpi": ("Python", "OpenMpi"),
        "tensorflow": ("TensorFlow", "ParameterServer"),
    }.get(distribution, ("Python", "None"))
    return {"AZUREML_FRAMEWORK": framework, "AZUREML_COMMUNICATOR": communicator}


def variables(
    workspace: Workspace, job: Job, attempt: Attempt, run_token: str, server_url: str
) -> dict[str, str]:
    """The variables of REST.md section 8 that do not depend on node or rank."""
    names = run_variables(workspace, job, server_url)
    scope = names["AZUREML_WORKSPACE_SCOPE"]
    return {
        **names,
        "AZUREML_RUN_TOKEN": run_token,
        **_framework(job.spec.distribution),
        "AZUREML_TARGET_TYPE": "batchai",
        "AZUREML_COMPUTE_USE_COMMON_RUNTIME": "true",
        "AZUREML_CR_AZUREML_CONTEXT": json.dumps(
            {"run_id": job.name, "experiment_name": job.experiment_name, "workspace": scope}
        ),
        # The address would be the relay's, which ends with the job.
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        "TORCHYARD_JOB": job.name,
        "TORCHYARD_ATTEMPT_NUMBER": str(attempt.number),
    }


def run_variables(workspace: Workspace, job: Job, server_url: str) -> dict[str, str]:
    """Which run a script is, and where it is recorded, in Azure's and MLflow's variables."""
    scope = (
        f"/subscriptions/{workspace.subscription_id}/resourceGroups/{workspace.resource_group}"
        f"/providers/Microsoft.MachineLearningServices/workspaces/{workspace.name}"
    )
    # Readers parse this as a GUID, so a workspace's name becomes one, the same each time.
    workspace_id = str(uuid.uuid5(uuid.NAMESPACE_URL, scope))
    return {
        "AZUREML_RUN_ID": job.name,
        "AZUREML_ROOT_RUN_ID": job.parent or job.name,
        "AZUREML_EXPERIMENT_ID": str(job.experiment_id),
        "AZUREML_EXPERIMENT_NAME": job.experiment_name,
        "AZUREML_EXPERIMENT_SCOPE": f"{scope}/experiments/{job.experiment_name}",
        "AZUREML_WORKSPACE_ID": workspace_id,
        "AZUREML_WORKSPACE_SCOPE": scope,
        "AZUREML_ARM_SUBSCRIPTION": workspace.subscription_id,
        "AZUREML_ARM_RESOURCEGROUP": workspace.resource_group,
        "AZUREML_ARM_WORKSPACE_NAME": workspace.name,
        "AZUREML_ARM_PROJECT_NAME": job.experiment_name,
        "AZUREML_SERVICE_ENDPOINT": server_url,
        "AZUREML_DISCOVERY_SERVICE_ENDPOINT": f"{server_url}/discovery",
        "AZUREML_RUN_HISTORY_SERVICE_ENDPOINT": server_url,
        "MLFLOW_EXPERIMENT_ID": str(job.experiment_id),
        "MLFLOW_EXPERIMENT_NAME": job.experiment_name,
        "MLFLOW_RUN_ID": job.name,
    }
