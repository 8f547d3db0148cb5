"""Turn a job into the plan that an executor gets.

Owns: the job variables that the server knows, fresh tokens, what the nodes must fetch.
Leaves: variables that only a node knows to worker/launch/variables.py.
Always: the plan is the only place where an attempt's tokens appear in the clear.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.documents import secret_variables
from torchyard.base.home import handed_sockets
from torchyard.compute import actions as computes
from torchyard.compute import machines
from torchyard.compute.types import Compute
from torchyard.environments.assembly import Environments
from torchyard.environments.types import from_json as environment_from_json
from torchyard.executors.cluster_settings import preemption_grace_s
from torchyard.executors.machine import Machine
from torchyard.jobs.admission import gpus, quota_checks
from torchyard.jobs.files import outputs, scratch
from torchyard.jobs.files.outputs import OutputPlace
from torchyard.jobs.records import progress, store
from torchyard.jobs.records.client_endpoints import NodeEndpoints
from torchyard.jobs.records.types import Attempt, CommandJob, Job
from torchyard.jobs.services import Services
from torchyard.jobs.spec import (
    elastic,
    interactive_services,
    interception,
    limit_properties,
    own_properties,
    rehearsal,
    system_metrics,
    watch_properties,
)
from torchyard.jobs.spec.inputs import RW_MOUNT, Output
from torchyard.jobs.spec.interactive_services import Service
from torchyard.shared.plan import LOCAL, InputPlan, LaunchPlan, OutputPlan, ServicePlan
from torchyard.workspaces import actions as workspaces
from torchyard.workspaces import quotas
from torchyard.workspaces.types import Identity, TokenKind, Workspace

_JOIN_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class _Node:
    """A node of a job's cluster; its fields are named as those of a `LaunchPlan`."""

    cluster: str
    size: str = ""
    cores: int = 0
    memory_bytes: int = 0
    gpus_per_node: int = 0


@dataclass(frozen=True)
class _ServerView:
    """What nodes see of the server, and how they reach it; its fields are those of a plan."""

    server_url: str
    scratch: str = ""
    blobs: str = ""
    single_host: bool = False
    server_file: str = ""
    engine: str = LOCAL
    engine_settings: dict[str, Any] = field(default_factory=dict)
    server_urls: list[str] = field(default_factory=list)
    server_certificate: str = ""
    environment_hash: str = ""
    join_timeout_s: float = 600.0
    peer_copies: bool = False


@dataclass(frozen=True)
class Launch:
    """What is known of an attempt that is to be launched.

    `environment` is the built one, None when no script will run; `input_plans` are as
    `inputs.plans` returns them.
    """

    workspace: Workspace
    job: CommandJob
    attempt: Attempt
    environment: Path | None
    input_plans: dict[str, InputPlan]
    environment_hash: str = ""


def plan(connection: Connection, services: Services, launch: Launch, server_url: str) -> LaunchPlan:
    """The plan of an attempt; its tokens are valid until the attempt ends."""
    workspace, job, attempt = launch.workspace, launch.job, launch.attempt
    environment, spec = launch.environment, launch.job.spec
    compute = computes.find(connection, job.workspace, job.compute)
    timeout_s = spec.timeout_s
    if not timeout_s:
        limits = quotas.limits(connection, job.workspace)
        timeout_s = float(quota_checks.longest_s(limits, job.owner))
    report_token, run_token = _tokens(connection, services.clock, job, attempt)
    image = services.environments.images.plan(environment) if environment else None
    node_settings = _describe_server(connection, services, compute, launch, server_url)
    endpoints = _client_endpoints(services, launch, run_token, node_settings)
    return LaunchPlan(
        attempt_id=attempt.id,
        attempt=attempt.number,
        job=job.name,
        workspace=job.workspace,
        experiment=job.experiment_name,
        command=spec.command,
        report_token=report_token,
        run_token=run_token,
        distribution=spec.distribution,
        parameter_servers=spec.parameter_servers,
        node_count=attempt.node_count,
        processes_per_node=job.processes_per_node,
        environment=str(environment) if environment and not image else "",
        image=image,
        environment_variables=spec.environment_variables,
        secrets=secret_variables.marked(spec.properties),
        not_secrets=secret_variables.marked(spec.properties, secret_variables.PLAIN),
        variables={
            **variables(workspace, job, attempt, run_token, node_settings.server_url),
            **endpoints.variables,
        },
        gate=endpoints.gate,
        code=spec.code.removeprefix("snapshot:"),
        inputs=launch.input_plans,
        outputs=_outputs(job),
        server_id=services.for_nodes.server_id,
        person=job.owner,
        timeout_s=timeout_s,
        preemption_grace_s=preemption_grace_s(compute.settings if compute else {}),
        rehearsed_gpus=_rehearsed_gpus(compute, job),
        communication_backend=spec.communication_backend,
        preflight=own_properties.preflight(spec.properties),
        limits=limit_properties.plan(job.properties, workspace, job.processes_per_node),
        services=_service_plans(services, attempt, spec.services),
        services_environment=_layer_folder(connection, services.environments, job),
        hold_s=interactive_services.hold_s(spec.properties),
        system_metrics_s=system_metrics.interval_s(spec.properties),
        intercepts_saves=interception.is_intercepted(spec.properties),
        **vars(node_settings),
        **vars(_node(compute, services.devices, job)),
        **vars(
            watch_properties.of_job(spec.properties, attempt.node_count * job.processes_per_node)
        ),
    )


