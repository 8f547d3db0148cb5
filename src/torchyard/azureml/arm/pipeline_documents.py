"""Azure's pipeline job as our document, and the steps of a pipeline component.

Owns: the keys that only a pipeline has: steps, settings, component.
Leaves: what a step shares with a command job to job_documents.py; the rules of the document to
pipelines/spec; the opposite direction to pipeline_resources.py.
Always: a key is translated, or refused by its name; of a kind of step that is not served only the
type is kept, by which it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchyard.azureml.arm.job_documents import (
    COMMON_READERS,
    COMPONENT_KEY,
    JOB_READERS,
    SAME_KEYS,
    KeyReader,
    Reader,
    mapping_at,
    refuse_imports,
    snake,
    text_at,
)
from torchyard.azureml.common.calls import refuse_others
from torchyard.base.documents.faults import entries
from torchyard.base.errors import InvalidInput, InvalidSpec, TorchyardError, did_you_mean

KIND = "pipeline"
STEP_KINDS = ("command", KIND)
SETTINGS = (
    "default_compute",
    "default_datastore",
    "continue_on_step_failure",
    "force_rerun",
    "continue_run_on_failed_optional_input",
)
NODE_SAME = ("display_name", "description", "experiment_name", "tags", "properties")

_BINDING = "${{"
# What the client says of how a step was written, and a comment that only its own page shows.
_OF_CLIENT = ("_source", "comment", "name", "type")
# The parts of a step as a job has them, and what Azure's keys are below each. In a step they are
# in snake case.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "limits": ("jobLimitsType",),
    "resources": ("dockerArgsList",),
    "distribution": ("distributionType",),
    "identity": ("identityType", "clientId", "objectId", "resourceId"),
    "queue_settings": ("jobTier",),
}
_JOB_KEYS = {"queue_settings": "queueSettings", "environment_variables": "environmentVariables"}
_IO_KEYS = ("jobInputType", "jobOutputType", "pathOnCompute", "assetName", "assetVersion")
_SERVICE_KEYS = ("jobServiceType", "nodesValueType")


def read(reader: Reader, name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The document of the pipeline that a client sends.

    Raises:
        NotServed: it is an import of data, which its client sends as a pipeline.
        InvalidSpec: a value of the wrong form, or an unknown key.
        NotFound: it names something in another workspace.
    """
    refuse_imports(properties)
    return reader.read_keys({"type": KIND, "name": name}, properties, SAME_KEYS, _READERS)


def nodes(
    reader: Reader, value: Any, at: tuple[str, ...] = ("properties", "jobs")
) -> dict[str, Any]:
    """The steps of a pipeline, or of a pipeline component.

    Raises:
        InvalidSpec: a value of the wrong form, or an unknown key; with all such steps.
        NotFound: one names something in another workspace.
    """
    if not isinstance(value, Mapping):
        raise InvalidInput(f"`{at[-1]}` is not a JSON object", at=at)
    return entries(value, at, lambda node, place: _node(reader, node, tuple(map(str, place))))


def is_binding(value: Any) -> bool:
    return isinstance(value, str) and value.strip().startswith(_BINDING)


