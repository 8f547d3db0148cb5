"""SDK v1's run configuration for the target `local`, as a task for the program on that machine.

Owns: the supported parts of it, what is refused, the paths that the program fills in.
Leaves: parts that are the same for jobs to run_configs.py, running to local_program/program.py.
Always: the script gets its arguments unchanged, except for the paths of datasets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.sdk_v1 import run_configs as configs
from torchyard.azureml.sdk_v1.run_configs import FindData
from torchyard.jobs.requests.local_runs import LocalRunSpec

_REFERENCE = re.compile(r"\$\{?(AZUREML_DATAREFERENCE_\w+)\}?", re.ASCII)
_CLUSTER = "name a compute target: `local-cluster`, which is the server's machine, or a cluster"


def spec_of(
    configuration: Mapping[str, Any], find_dataset: FindData, find_reference: FindData
) -> LocalRunSpec:
    """What the program on the user's machine has to do, except for the environment that is built.

    Raises:
        InvalidInput: a part contradicts another.
        NotServed: a part that is not supported on the target `local`.
    """
    _refuse(configuration)
    script, command = configs.script_or_command(configuration)
    inputs, variables = configs.inputs_of(configuration, find_dataset, find_reference)
    ids = configs.ids_of_direct(configuration)
    python = _python(configuration)
    interpreter = ""
    if python.get("userManagedDependencies"):
        interpreter = str(python.get("interpreterPath") or "python")
    history = configs.object_at(configuration, "history")
    return LocalRunSpec(
        script=script,
        command=_placed(command, variables, ids),
        arguments=[
            _placed(str(argument), variables, ids)
            for argument in configs.items_at(configuration, "arguments")
        ],
        interpreter=interpreter,
        inputs={
            name: job_input for name, job_input in inputs.items() if job_input["mode"] != "direct"
        },
        input_variables=variables,
        limit_s=configs.whole_number(
            configuration, "maxRunDurationSeconds", "max_run_duration_seconds", 0
        ),
        keeps_outputs=history.get("outputCollection", True) is not False,
    )


def is_user_managed(configuration: Mapping[str, Any]) -> bool:
    """Whether the run uses the user's own Python, and nothing has to be built."""
    return bool(_python(configuration).get("userManagedDependencies"))


def refuse_machine(telemetry: Mapping[str, Any]) -> None:
    """
    Raises:
        NotServed: the program does not run on the client's system.
    """
    system = str(telemetry.get("amlClientOSVersion") or "")
    if system.startswith("Windows"):
        raise NotServed(
            "a run on the target `local` of a Windows machine is not served",
            f"submit it from WSL, or {_CLUSTER}",
        )


def _refuse(configuration: Mapping[str, Any]) -> None:
    environment = configs.object_at(configuration, "environment")
    dockers = configs.object_at(configuration, "docker"), configs.object_at(environment, "docker")
    if dockers[0].get("useDocker") or dockers[1].get("enabled"):
        raise NotServed(
            "Docker on the target `local` is not served",
            f"leave `docker_runtime_config` out, or {_CLUSTER}: images run there without Docker",
        )
    framework = str(configuration.get("framework") or "").lower()
    if framework == "pyspark":
        raise NotServed("Spark on the target `local` is not served", "run the script with Python")
    communicator = str(configuration.get("communicator") or "").lower()
    nodes = configs.whole_number(configuration, "nodeCount", "node_count", 1)
    if nodes > 1 or communicator not in ("", "none"):
        raise NotServed(
            "a distributed run on the target `local` is not served",
            f"leave `distributed_job_config` out, or {_CLUSTER}",
        )
    if configs.object_at(configuration, "outputData"):
        raise NotServed(
            "an `OutputFileDatasetConfig` on the target `local` is not served",
            f"write to `outputs/`, which the run keeps, or {_CLUSTER}",
        )


def _python(configuration: Mapping[str, Any]) -> Mapping[str, Any]:
    return configs.object_at(configs.object_at(configuration, "environment"), "python")


def _placed(text: str, variables: Mapping[str, str], ids: Mapping[str, str]) -> str:
    text = configs.DATASET.sub(lambda match: ids.get(match[1]) or _input_expression(match[1]), text)
    return _REFERENCE.sub(lambda match: variables.get(match[1], match[0]), text)


def _input_expression(name: str) -> str:
    return f"${{{{inputs.{name}}}}}"
