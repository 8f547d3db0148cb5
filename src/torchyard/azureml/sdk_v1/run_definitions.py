"""What SDK v1 reads of a run's configuration, made of the job that it became.

Owns: `runDefinition` of a run's details, for `run.get_environment()` and those who look.
Leaves: the way there to run_configs.py.
Always: whatever a job was made by, it has one; a script and its arguments are told where the
command is nothing else.
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
from torchyard.environments.services import Environments
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import local_runs

_SETTING = re.compile(r"[A-Za-z_]\w*=\S*", re.ASCII)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_SHELL = re.compile(r"[;&|<>()`\n]")
_VARIABLE = re.compile(r"\$\{(\w+)-\\\$(?:\{\w+\\\}|\w+)\}", re.ASCII)
_PLACE = re.compile(r"\$\{\{\s*(inputs|outputs)\.(\w+)\s*\}\}", re.ASCII)
_KINDS = {"inputs": "DatasetConsumptionConfig", "outputs": "DatasetOutputConfig"}


def of(services: Environments, job: Job) -> dict[str, Any] | None:
    """None for a run that is no job."""
    if local_runs.is_local(job):
        return _of_local(job)
    if job.type != "command":
        return None
    spec = job.spec
    distribution = spec.get("distribution") or {}
    kind = distribution.get("type", "")
    script, arguments = script_of(str(spec.get("command") or ""))
    each = distribution.get("process_count_per_instance", 1)
    return {
        "script": script,
        "command": "" if script else spec.get("command"),
        "useAbsolutePath": False,
        "arguments": arguments,
        "framework": {"pytorch": "PyTorch", "tensorflow": "TensorFlow"}.get(kind, "Python"),
        "communicator": _communicator(kind, distribution),
        "target": LOCAL_CLUSTER if job.compute == LOCAL else job.compute,
        "nodeCount": job.node_count,
        "maxRunDurationSeconds": (spec.get("limits") or {}).get("timeout"),
        "environmentVariables": spec.get("environment_variables") or {},
        "environment": _environment(services, job),
        "pytorch": {
            "communicationBackend": distribution.get("communication_backend"),
            "processCount": each * job.node_count if kind == "pytorch" else None,
        },
        "mpi": {"processCountPerNode": each if kind == "mpi" else 1},
        "history": {
            "outputCollection": True,
            "directoriesToWatch": ["logs"],
            "snapshotProject": bool(spec.get("code")),
        },
        "docker": {"useDocker": False, "sharedVolumes": True, "arguments": [], "shmSize": "2g"},
    }


def _of_local(job: Job) -> dict[str, Any]:
    asked = local_runs.asked(job)
    return {
        "script": asked["script"],
        "command": asked["command"],
        "useAbsolutePath": False,
        "arguments": asked["arguments"],
        "framework": "Python",
        "communicator": "None",
        "target": local_runs.TARGET,
        "nodeCount": 1,
        "maxRunDurationSeconds": asked["limit_s"] or None,
        "environmentVariables": job.spec["environment_variables"],
        "history": {
            "outputCollection": asked["keeps_outputs"],
            "directoriesToWatch": ["logs"],
            "snapshotProject": True,
        },
    }


def _communicator(kind: str, distribution: Mapping[str, Any]) -> str:
    if kind == "pytorch":
        return str(distribution.get("communication_backend") or "nccl").capitalize()
    return {"mpi": "OpenMpi", "tensorflow": "ParameterServer"}.get(kind, "None")


def script_of(command: str) -> tuple[str | None, list[str]]:
    """(script, arguments) of a command that only starts one; (None, []) of any other."""
    plain = _PLACE.sub(lambda found: f"{_KINDS[found[1]]}:{found[2]}", command)
    try:
        words = shlex.split(plain)
    except ValueError:
        return None, []
    while words and _SETTING.fullmatch(words[0]):
        words.pop(0)
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", plain)
    if (
        len(words) < 2
        or words[0] != "python"
        or not words[1].endswith(".py")
        or _SHELL.search(bare)
    ):
        return None, []
    return words[1], [_VARIABLE.sub(r"$\1", word) for word in words[2:]]


def _environment(services: Environments, job: Job) -> dict[str, Any] | None:
    asked = job.spec.get("environment")
    try:
        if isinstance(asked, Mapping):
            return environments.to_json(services, "", "", asked)
        ref = refs.parse(str(asked))
        return environments.shown(services, job.workspace, ref.name, ref.version or "latest")
    except TorchyardError:
        return None
