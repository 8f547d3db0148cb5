"""What decides the outputs of a step: its recipe, and the key by which an equal one is found.

Owns: what belongs to a recipe.
Leaves: files of data to contents.py, what differs between two to differences.py.
Always: what reaches the process is in it, and nothing else: no names, tags, times, machines or
versions of clients. A secret is in it as its hash.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec.inputs import LITERAL, Input
from torchyard.jobs.spec.job_spec import JobSpec
from torchyard.pipelines.reuse import contents

Recipe = Mapping[str, Any]
"""JSON: `command`, `code` (the id of a snapshot), `environment` (a hash), `inputs`, `outputs`,
`variables`, `settings`."""

# Of torchyard's own properties, those that change what a process may make.
_SETTINGS = (
    *("torchyard.rehearse_on_cpu", "torchyard.gpus", "torchyard.network", "torchyard.min_nodes"),
    *("torchyard.max_nodes", "torchyard.checkpoint.intercept"),
)


def of_job(
    services: FileServices,
    workspace: str,
    job: JobSpec,
    environment: str,
    paths: Mapping[str, str] = MappingProxyType({}),
    job_variables: Iterable[tuple[str, str]] = (),
) -> Recipe:
    """
    Args:
        environment: its hash.
        paths: those of inputs that are data, where they are not pinned in the job.
        job_variables: those that come with the name of the environment, where they are not among
            the job's.

    Raises:
        NotFound: data of an input is gone.
        Unreachable: a datastore does not answer.
    """
    return {
        "command": job.command,
        "code": job.code.removeprefix(SNAPSHOT_PREFIX),
        "environment": environment,
        "inputs": {
            name: _input(services, workspace, each, paths.get(name, each.path))
            for name, each in job.inputs.items()
        },
        "outputs": {name: [each.type, each.mode] for name, each in job.outputs.items()},
        "variables": {
            name: _hash(value)
            for name, value in {**dict(job_variables), **job.environment_variables}.items()
        },
        "settings": _settings(job),
    }  # fmt: skip


def key(recipe: Recipe) -> str:
    """Equal for recipes that make the same, wherever their data lies."""
    inputs = {
        name: {key: value for key, value in each.items() if key != "path" or "content" not in each}
        for name, each in recipe["inputs"].items()
    }
    text = json.dumps({**recipe, "inputs": inputs}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _input(services: FileServices, workspace: str, each: Input, path: str) -> dict[str, Any]:
    if each.type == LITERAL:
        return {"value": each.value}
    if each.mode == "direct":
        return {"type": each.type, "mode": each.mode, "path": path}
    found = contents.files_of(services, workspace, path)
    return {
        "type": each.type, "mode": each.mode, "path": path, "content": contents.digest(found)
    }  # fmt: skip


def _settings(job: JobSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "distribution.type": job.distribution,
        "distribution.process_count_per_instance": job.process_count_per_instance,
        "distribution.communication_backend": job.communication_backend,
        "resources.instance_count": job.instance_count,
    }
    settings |= {name: job.properties[name] for name in _SETTINGS if name in job.properties}
    return {name: value for name, value in settings.items() if value not in ("", None)}


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:16]
