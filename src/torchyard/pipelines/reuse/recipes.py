"""What decides the outputs of a step: its recipe, and the key by which an equal one is found.

Owns: what belongs to a recipe.
Leaves: files of data to contents.py, what differs between two to differences.py.
Always: what reaches the process is in it, and nothing else: no names, tags, times, machines or
versions of clients. No secret is in it: one that is renewed makes nothing else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.documents import secret_variables
from torchyard.jobs.files import outputs
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec.inputs import LITERAL, Input, Output
from torchyard.jobs.spec.job_spec import JobSpec
from torchyard.pipelines.reuse import contents

Recipe = Mapping[str, Any]
"""JSON: `command`, `code` (the id of a snapshot), `environment` (a hash), `inputs`, `outputs`,
`variables`, `settings`."""

# In the place of an output, which has the name of its job.
_ANY_JOB = "${{name}}"
# The files of an input are kept by their names, for explanations, while they are few.
_MOST_LISTED = 200
_OF_PLACE = ("path", "files")
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
    reads: bool = True,
) -> Recipe:
    """
    Args:
        environment: its hash.
        paths: those of inputs that are data, where they are not pinned in the job.
        job_variables: those that come with the name of the environment, where they are not among
            the job's.
        reads: whether to look at the data; else only their paths are in it.

    Raises:
        NotFound: data of an input is gone.
        Unreachable: a datastore does not answer.
    """
    return {
        "command": job.command,
        "code": job.code.removeprefix(SNAPSHOT_PREFIX),
        "environment": environment,
        "inputs": {
            name: _input(services, workspace, each, paths.get(name, each.path), reads)
            for name, each in job.inputs.items()
        },
        "outputs": {name: _output(workspace, name, each) for name, each in job.outputs.items()},
        "variables": _variables({**dict(job_variables), **job.environment_variables}, job),
        "settings": _settings(job),
    }  # fmt: skip


def key(recipe: Recipe) -> str:
    """Equal for recipes that make the same, wherever their data lies."""
    inputs = {
        name: {part: each[part] for part in each if part not in _OF_PLACE or "content" not in each}
        for name, each in recipe["inputs"].items()
    }
    text = json.dumps({**recipe, "inputs": inputs}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _input(
    services: FileServices, workspace: str, each: Input, path: str, reads: bool
) -> dict[str, Any]:
    if each.type == LITERAL:
        return {"value": each.value}
    known = {"type": each.type, "mode": each.mode, "path": path}
    if each.mode == "direct" or not reads:
        return known
    found = contents.files_of(services, workspace, path)
    listed = {"files": found} if len(found) <= _MOST_LISTED else {}
    return {**known, "content": contents.digest(found), **listed}


def _output(workspace: str, name: str, each: Output) -> dict[str, str]:
    place = outputs.destination_of(workspace, _ANY_JOB, name, each)
    return {"type": each.type, "mode": each.mode, "path": place.uri}


def _variables(variables: Mapping[str, str], job: JobSpec) -> dict[str, str]:
    """Those that hold no secret."""
    document = {"environment_variables": dict(variables), "properties": job.properties}
    masked = secret_variables.masked_document(document)["environment_variables"]
    return {name: value for name, value in variables.items() if masked[name] == value}


def _settings(job: JobSpec) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "distribution.type": job.distribution,
        "distribution.process_count_per_instance": job.process_count_per_instance,
        "distribution.communication_backend": job.communication_backend,
        "resources.instance_count": job.instance_count,
    }
    settings |= {name: job.properties[name] for name in _SETTINGS if name in job.properties}
    return {name: value for name, value in settings.items() if value not in ("", None)}
