"""Build a command job in Python.

Owns: `command()`, and the document that it makes; which of our words and Azure ML's mean the same.
Leaves: inputs and outputs to job_documents.py, what is valid to the server.
Always: `to_dict()` is what the same job's file would hold.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchyard.base.errors import InvalidInput
from torchyard.client.job_documents import (
    Input,
    JobDocument,
    Literal,
    Output,
    as_json,
    without_empty,
)
from torchyard.client.times import Duration, whole_seconds

if TYPE_CHECKING:
    from torchyard.client.pipeline_steps import NewStep

# Azure ML's `command()` takes them, and its job files hold them under `resources`.
_RESOURCES = ("instance_count", "instance_type", "shm_size")


@dataclass
class CommandJob(JobDocument):
    """A job that is not submitted yet; `document` is its job file.

    Example::

        job = command(command="python train.py", environment="python", inputs={"lr": 0.1})
        job.inputs["lr"] = 0.01
    """

    def __call__(self, **inputs: Any) -> NewStep:
        """A step of the pipeline whose function is running; its other inputs stay as they are."""
        from torchyard.client.pipeline_steps import add_step, of_command

        return add_step(of_command(self), (), inputs)

    def sweep(
        self,
        parameters: Mapping[str, str | Mapping[str, Any]],
        goal: str,
        *,
        trials: int,
        concurrent: int | None = None,
        algorithm: str = "random",
        seed: int | None = None,
        early_termination: Mapping[str, Any] | str | None = None,
        timeout: Duration | None = None,
    ) -> CommandJob:
        """A sweep over this job, for `client.jobs.create`.

        Args:
            parameters: ranges of the values themselves, `"loguniform:1e-5,1e-1"`,
                `"choice:sgd,adam"`, or mappings as in a sweep's file; the command uses them as
                `${{search_space.<name>}}`, or as inputs.
            goal: `minimize:val_loss` or `maximize:accuracy`.
            concurrent: how many trials run at once; all of them when None.
            algorithm: `random`, `grid`, `bayesian`, or the name of one of Optuna's samplers.
            early_termination: `bandit:0.1`, `median_stopping`, `truncation_selection:20`, or a
                mapping as in a sweep's file.

        Raises:
            InvalidInput: a range, the goal or the policy can't be read.

        Example::

            job = command(command="python train.py ${{search_space.lr}}", environment="python")
            ranges = {"lr": "loguniform:1e-5,1e-1"}
            client.jobs.create(job.sweep(ranges, "minimize:loss", trials=40, concurrent=4))
        """
        from torchyard.client.trials import documents

        timeout_s = None if timeout is None else whole_seconds(timeout, "timeout")
        return CommandJob(
            documents.sweep_of(
                self.to_dict(),
                parameters,
                goal,
                trials=trials,
                concurrent=concurrent,
                algorithm=algorithm,
                seed=seed,
                early_termination=early_termination,
                timeout_s=timeout_s,
            )
        )


def command(
    *,
    command: str,
    environment: str | Mapping[str, Any],
    code: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, Input | Literal | Mapping[str, Any]] | None = None,
    outputs: Mapping[str, Output | Mapping[str, Any] | None] | None = None,
    nodes: int | None = None,
    ranks_per_node: int | None = None,
    timeout: Duration | None = None,
    compute: str | None = None,
    name: str | None = None,
    display_name: str | None = None,
    experiment_name: str | None = None,
    tags: Mapping[str, str] | None = None,
    environment_variables: Mapping[str, str] | None = None,
    distribution: str | Mapping[str, Any] | None = None,
    rehearse_on_cpu: bool | None = None,
    **more: Any,
) -> CommandJob:
    """A command job for `client.jobs.create`.

    Args:
        command: a shell line; `${{inputs.<name>}}`, `${{outputs.<name>}}` stand for values, paths.
        environment: a name such as `python`, or a mapping as in a job file.
        code: a folder here or a git URL; the job starts in a copy of it.
        inputs: an `Input`, a text, a number or a boolean each.
        nodes: how many machines; Azure's `instance_count`.
        ranks_per_node: processes on each; Azure's `process_count_per_instance`. Without a
            `distribution` it makes the job a PyTorch one.
        timeout: the longest that it may run: seconds, or a text such as "90m" or "2h".
        distribution: `PyTorch`, `MPI`, `TensorFlow`, or a mapping as in a job file.
        rehearse_on_cpu: try a script that is written for GPUs on the CPU.
        more: Azure's `instance_count`, `instance_type`, `shm_size`; other keys of a job file.

    Raises:
        InvalidInput: a number is given twice and differs, or `timeout` is not a length of time.

    Example::

        command(command="python train.py", code="src", environment="python", nodes=2, timeout="2h")
    """
    names = {"name": name, "display_name": display_name, "experiment_name": experiment_name}
    program = {"command": command, "environment": environment, "compute": compute}
    document = {
        **{"type": "command", **names, **program, "tags": tags, **more},
        "code": None if code is None else os.fspath(code),
        "environment_variables": environment_variables,
        "inputs": {key: as_json(value) for key, value in (inputs or {}).items()},
        "outputs": {key: as_json(value) or {} for key, value in (outputs or {}).items()},
        "resources": _resources(nodes, more),
        "distribution": _distribution(distribution, ranks_per_node),
        "limits": _limits(timeout, more),
        "properties": _properties(rehearse_on_cpu, more),
    }
    fields = {key: value for key, value in document.items() if key not in _RESOURCES}
    return CommandJob(without_empty(fields))


def _resources(nodes: int | None, more: Mapping[str, Any]) -> dict[str, Any]:
    resources = dict(more.get("resources") or {})
    for key in _RESOURCES:
        resources[key] = _same(key, more.get(key), f"resources.{key}", resources.get(key))
    resources["instance_count"] = _same(
        "nodes", nodes, "instance_count", resources["instance_count"]
    )
    return without_empty(resources)


def _distribution(
    distribution: str | Mapping[str, Any] | None, ranks_per_node: int | None
) -> dict[str, Any]:
    document = {"type": distribution} if isinstance(distribution, str) else dict(distribution or {})
    key = "process_count_per_instance"
    document[key] = _same("ranks_per_node", ranks_per_node, key, document.get(key))
    if document[key] is not None:
        document.setdefault("type", "PyTorch")
    return without_empty(document)


def _limits(timeout: Duration | None, more: Mapping[str, Any]) -> dict[str, Any]:
    limits = dict(more.get("limits") or {})
    seconds = None if timeout is None else whole_seconds(timeout, "timeout")
    limits["timeout"] = _same("timeout", seconds, "limits.timeout", limits.get("timeout"))
    return without_empty(limits)


def _properties(rehearse_on_cpu: bool | None, more: Mapping[str, Any]) -> dict[str, str]:
    key = "torchyard.rehearse_on_cpu"
    properties = dict(more.get("properties") or {})
    value = None if rehearse_on_cpu is None else json.dumps(rehearse_on_cpu)
    properties[key] = _same("rehearse_on_cpu", value, f"properties.{key}", properties.get(key))
    return without_empty(properties)


def _same(name: str, value: Any, other_name: str, other: Any) -> Any:
    """The one that is given; both mean the same.

    Raises:
        InvalidInput: both are given, and they differ.
    """
    if value is not None and other is not None and value != other:
        raise InvalidInput(
            f"`{name}` is {value!r} and `{other_name}` is {other!r}, which mean the same",
            f"leave out `{other_name}`",
            at=(name,),
        )
    return other if value is None else value
