"""Build a command job in Python, with Azure ML's keyword names.

Owns: `command()`, `Input`, `Output`, and the document they make.
Leaves: what is valid to the server.
Always: `to_dict()` is what the same job's file would hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Literal = str | int | float | bool


@dataclass(frozen=True)
class Input:
    """Data for a job.

    Args:
        path: a file or folder here, `azureml:<name>:<version>`, `azureml://…`, `https://…`.
        type: uri_folder, uri_file, mltable, custom_model, mlflow_model.
        mode: ro_mount, download, direct.

    Example::

        Input(type="uri_file", path="data/train.csv")
    """

    path: str | os.PathLike[str] = ""
    type: str = "uri_folder"
    mode: str = ""
    default: Literal | None = None

    def to_dict(self) -> dict[str, Any]:
        body = {"type": self.type, "path": os.fspath(self.path), "mode": self.mode}
        return _without_empty({**body, "default": self.default})


@dataclass(frozen=True)
class Output:
    """A place for what a job makes.

    Args:
        path: `azureml://datastores/<datastore>/paths/<path>`; a default place when empty.
        mode: rw_mount, upload, direct.
        name: register it as this asset when the job has completed.

    Example::

        Output(type="uri_folder", name="digits-clean")
    """

    path: str = ""
    type: str = "uri_folder"
    mode: str = ""
    name: str = ""
    version: str = ""

    def to_dict(self) -> dict[str, Any]:
        return _without_empty(dict(vars(self)))


@dataclass
class CommandJob:
    """A job that is not submitted yet; `document` is its job file."""

    document: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.document))  # type: ignore[no-any-return]

    def _repr_html_(self) -> str:
        from html import escape

        lines = "".join(
            f"<tr><th style='text-align:left'>{escape(key)}</th>"
            f"<td style='text-align:left'>{escape(_text(value))}</td></tr>"
            for key, value in self.document.items()
        )
        return f"<table>{lines}</table>"


def command(
    *,
    command: str,
    environment: str | Mapping[str, Any],
    code: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Input | Literal | Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Output | Mapping[str, Any] | None] | None = None,
    compute: str | None = None,
    name: str | None = None,
    display_name: str | None = None,
    experiment_name: str | None = None,
    description: str | None = None,
    tags: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    environment_variables: Mapping[str, str] | None = None,
    distribution: str | Mapping[str, Any] | None = None,
    instance_count: int | None = None,
    instance_type: str | None = None,
    shm_size: str | None = None,
    timeout: int | None = None,
    services: Mapping[str, Any] | None = None,
    rehearse_on_cpu: bool | None = None,
    **more: Any,
) -> CommandJob:
    """A command job for `client.jobs.create`.

    Args:
        command: a shell line; `${{inputs.<name>}}` and `${{outputs.<name>}}` stand for values and
            paths.
        environment: a name such as `azureml:AzureML-acpt-pytorch-2.2-cuda12.1@latest`, or a
            mapping as in a job file.
        code: a folder here or a git URL.
        inputs: an `Input`, a text, a number or a boolean each.
        distribution: `PyTorch`, or a mapping such as
            `{"type": "pytorch", "process_count_per_instance": 4}`.
        instance_count: nodes.
        timeout: of the job, in seconds.
        rehearse_on_cpu: True runs a script that is written for GPUs on the CPU, to try it.
        more: other keys of a job file, as they are.

    Example::

        command(
            command="python train.py --data ${{inputs.data}} --epochs ${{inputs.epochs}}",
            code="src",
            environment="python",
            inputs={"data": Input(path="data"), "epochs": 3},
        )
    """
    resources = {
        "instance_count": instance_count,
        "instance_type": instance_type,
        "shm_size": shm_size,
    }
    document = {
        "type": "command",
        "name": name,
        "display_name": display_name,
        "experiment_name": experiment_name,
        "description": description,
        "tags": tags,
        "properties": _rehearsing(properties, rehearse_on_cpu),
        "command": command,
        "code": None if code is None else os.fspath(code),
        "environment": environment,
        "environment_variables": environment_variables,
        "inputs": {key: _plain(value) for key, value in (inputs or {}).items()},
        "outputs": {key: _plain(value) or {} for key, value in (outputs or {}).items()},
        "compute": compute,
        "distribution": {"type": distribution} if isinstance(distribution, str) else distribution,
        "resources": _without_empty(resources),
        "limits": _without_empty({"timeout": timeout}),
        "services": services,
        **more,
    }
    return CommandJob(_without_empty(document))


def _rehearsing(properties: Mapping[str, str] | None, asked: bool | None) -> dict[str, str]:
    said = {} if asked is None else {"torchyard.rehearse_on_cpu": json.dumps(asked)}
    return {**(properties or {}), **said}


def _plain(value: Any) -> Any:
    if isinstance(value, (Input, Output)):
        return value.to_dict()
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _without_empty(body: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was not given: None, empty texts and collections; 0 and False were given."""
    kept = {}
    for key, value in body.items():
        if value is None or (isinstance(value, (str, Mapping, Sequence)) and not value):
            continue
        kept[key] = value
    return kept


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
