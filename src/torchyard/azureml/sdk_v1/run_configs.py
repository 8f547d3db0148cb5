"""SDK v1's run configuration, made a job document.

Owns: what each part of a RunConfiguration becomes, its arguments as a shell command.
Leaves: environments to environments.py, the document's own rules to jobs/spec/job_spec.py.
Always: a script sees the arguments that were given, each as one; `$NAME` in them stands for the
variable of the process that gets them, and for itself where there is none.
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
DATASET = re.compile(r"DatasetConsumptionConfig:([A-Za-z_]\w*)", re.ASCII)
_OUTPUT = re.compile(r"DatasetOutputConfig:([A-Za-z_]\w*)", re.ASCII)
_SIZE = re.compile(r"\d+(\.\d+)?\s*[bkmgt]?", re.IGNORECASE)
_MOST = 10**9
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
    inputs, variables = inputs_of(configuration, find_dataset, find_reference)
    ids = ids_of_direct(configuration)
    outputs = {
        name: _output(name, one) for name, one in objects_at(configuration, "outputData").items()
    }
    nodes = whole_number(configuration, "nodeCount", "node_count", 1)
    document: dict[str, Any] = {
        "type": "command",
        "command": _command(configuration, variables, ids),
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


def _command(
    configuration: Mapping[str, Any], variables: Mapping[str, str], ids: Mapping[str, str]
) -> str:
    script, text = script_or_command(configuration)
    settings = "".join(f'{name}="{value}" ' for name, value in variables.items())
    if text:
        arguments = [_data_argument(one, ids) for one in items_at(configuration, "arguments")]
        exports = f"export {settings.strip()}\n" if settings else ""
        return exports + " ".join([_with_data(text, ids), *arguments])
    words = [_data_argument(one, ids) for one in items_at(configuration, "arguments")]
    return settings + " ".join(["python", shlex.quote(script), *words])


def script_or_command(configuration: Mapping[str, Any]) -> tuple[str, str]:
    """One of the two; the other is empty.

    Raises:
        InvalidInput: both are given, or none.
    """
    script, command = configuration.get("script"), configuration.get("command")
    if bool(script) == bool(command):
        both = "a script and a command" if script else "neither a script nor a command"
        raise InvalidInput(f"a run has {both}", "give ScriptRunConfig one of the two")
    if not command:
        return str(script), ""
    return "", command if isinstance(command, str) else " ".join(map(str, command))


def _data_argument(argument: Any, ids: Mapping[str, str]) -> str:
    """An argument may be a dataset, whose place is known when the job starts."""
    text = str(argument)
    placed = _with_data(text, ids)
    return placed if placed != text else quoted(text)


def _with_data(text: str, ids: Mapping[str, str]) -> str:
    def told(name: str) -> str:
        return shlex.quote(ids[name]) if name in ids else f'"${{{{inputs.{name}}}}}"'

    text = DATASET.sub(lambda found: told(found[1]), text)
    text = _REFERENCE.sub(lambda found: told(_reference(found[1])), text)
    return _OUTPUT.sub(lambda found: f'"${{{{outputs.{found[1]}}}}}"', text)


def _compute(configuration: Mapping[str, Any]) -> str:
    target = str(configuration.get("target") or "")
    if target.lower() == "amlcompute":
        raise NotServed(
            "a cluster that lives as long as one run is not served",
            "create one with `ComputeTarget.create` and name it as `compute_target`",
        )
    return target


def variables_of(configuration: Mapping[str, Any]) -> dict[str, str]:
    of_environment = object_at(object_at(configuration, "environment"), "environmentVariables")
    own = object_at(configuration, "environmentVariables")
    return {key: str(value) for key, value in {**of_environment, **own}.items()}


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


def _pytorch(asked: Mapping[str, Any], communicator: str, nodes: int) -> dict[str, Any]:
    total = whole_number(asked, "processCount", "process_count", nodes)
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


def inputs_of(
    configuration: Mapping[str, Any], find_dataset: FindData, find_reference: FindData
) -> tuple[dict[str, Any], dict[str, str]]:
    """(inputs of the job, variables that tell the script where they are)."""
    inputs: dict[str, Any] = {}
    variables: dict[str, str] = {}
    ids, modes = ids_of_direct(configuration), []
    for name, one in objects_at(configuration, "data").items():
        path, type = find_dataset(object_at(object_at(one, "dataLocation"), "dataset"))
        inputs[name] = _input(name, path, type, one.get("mechanism"), one.get("pathOnCompute"))
        variable = str(one.get("environmentVariableName") or name)
        variables[variable] = ids.get(name) or f"${{{{inputs.{name}}}}}"
        modes.append(f"{variable}:{'direct' if name in ids else inputs[name]['mode']}")
    if modes:
        # What `run.input_datasets` reads.
        variables["AZUREML_DATASET_ENVIRONMENT_VARS"] = ",".join(modes)
    for name, one in objects_at(configuration, "dataReferences").items():
        path, type = find_reference(one)
        ours = _reference(name)
        inputs[ours] = _input(ours, path, type, one.get("mode"), None)
        variables[f"AZUREML_DATAREFERENCE_{name}"] = f"${{{{inputs.{ours}}}}}"
    return inputs, variables


def ids_of_direct(configuration: Mapping[str, Any]) -> dict[str, str]:
    """By input, of those that the script is given as a `Dataset` instead of a place."""
    found = {}
    for name, one in objects_at(configuration, "data").items():
        dataset = object_at(object_at(one, "dataLocation"), "dataset")
        if str(one.get("mechanism")).lower() == "direct" and dataset.get("id"):
            found[name] = str(dataset["id"])
    return found


def _reference(name: str) -> str:
    """The input that a DataReference becomes; one that nobody named has a number for a name."""
    return f"reference_{name}" if name[:1].isdigit() else name


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
    location = object_at(object_at(asked, "outputLocation"), "dataPath")
    if location.get("datastoreName"):
        path = str(location.get("relativePath") or "").strip("/")
        path = path.replace("{run-id}", "${{name}}").replace("{output-name}", "${{output_name}}")
        found["path"] = f"azureml://datastores/{location['datastoreName']}/paths/{path}"
    options = object_at(object_at(asked, "additionalOptions"), "registrationOptions")
    if options.get("name"):
        found["name"] = options["name"]
    return found


def whole_number(
    holder: Mapping[str, Any], key: str, name: str, default: int, *, least: int = 1
) -> int:
    """A whole number, under its name in the SDK's classes."""
    given = holder.get(key)
    if given is None:
        return default
    try:
        found = int(given)
    except (TypeError, ValueError, OverflowError):
        found = least - 1
    if not least <= found <= _MOST or isinstance(given, bool) or found != float(given):
        raise InvalidInput(
            f"`{name}` is `{str(given)[:40]}`", f"give a whole number, {least} or more"
        )
    return found


def object_at(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}


def objects_at(holder: Mapping[str, Any], key: str) -> Mapping[str, Mapping[str, Any]]:
    """
    Raises:
        InvalidInput: one of them is no JSON object.
    """
    found = object_at(holder, key)
    for name, one in found.items():
        if not isinstance(one, Mapping):
            raise InvalidInput(f"`{name[:80]}` in `{key}` of the run is no JSON object")
    return found


def items_at(holder: Mapping[str, Any], key: str) -> Sequence[Any]:
    found = holder.get(key)
    return found if isinstance(found, list) else []