def _describe_server(
    connection: Connection,
    services: Services,
    compute: Compute | None,
    launch: Launch,
    server_url: str,
) -> _ServerView:
    attempt = launch.attempt
    if attempt.is_local:
        blobs = services.blobs.of(attempt.workspace)
        return _ServerView(
            server_url,
            scratch=str(scratch.folder(services, attempt.id)),
            blobs="" if services.node.is_separate else str(blobs.folder),
            single_host=True,
            server_file=str(services.node.server_file),
        )
    settings = dict(compute.settings) if compute else {}
    if compute and "head" in settings:
        settings["drained"] = machines.drained(connection, compute.workspace, compute.name)
        settings["joined"] = machines.joined(connection, compute.workspace, compute.name)
    reached = services.for_nodes.read()
    urls = services.for_nodes.urls_for(settings) or [server_url]
    return _ServerView(
        urls[0],
        engine=attempt.engine,
        engine_settings=settings,
        server_urls=urls,
        server_certificate=reached.certificate,
        environment_hash=launch.environment_hash,
        # An environment that one node has and another must fetch first may take this long.
        join_timeout_s=_JOIN_TIMEOUT_S,
        peer_copies=attempt.node_count > 1
        and own_properties.keeps_peer_copies(launch.job.spec.properties),
    )


def _client_endpoints(
    services: Services, launch: Launch, run_token: str, node_settings: _ServerView
) -> NodeEndpoints:
    """For Azure's clients, by addresses and files that the job's nodes have."""
    job, environment, endpoints = launch.job, launch.environment, services.client_endpoints
    if launch.attempt.is_local:
        return NodeEndpoints(endpoints.variables(job, run_token, environment))
    return endpoints.for_nodes(job, run_token, environment, node_settings.server_urls)


def _service_plans(
    services: Services, attempt: Attempt, planned: Mapping[str, Service]
) -> list[ServicePlan]:
    return [
        ServicePlan(
            name,
            service.type,
            service.port,
            service.all_nodes,
            service.log_dir,
            service.command,
            service.is_handed,
            str(handed_sockets.path(services.home, attempt.id, name))
            if service.is_handed and attempt.is_local
            else "",
        )
        for name, service in planned.items()
    ]


def _layer_folder(connection: Connection, environments: Environments, job: CommandJob) -> str:
    """The folder of the environment beside the job's own; empty where none is needed, or built."""
    if not interactive_services.needs_layer(job.spec.services):
        return ""
    environment = environment_from_json(store.environment_of(connection, job.id))
    layer = interactive_services.layer(environments.folders.python_of(environment))
    folder = environments.folders.find(environments.resolver.resolve(layer))
    return "" if folder is None else str(folder)


def _tokens(connection: Connection, clock: Clock, job: Job, attempt: Attempt) -> tuple[str, str]:
    """For reports of the attempt, and for what its script logs."""
    return (
        _new_token(connection, clock, job, TokenKind.ATTEMPT, attempt.id),
        _new_token(connection, clock, job, TokenKind.RUN, progress.run_subject(job)),
    )


def _new_token(
    connection: Connection, clock: Clock, job: Job, kind: TokenKind, subject: str
) -> str:
    token = workspaces.new_token(kind)
    identity = Identity(job.owner, kind, job.workspace, subject)
    workspaces.keep_token(connection, token, identity, clock.now())
    return token


def _rehearsed_gpus(compute: Compute | None, job: Job) -> int:
    gpus_per_node = (compute.gpus or 0) if compute else 0
    return rehearsal.gpus(job.properties, job.processes_per_node, gpus_per_node)


def _node(compute: Compute | None, devices: Machine, job: Job) -> _Node:
    if compute is None:
        return _Node(job.compute)
    return _Node(
        compute.name,
        compute.size,
        compute.cores or 0,
        compute.memory_bytes or 0,
        gpus.of_job(devices, compute, job),
    )


def _outputs(job: CommandJob) -> dict[str, OutputPlan]:
    locations = outputs.destinations_of(job)
    return {name: _output(output, locations[name]) for name, output in job.spec.outputs.items()}


def _output(output: Output, location: OutputPlace) -> OutputPlan:
    if output.mode == "direct":
        return OutputPlan(output.type, output.mode, value=location.data_uri)
    is_shared = location.is_shared and output.mode == RW_MOUNT
    return OutputPlan(output.type, output.mode, file=location.file, is_shared=is_shared)


def _framework(distribution: str) -> dict[str, str]:
    """As azureml-core's run configurations name them."""
    framework, communicator = {
        "pytorch": ("PyTorch", "None"),
        "mpi": ("Python", "OpenMpi"),
        "tensorflow": ("TensorFlow", "ParameterServer"),
    }.get(distribution, ("Python", "None"))
    return {"AZUREML_FRAMEWORK": framework, "AZUREML_COMMUNICATOR": communicator}


def variables(
    workspace: Workspace, job: CommandJob, attempt: Attempt, run_token: str, server_url: str
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
        **_elastic(job),
    }


def _elastic(job: Job) -> dict[str, str]:
    """Between how many nodes the attempts of an elastic job may have."""
    sizes = elastic.read(job.properties)
    if sizes is None:
        return {}
    return {
        "TORCHYARD_MIN_NODES": str(sizes.min_nodes),
        "TORCHYARD_MAX_NODES": str(sizes.max_nodes),
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
