"""The job that runs an instance.

Owns: its name, its document, the socket that it serves at.
Leaves: running it to jobs/, when there is one to keeper.py.
Always: an instance's start has one name, which is written down before it: a keeper that was killed
never starts it twice, and nobody else has it. The job is its deployment's owner's; it listens at no
port, for any user of the machine could call that without a key, and take it over when the instance
ends.
"""

from __future__ import annotations

import os
import secrets
import shlex
from typing import Any

from torchyard.base.db import Database
from torchyard.base.errors import Conflict
from torchyard.endpoints.records.types import Deployment, Instance
from torchyard.endpoints.running import collection, environments, programs
from torchyard.endpoints.spec.deployment_spec import WORKERS, DeploymentSpec
from torchyard.jobs import actions as jobs
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import submission
from torchyard.jobs.services import FileServices, Services
from torchyard.jobs.spec.interactive_services import INHERITED
from torchyard.workspaces.types import Identity, TokenKind

EXPERIMENT = "online-endpoints"
SERVICE = "score"


def new_name(deployment: Deployment, revision: int, number: int) -> str:
    """For one start: nobody can submit a job of that name before."""
    prefix = f"{deployment.endpoint}-{deployment.name}"
    return f"{prefix}-{revision}-{number}-{secrets.token_hex(6)}".lower()


def find(db: Database, instance: Instance) -> Job | None:
    return jobs.find_by_name(db, instance.workspace, instance.job)


def start(
    services: Services, deployment: Deployment, spec: DeploymentSpec, instance: Instance
) -> Job:
    """Start it; one that was started already is returned.

    Raises:
        TorchyardError: what the deployment names is gone, a quota leaves no place, or somebody
            else has taken the job's name.
    """
    job = find(services.db, instance)
    if job is None:
        document = document_of(services, deployment, spec, instance)
        owner = Identity(deployment.owner, TokenKind.PERSON)
        job = submission.create(services, deployment.workspace, document, owner)[0]
    if job.owner != deployment.owner:
        raise Conflict(f"job `{job.name}` is not of the deployment's owner, and not its instance")
    return job


def document_of(
    services: FileServices, deployment: Deployment, spec: DeploymentSpec, instance: Instance
) -> dict[str, Any]:
    environment, variables, _ = environments.for_instances(
        services.environments, deployment.workspace, spec
    )
    program = programs.of(services.blobs.of(deployment.workspace), spec)
    document: dict[str, Any] = {
        "name": instance.job,
        "display_name": f"{deployment.endpoint}/{deployment.name} {instance.number}",
        "experiment_name": EXPERIMENT,
        "command": _command(deployment, spec, program),
        "code": program.code,
        "environment": environment,
        "environment_variables": {
            **variables,
            **_side_by_side(spec),
            **collection.variables(services, deployment, spec),
            **spec.environment_variables,
        },
        "services": {SERVICE: {"type": "custom", "properties": {"socket": INHERITED}}},
        "tags": {"endpoint": deployment.endpoint, "deployment": deployment.name},
    }
    if spec.model is not None:
        document["inputs"] = {
            "model": {"type": spec.model.type, "path": spec.model.path, "mode": "download"}
        }
    if spec.own_settings.cluster:
        document["compute"] = spec.own_settings.cluster
    return document


def _side_by_side(spec: DeploymentSpec) -> dict[str, str]:
    """Variables of an instance whose model was found to be safe for several processes."""
    processes = 0 if spec.model is None else spec.model.processes
    if processes < 2 or WORKERS in spec.environment_variables:
        return {}
    # Together they have as many threads as one would have.
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    return {WORKERS: str(processes), "OMP_NUM_THREADS": str(threads)}


def command_of(has_model: bool) -> str:
    """The program that every instance runs, with its model but without what else it is told."""
    program = f"exec python {programs.FOLDER}/supervise.py"
    return f"{program} --model ${{{{inputs.model}}}}" if has_model else program


def _command(deployment: Deployment, spec: DeploymentSpec, program: programs.Program) -> str:
    words = ["--root", program.root, "--entry", program.entry]
    words += ["--service", f"{deployment.endpoint}-{deployment.name}"]
    words += ["--prefix", f"endpoints/{deployment.workspace}/{deployment.endpoint}"]
    command = f"{command_of(spec.model is not None)} {shlex.join(words)}"
    if spec.model is not None:
        version = f"{spec.model.name or 'model'}/{spec.model.version or '1'}"
        command += f" --model-as {shlex.quote(version)}"
        if spec.model.folder:
            command += f" --leaf {shlex.quote(spec.model.folder)}"
    return command
