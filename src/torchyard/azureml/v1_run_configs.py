"""SDK v1's run configuration, made a job document.

Owns: what each part of a RunConfiguration becomes, its arguments as a shell command.
Leaves: environments to v1_environments.py, the document's own rules to jobs/spec.py.
Always: a script sees the arguments that were given, each as one; `$NAME` in them stands for the
variable of the process that gets them, and for itself where there is none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchyard.azureml.errors import NotServed
from torchyard.base.errors import InvalidInput

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_DATASET = re.compile(r"DatasetConsumptionConfig:([A-Za-z_]\w*)", re.ASCII)
_OUTPUT = re.compile(r"DatasetOutputConfig:([A-Za-z_]\w*)", re.ASCII)
_PYTORCH = ("nccl", "gloo")
_MPI = ("mpi", "openmpi", "intelmpi")
_MODES = {"mount": "ro_mount", "download": "download", "direct": "direct", "hdfs": "direct"}
_OUTPUT_MODES = {"mount": "rw_mount", "upload": "upload"}

# From a dataset's place in a configuration, or a datastore and a path in it, to (path, type).
FindData = Callable[[Mapping[str, Any]], tuple[str, str]]


def job_document(
    configuration: Mapping[str, Any],
    environment: Any,
    find_dataset: FindData,
    find_reference: FindData,
) -> dict[str, Any]:
    """The job that a RunConfiguration asks for, without its name, experiment and code.

    Args:
        environment: a reference, or an inline environment.

    Raises:
        InvalidInput: a part contradicts another.
        NotServed: a part that torchyard does not have.
    """
    inputs, variables = _inputs(configuration, find_dataset, find_reference)
    outputs = {
        name: _output(name, one) for name, one in _mapping(configuration, "outputData").items()
    }
    nodes = int(configuration.get("nodeCount") or 1)
    document: dict[str, Any] = {
        "type": "command",
        "command": _command(configuration, variables),
        "environment": environment,
        "compute": _compute(configuration),
        "resources": {"instance_count": nodes},
        "environment_variables": _variables(configuration),
    }
    if inputs:
        document["inputs"] = inputs
    if outputs:
        document["outputs"] = outputs
    distribution = _distribution(configuration, nodes)
    if distribution:
        document["distribution"] = distribution
    if configuration.get("maxRunDurationSeconds"):
        document["limits"] = {"timeout": int(configuration["maxRunDurationSeconds"])}
    docker = _mapping(configuration, "docker")
    if docker.get("arguments"):
        document["resources"]["docker_args"] = " ".join(map(str, docker["arguments"]))
    return document


def quoted(argument: Any) -> str:
    """One argument for a shell: a single word whatever is in it, its variables still to be set."""
    text, parts, end = str(argument), [], 0
    for found in _VARIABLE.finditer(text):
        if text[end : found.start()]:
            parts.append(shlex.quote(text[end : found.start()]))
        name = found[1] or found[2]
        itself = f"\\${{{name}\\}}" if found[1] else f"\\${name}"
        parts.append(f'"${{{name}-{itself}}}"')
        end = found.end()
    if text[end:] or not parts:
        parts.append(shlex.quote(text[end:]))
    return "".join(parts)


def _command(configuration: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    script, command = configuration.get("script"), configuration.get("command")
    if script and command:
        raise InvalidInput(
            "a run has a script and a command", "give ScriptRunConfig one of the two"
        )
    if not script and not command:
        raise InvalidInput(
            "a run has neither a script nor a command", "give ScriptRunConfig one of the two"
        )
    settings = "".join(f'{name}="{value}" ' for name, value in variables.items())
    if command:
        text = command if isinstance(command, str) else " ".join(map(str, command))
        arguments = [_data_argument(one) for one in _list(configuration, "arguments")]
        exports = f"export {settings.strip()}\n" if settings else ""
        return exports + " ".join([_with_data(text), *arguments])
    words = [_data_argument(one) for one in _list(configuration, "arguments")]
    return settings + " ".join(["python", shlex.quote(str(script)), *words])


def _data_argument(argument: Any) -> str:
    """An argument may be a dataset, whose place is known when the job starts."""
    text = str(argument)
    return _with_data(text) if _with_data(text) != text else quoted(text)


def _with_data(text: str) -> str:
    text = _DATASET.sub(lambda found: f'"${{{{inputs.{found[1]}}}}}"', text)
    return _OUTPUT.sub(lambda found: f'"${{{{outputs.{found[1]}}}}}"', text)


def _compute(configuration: Mapping[str, Any]) -> str:
    target = str(configuration.get("target") or "")
    if target.lower() == "amlcompute":
        raise NotServed(
            "a cluster that lives as long as one run is not served",
            "create one with `ComputeTarget.create` and name it as `compute_target`",
        )
    return target


def _variables(configuration: Mapping[str, Any]) -> dict[str, str]:
    of_environment = _mapping(_mapping(configuration, "environment"), "environmentVariables")
    own = _mapping(configuration, "environmentVariables")
    return {key: str(value) for key, value in {**of_environment, **own}.items()}


def _distribution(configuration: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    communicator = str(configuration.get("communicator") or "").lower()
    framework = str(configuration.get("framework") or "").lower()
    if communicator in _MPI:
        each = int(_mapping(configuration, "mpi").get("processCountPerNode") or 1)
        return {"type": "mpi", "process_count_per_instance": each}
    if communicator in _PYTORCH or (framework == "pytorch" and communicator not in ("", "none")):
        return _pytorch(_mapping(configuration, "pytorch"), communicator, nodes)
    if communicator == "parameterserver":
        counts = _mapping(configuration, "tensorflow")
        return {
            "type": "tensorflow",
            "worker_count": int(counts.get("workerCount") or 1),
            "parameter_server_count": int(counts.get("parameterServerCount") or 0),
        }
    if communicator in ("", "none"):
        return {}
    raise NotServed(
        f"the communicator `{configuration.get('communicator')}` is not served",
        "use PyTorchConfiguration, MpiConfiguration or TensorflowConfiguration",
    )


def _pytorch(asked: Mapping[str, Any], communicator: str, nodes: int) -> dict[str, Any]:
    total = int(asked.get("processCount") or nodes)
    if total % nodes:
        raise InvalidInput(
            f"`process_count={total}` can't be spread evenly over `node_count={nodes}`",
            "it counts the processes of all nodes together",
        )
    found: dict[str, Any] = {"type": "pytorch", "process_count_per_instance": total // nodes}
    # `Nccl` is what the class says when it is not told; the script chooses its own.
    if str(asked.get("communicationBackend") or communicator).lower() == "gloo":
        found["communication_backend"] = "gloo"
    return found


def _inputs(
    configuration: Mapping[str, Any], find_dataset: FindData, find_reference: FindData
) -> tuple[dict[str, Any], dict[str, str]]:
    """(inputs of the job, variables that tell the script where they are)."""
    inputs: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for name, one in _mapping(configuration, "data").items():
        path, type = find_dataset(_mapping(_mapping(one, "dataLocation"), "dataset"))
        inputs[name] = _input(name, path, type, one.get("mechanism"), one.get("pathOnCompute"))
        variables[one.get("environmentVariableName") or name] = f"${{{{inputs.{name}}}}}"
    for name, one in _mapping(configuration, "dataReferences").items():
        path, type = find_reference(one)
        inputs[name] = _input(name, path, type, one.get("mode"), None)
        variables[f"AZUREML_DATAREFERENCE_{name}"] = f"${{{{inputs.{name}}}}}"
    return inputs, variables


def _input(name: str, path: str, type: str, mode: Any, place: Any) -> dict[str, Any]:
    asked = str(mode or "mount").lower()
    if asked not in _MODES:
        raise NotServed(
            f"the mode `{asked}` of input `{name}` is not served", "use mount or download"
        )
    found = {"type": type, "path": path, "mode": _MODES[asked]}
    if place:
        found["path_on_compute"] = str(place)
    return found


def _output(name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    mode = str(asked.get("mechanism") or "mount").lower()
    if mode not in _OUTPUT_MODES:
        raise NotServed(
            f"the mode `{mode}` of output `{name}` is not served", "use mount or upload"
        )
    found: dict[str, Any] = {"type": "uri_folder", "mode": _OUTPUT_MODES[mode]}
    location = _mapping(_mapping(asked, "outputLocation"), "dataPath")
    if location.get("datastoreName"):
        path = str(location.get("relativePath") or "").strip("/")
        path = path.replace("{run-id}", "${{name}}").replace("{output-name}", "${{output_name}}")
        found["path"] = f"azureml://datastores/{location['datastoreName']}/paths/{path}"
    options = _mapping(_mapping(asked, "additionalOptions"), "registrationOptions")
    if options.get("name"):
        found["name"] = options["name"]
    return found


def _mapping(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}


def _list(holder: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = holder.get(key)
    return found if isinstance(found, list) else []
