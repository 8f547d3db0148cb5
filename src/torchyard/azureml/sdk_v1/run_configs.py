"""SDK v1's run configuration as a job document.

Owns: what each part of a RunConfiguration becomes, its arguments as a shell command.
Leaves: environments to environments.py, the document's own rules to jobs/spec/job_spec.py.
Always: a script gets its arguments unchanged, each as one; `$NAME` in them stands for the variable
of the process that gets them, or for itself if there is none.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torchyard.azureml.common.errors import NotServed
from torchyard.base.errors import InvalidInput

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_REFERENCE = re.compile(r"\$AZUREML_DATAREFERENCE_(\w+)", re.ASCII)
_DATASET = re.compile(r"DatasetConsumptionConfig:([A-Za-z_]\w*)", re.ASCII)
_OUTPUT = re.compile(r"DatasetOutputConfig:([A-Za-z_]\w*)", re.ASCII)
_SIZE = re.compile(r"\d+(\.\d+)?\s*[bkmgt]?", re.IGNORECASE)
_MAX_COUNT = 10**9
_PYTORCH = ("nccl", "gloo")
_MPI = ("mpi", "openmpi", "intelmpi")
_MODES = {"mount": "ro_mount", "download": "download", "direct": "direct", "hdfs": "direct"}
_OUTPUT_MODES = {"mount": "rw_mount", "upload": "upload"}

# From a dataset's location in a configuration, or a datastore and a path in it, to (path, type).
FindData = Callable[[Mapping[str, Any]], tuple[str, str]]


def job_document(
    configuration: Mapping[str, Any],
    environment: Any,
    find_dataset: FindData,
    find_reference: FindData,
) -> dict[str, Any]:
    """The job that a RunConfiguration describes, without its name, experiment and code.

    Args:
        environment: a reference, or an inline environment.

    Raises:
        InvalidInput: a part contradicts another.
        NotServed: a part that torchyard does not have.
    """
    inputs, variables = inputs_of(configuration, find_dataset, find_reference)
    ids = ids_of_direct(configuration)
    outputs = {
        name: _output(name, output)
        for name, output in objects_at(configuration, "outputData").items()
    }
    nodes = whole_number(configuration, "nodeCount", "node_count", 1)
    document: dict[str, Any] = {
        "type": "command",
        "command": command_line(configuration, variables, ids),
        "environment": environment,
        "compute": _compute(configuration),
        "resources": {"instance_count": nodes},
        "environment_variables": variables_of(configuration),
    }
    if inputs:
        document["inputs"] = inputs
    if outputs:
        document["outputs"] = outputs
    distribution = _distribution(configuration, nodes)
    if distribution:
        document["distribution"] = distribution
    limit = whole_number(configuration, "maxRunDurationSeconds", "max_run_duration_seconds", 0)
    if limit:
        document["limits"] = {"timeout": limit}
    docker = object_at(configuration, "docker")
    if docker.get("shmSize") and not _SIZE.fullmatch(str(docker["shmSize"])):
        raise InvalidInput(f"`shm_size` is `{str(docker['shmSize'])[:40]}`", "write it as `2g`")
    if docker.get("arguments"):
        document["resources"]["docker_args"] = " ".join(map(str, items_at(docker, "arguments")))
    return document


def quoted(argument: Any) -> str:
    """One argument for a shell: a single word in which the shell expands variables."""
    text, parts, end = str(argument), [], 0
    for match in _VARIABLE.finditer(text):
        if text[end : match.start()]:
            parts.append(shlex.quote(text[end : match.start()]))
        name = match[1] or match[2]
        itself = f"\\${{{name}\\}}" if match[1] else f"\\${name}"
        parts.append(f'"${{{name}-{itself}}}"')
        end = match.end()
    if text[end:] or not parts:
        parts.append(shlex.quote(text[end:]))
    return "".join(parts)


def command_line(
    configuration: Mapping[str, Any],
    variables: Mapping[str, str],
    ids: Mapping[str, str],
    python: str = "python",
) -> str:
    """What bash runs; `python` is quoted for it.

    Raises:
        InvalidInput: the run has a script and a command, or neither.
    """
    script, text = _script_or_command(configuration)
    settings = "".join(f'{name}="{value}" ' for name, value in variables.items())
    if text:
        arguments = [_data_argument(item, ids) for item in items_at(configuration, "arguments")]
        exports = f"export {settings.strip()}\n" if settings else ""
        return exports + " ".join([_with_data(text, ids), *arguments])
    arguments = [_data_argument(item, ids) for item in items_at(configuration, "arguments")]
    return settings + " ".join([python, shlex.quote(script), *arguments])


def _script_or_command(configuration: Mapping[str, Any]) -> tuple[str, str]:
    """One of the two; the other is empty.

    Raises:
        InvalidInput: both are set, or neither.
    """
    script, command = configuration.get("script"), configuration.get("command")
    if bool(script) == bool(command):
        both = "a script and a command" if script else "neither a script nor a command"
        raise InvalidInput(f"a run has {both}", "set one of the two in ScriptRunConfig")
    if not command:
        return str(script), ""
    return "", command if isinstance(command, str) else " ".join(map(str, command))


def _data_argument(argument: Any, ids: Mapping[str, str]) -> str:
    """An argument may be a dataset, whose path is known when the job starts."""
    text = str(argument)
    placed = _with_data(text, ids)
    return placed if placed != text else quoted(text)


def _with_data(text: str, ids: Mapping[str, str]) -> str:
    def value_of(name: str) -> str:
        return shlex.quote(ids[name]) if name in ids else f'"${{{{inputs.{name}}}}}"'

    text = _DATASET.sub(lambda match: value_of(match[1]), text)
    text = _REFERENCE.sub(lambda match: value_of(_reference(match[1])), text)
    return _OUTPUT.sub(lambda match: f'"${{{{outputs.{match[1]}}}}}"', text)


def _compute(configuration: Mapping[str, Any]) -> str:
    target = str(configuration.get("target") or "")
    if target.lower() == "amlcompute":
        raise NotServed(
            "a cluster for only one run is not served",
            "create one with `ComputeTarget.create` and name it as `compute_target`",
        )
    return target


def variables_of(configuration: Mapping[str, Any]) -> dict[str, str]:
    of_environment = object_at(object_at(configuration, "environment"), "environmentVariables")
    of_run = object_at(configuration, "environmentVariables")
    return {key: str(value) for key, value in {**of_environment, **of_run}.items()}


def _distribution(configuration: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    communicator = str(configuration.get("communicator") or "").lower()
    framework = str(configuration.get("framework") or "").lower()
    if communicator in _MPI:
        mpi = object_at(configuration, "mpi")
        each = whole_number(mpi, "processCountPerNode", "process_count_per_node", 1)
        return {"type": "mpi", "process_count_per_instance": each}
    if communicator in _PYTORCH or (framework == "pytorch" and communicator not in ("", "none")):
        return _pytorch(object_at(configuration, "pytorch"), communicator, nodes)
    if communicator == "parameterserver":
        counts = object_at(configuration, "tensorflow")
        return {
            "type": "tensorflow",
            "worker_count": whole_number(counts, "workerCount", "worker_count", 1),
            "parameter_server_count": whole_number(
                counts, "parameterServerCount", "parameter_server_count", 0, least=0
            ),
        }
    if communicator in ("", "none"):
        return {}
    raise NotServed(
        f"the communicator `{configuration.get('communicator')}` is not served",
        "use PyTorchConfiguration, MpiConfiguration or TensorflowConfiguration",
    )


def _pytorch(settings: Mapping[str, Any], communicator: str, nodes: int) -> dict[str, Any]:
    total = whole_number(settings, "processCount", "process_count", nodes)
    if total % nodes:
        raise InvalidInput(
            f"`process_count={total}` can't be spread evenly over `node_count={nodes}`",
            "it counts the processes of all nodes together",
        )
    distribution: dict[str, Any] = {"type": "pytorch", "process_count_per_instance": total // nodes}
    # `Nccl` is the class's default; the script chooses its own backend.
    if str(settings.get("communicationBackend") or communicator).lower() == "gloo":
        distribution["communication_backend"] = "gloo"
    return distribution


def inputs_of(
    configuration: Mapping[str, Any], find_dataset: FindData, find_reference: FindData
) -> tuple[dict[str, Any], dict[str, str]]:
    """(inputs of the job, variables with their paths)."""
    inputs: dict[str, Any] = {}
    variables: dict[str, str] = {}
    ids, modes = ids_of_direct(configuration), []
    for name, document in objects_at(configuration, "data").items():
        path, type = find_dataset(object_at(object_at(document, "dataLocation"), "dataset"))
        inputs[name] = _input(
            name, path, type, document.get("mechanism"), document.get("pathOnCompute")
        )
        variable = str(document.get("environmentVariableName") or name)
        variables[variable] = ids.get(name) or f"${{{{inputs.{name}}}}}"
        modes.append(f"{variable}:{'direct' if name in ids else inputs[name]['mode']}")
    if modes:
        # Read by `run.input_datasets`.
        variables["AZUREML_DATASET_ENVIRONMENT_VARS"] = ",".join(modes)
    for name, document in objects_at(configuration, "dataReferences").items():
        path, type = find_reference(document)
        input_name = _reference(name)
        inputs[input_name] = _input(input_name, path, type, document.get("mode"), None)
        variables[f"AZUREML_DATAREFERENCE_{name}"] = f"${{{{inputs.{input_name}}}}}"
    return inputs, variables


def ids_of_direct(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Dataset ids by input, of inputs that the script gets as a `Dataset` instead of a path."""
    ids = {}
    for name, input in objects_at(configuration, "data").items():
        dataset = object_at(object_at(input, "dataLocation"), "dataset")
        if str(input.get("mechanism")).lower() == "direct" and dataset.get("id"):
            ids[name] = str(dataset["id"])
    return ids


