"""A job as SDK v1's run configuration.

Owns: `runDefinition` of a run's details, which `run.get_environment()` reads.
Leaves: the opposite direction to run_configs.py.
Always: every job has one, however it was created; it has script and arguments if the command only
starts a script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.sdk_v1 import environments
from torchyard.azureml.sdk_v1.computes import LOCAL_CLUSTER
from torchyard.base import refs
from torchyard.base.errors import TorchyardError
from torchyard.compute.types import LOCAL
from torchyard.environments.assembly import Environments
from torchyard.jobs import actions
from torchyard.jobs.records.types import Job, parse_job
from torchyard.jobs.requests import local_runs

_SETTING = re.compile(r"[A-Za-z_]\w*=\S*", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SHELL = re.compile(r"[;&|<>()`\n]")
_VARIABLE = re.compile(r"\$\{(\w+)-\\\$(?:\{\w+\\\}|\w+)\}", re.ASCII)
_PLACE = re.compile(r"\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}", re.ASCII)
_KINDS = {"inputs": "DatasetConsumptionConfig", "outputs": "DatasetOutputConfig"}


def definition_of(services: Environments, job: Job) -> dict[str, Any] | None:
    """None for a run that is not a job, unless it is a local one."""
    local = local_runs.definition_of(job)
    if local is not None:
        environment = _environment(services, job.workspace, local["environment"])
        return {**local, "environment": environment}
    if not job.has_ranks:
        return None
    spec = parse_job(job).spec
    # As written in the job: MPI with one process is started without mpirun, but is still MPI.
    distribution = job.document.get("distribution") or {}
    kind = distribution.get("type", "")
    script, arguments = script_of(spec.command)
    each = distribution.get("process_count_per_instance", 1)
    return {
        "script": script,
        "command": "" if script else spec.command,
        "useAbsolutePath": False,
        "arguments": arguments,
        "framework": {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}.get(kind, "Python"),
        "communicator": _communicator(kind, distribution),
        "target": LOCAL_CLUSTER if job.compute == LOCAL else job.compute,
        "nodeCount": job.node_count,
        "maxRunDurationSeconds": int(spec.timeout_s) or None,
        "environmentVariables": spec.environment_variables,
        "environment": _named_as_requested(services, job, spec.environment),
        "pytorch": {
            "communicationBackend": distribution.get("communication_backend"),
            "processCount": each * job.node_count if kind == "pytorch" else None,
        },
        "mpi": {"processCountPerNode": each if kind == "mpi" else 1},
        "history": {
            "outputCollection": True,
            "directoriesToWatch": ["logs"],
            "snapshotProject": bool(spec.code),
        },
        "docker": {"useDocker": False, "sharedVolumes": True, "arguments": [], "shmSize": "2g"},
    }


def _communicator(kind: str, distribution: Mapping[str, Any]) -> str:
    if kind == "pytorch":
        return str(distribution.get("communication_backend") or "nccl").capitalize()
    return {"mpi": "OpenMpi", "tensorflow": "ParameterServer"}.get(kind, "None")


def script_of(command: str) -> tuple[str | None, list[str]]:
    """(script, arguments) of a command that only starts a script; (None, []) of any other."""
    plain = _PLACE.sub(lambda match: f"{_KINDS[match[1]]}:{match[2]}", command)
    try:
        arguments = shlex.split(plain)
    except ValueError:
        return None, []
    while arguments and _SETTING.fullmatch(arguments[0]):
        arguments.pop(0)
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", plain)
    if (
        len(arguments) < 2
        or arguments[0] != "python"
        or not arguments[1].endswith(".py")
        or _SHELL.search(bare)
    ):
        return None, []
    return arguments[1], [_VARIABLE.sub(r"$\1", argument) for argument in arguments[2:]]


def _named_as_requested(
    services: Environments, job: Job, environment: str | Mapping[str, Any] | None
) -> dict[str, Any] | None:
    """By the name in the job, as in Azure, where another environment stands in for that one."""
    document = _environment(services, job.workspace, environment)
    requested = actions.requested_environment(services.db, job)
    return {**document, "name": requested} if document and requested else document


def _environment(
    services: Environments, workspace: str, environment: str | Mapping[str, Any] | None
) -> dict[str, Any] | None:
    if environment is None:
        return None
    try:
        if isinstance(environment, Mapping):
            return environments.to_json(services, workspace, "", "", environment)
        ref = refs.parse(environment)
        return environments.environment_json(services, workspace, ref.name, ref.version or "latest")
    except TorchyardError:
        return None