def _node(reader: Reader, node: Any, at: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise InvalidInput(f"step `{at[-1]}` is not a JSON object", at=at)
    kind = str(node.get("type") or "command")
    document: dict[str, Any] = {"type": kind}
    if kind.lower() not in STEP_KINDS:
        return document
    if node.get("name") not in (None, "", at[-1]):
        raise InvalidSpec(
            f"step `{at[-1]}` has the name `{str(node['name'])[:80]}`",
            "a step is named by its key: leave `name` out",
            at=(*at, "name"),
        )
    known = (*_OF_CLIENT, *NODE_SAME, *_NODE_READERS)
    refuse_others(node, known, at, f" of step `{at[-1]}`")
    for key in NODE_SAME:
        if node.get(key) not in (None, "", {}):
            document[key] = node[key]
    for key, read_key in _NODE_READERS.items():
        if node.get(key) is not None:
            document.update(_below(at, key, read_key, reader, node[key]))
    return document


def _below(
    at: tuple[str, ...], key: str, read_key: KeyReader, reader: Reader, value: Any
) -> dict[str, Any]:
    """What a key of a step means; errors, which are placed as in a job, get the step's place."""
    try:
        return read_key(reader, value)
    except TorchyardError as error:
        if error.at:
            error.at = (*at, key, *error.at[2:])
        raise


def _part(key: str) -> KeyReader:
    """The reader of a part that a command job has, too."""
    job_key = _JOB_KEYS.get(key, key)
    names = {snake(name): name for name in _PARTS[key]}

    def read_part(reader: Reader, value: Any) -> dict[str, Any]:
        part = _renamed(mapping_at(value, key), names)
        bound = {name: each for name, each in part.items() if is_binding(each)}
        if key != "limits" or not bound:
            return JOB_READERS[job_key](reader, part)
        rest = {name: each for name, each in part.items() if name not in bound}
        read_rest = JOB_READERS[job_key](reader, rest).get(key, {})
        return {key: {**read_rest, **bound}}

    return read_part


def _renamed(part: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(key, key): each for key, each in part.items()}


def _services(reader: Reader, value: Any) -> dict[str, Any]:
    names = {snake(name): name for name in _SERVICE_KEYS}
    services = {}
    for name, service in mapping_at(value, "services").items():
        renamed = _renamed(mapping_at(service or {}, "services", name), names)
        if isinstance(renamed.get("nodes"), Mapping):
            renamed["nodes"] = _renamed(renamed["nodes"], names)
        services[name] = renamed
    return JOB_READERS["services"](reader, services)


def _compute(reader: Reader, value: Any) -> dict[str, Any]:
    return {"compute": value} if is_binding(value) else reader.compute(value)


def _component(reader: Reader, value: Any) -> dict[str, Any]:
    return {"component": reader.reference(text_at(value, COMPONENT_KEY), "components")}


def _ports(key: str, read_ports: Callable[[Reader, Any], dict[str, Any]]) -> KeyReader:
    """The reader of a step's inputs or outputs, some of which are bindings."""
    names = {snake(name): name for name in _IO_KEYS}

    def read_key(reader: Reader, value: Any) -> dict[str, Any]:
        ports: dict[str, Any] = {}
        for name, port in mapping_at(value, key).items():
            if port is None or is_binding(port):
                ports[name] = port
                continue
            renamed = _renamed(mapping_at(port, key, name), names)
            if key == "outputs":
                renamed |= _registered(renamed)
            ports[name] = _binding(renamed, (key, name)) or _port(reader, read_ports, name, renamed)
        return {key: ports} if ports else {}

    return read_key


def _port(
    reader: Reader, read_ports: Callable[[Reader, Any], dict[str, Any]], name: str, port: Any
) -> Any:
    (found,) = read_ports(reader, {name: port}).values()
    return found[name]


def _registered(port: dict[str, Any]) -> dict[str, Any]:
    """In a step, the asset that an output becomes has other keys than in a job."""
    return {
        job_key: port.pop(key)
        for key, job_key in (("name", "assetName"), ("version", "assetVersion"))
        if key in port
    }


def _binding(port: Mapping[str, Any], at: tuple[str, str]) -> Any:
    """The binding, or one with what stands beside it; None for anything else."""
    if not is_binding(port.get("value")):
        return None
    binding = str(port["value"])
    keys = ("type", "value", "jobInputType", "jobOutputType", "mode", "assetName", "assetVersion")
    refuse_others(port, keys, ("properties", *at))
    beside = {key: each for key, each in port.items() if key in ("mode", *_IO_KEYS) and each}
    beside = {key: each for key, each in beside.items() if each != "literal"}
    if not beside:
        return binding
    is_output = at[0] == "outputs"
    type_key = "jobOutputType" if is_output else "jobInputType"
    read_ports = Reader.outputs if is_output else Reader.inputs
    plain = {type_key: "uri_folder", **beside, "uri": binding}
    found: dict[str, Any] = _port(_PLAIN, read_ports, at[1], plain)
    if type_key not in beside:
        del found["type"]
    return found


# For what names nothing of a workspace.
_PLAIN = Reader("", lambda code_id: "")


def _settings(reader: Reader, value: Any) -> dict[str, Any]:
    at = ("properties", "settings")
    settings: dict[str, Any] = {}
    for written, setting in mapping_at(value, "settings").items():
        key = snake(written)
        if key == "_source" or setting is None:
            continue
        if key not in SETTINGS:
            raise InvalidSpec(
                f"`{written[:80]}` is not a setting of a pipeline",
                did_you_mean(key, SETTINGS),
                at=(*at, written),
            )
        settings[key] = setting
    for key, type in (("default_compute", "computes"), ("default_datastore", "datastores")):
        if key in settings and not is_binding(settings[key]):
            settings[key] = f"azureml:{reader.name_of(text_at(settings[key], key, at), type)}"
    return {"settings": settings} if settings else {}


def _jobs(reader: Reader, value: Any) -> dict[str, Any]:
    steps = nodes(reader, value)
    return {"jobs": steps} if steps else {}


def _server_services(reader: Reader, value: Any) -> dict[str, Any]:
    """The links that the server adds; a pipeline has no process that could serve anything."""
    if JOB_READERS["services"](reader, value):
        raise InvalidSpec(
            "`services` of a pipeline is not served",
            "ask for them at a step",
            code="not_served",
            at=("properties", "services"),
        )
    return {}


_READERS: Mapping[str, KeyReader] = {
    **{key: COMMON_READERS[key] for key in ("inputs", "outputs", "identity")},
    "computeId": _compute,
    COMPONENT_KEY: _component,
    "services": _server_services,
    "settings": _settings,
    "jobs": _jobs,
}
_NODE_READERS: Mapping[str, KeyReader] = {
    COMPONENT_KEY: _component,
    "computeId": _compute,
    "environment_variables": Reader.variables,
    "services": _services,
    "inputs": _ports("inputs", Reader.inputs),
    "outputs": _ports("outputs", Reader.outputs),
    **{key: _part(key) for key in _PARTS},
}