def _reference(name: str) -> str:
    """The input of a DataReference; a DataReference without a name has a number for a name."""
    return f"reference_{name}" if name[:1].isdigit() else name


def _input(name: str, path: str, type: str, mode: Any, compute_path: Any) -> dict[str, Any]:
    mount_mode = str(mode or "mount").lower()
    if mount_mode not in _MODES:
        raise NotServed(
            f"the mode `{mount_mode}` of input `{name}` is not served", "use mount or download"
        )
    input = {"type": type, "path": path, "mode": _MODES[mount_mode]}
    if compute_path:
        input["path_on_compute"] = str(compute_path)
    return input


def _output(name: str, document: Mapping[str, Any]) -> dict[str, Any]:
    mode = str(document.get("mechanism") or "mount").lower()
    if mode not in _OUTPUT_MODES:
        raise NotServed(
            f"the mode `{mode}` of output `{name}` is not served", "use mount or upload"
        )
    output: dict[str, Any] = {"type": "uri_folder", "mode": _OUTPUT_MODES[mode]}
    location = object_at(object_at(document, "outputLocation"), "dataPath")
    if location.get("datastoreName"):
        path = str(location.get("relativePath") or "").strip("/")
        path = path.replace("{run-id}", "${{name}}").replace("{output-name}", "${{output_name}}")
        output["path"] = f"azureml://datastores/{location['datastoreName']}/paths/{path}"
    options = object_at(object_at(document, "additionalOptions"), "registrationOptions")
    if options.get("name"):
        output["name"] = options["name"]
    return output


def whole_number(
    holder: Mapping[str, Any], key: str, name: str, default: int, *, least: int = 1
) -> int:
    """A whole number, with its name in the SDK's classes for messages."""
    value = holder.get(key)
    if value is None:
        return default
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = least - 1
    if not least <= number <= _MAX_COUNT or isinstance(value, bool) or number != float(value):
        raise InvalidInput(
            f"`{name}` is `{str(value)[:40]}`", f"it must be an integer, {least} or more"
        )
    return number


def object_at(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = holder.get(key)
    return value if isinstance(value, Mapping) else {}


def objects_at(holder: Mapping[str, Any], key: str) -> Mapping[str, Mapping[str, Any]]:
    """
    Raises:
        InvalidInput: one of them is not a JSON object.
    """
    objects = object_at(holder, key)
    for name, value in objects.items():
        if not isinstance(value, Mapping):
            raise InvalidInput(f"`{name[:80]}` in `{key}` of the run is not a JSON object")
    return objects


def items_at(holder: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = holder.get(key)
    return value if isinstance(value, list) else []
