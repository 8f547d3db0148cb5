"""The job file of a step: what its component says, and what stands at the step itself.

Owns: which of the two goes before, inputs and outputs in the words of a job's file.
Leaves: what the inputs are to expansion.py, checking the file to jobs/spec/.
Always: the file is a command job's; nothing of the pipeline is left in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.base.documents.checks import At
from torchyard.base.errors import InvalidSpec
from torchyard.jobs.spec import own_properties
from torchyard.pipelines.spec.pipeline_file import Settings
from torchyard.pipelines.spec.plan import Taken
from torchyard.pipelines.spec.values import (
    LITERALS,
    Data,
    Literal,
    Output,
    Port,
    Value,
    input_type,
    output_type,
)

_OF_COMPONENT = (
    *("command", "code", "environment", "environment_variables", "distribution", "resources"),
    *("limits", "identity"),
)
_OF_STEP = (
    *_OF_COMPONENT,
    *("services", "queue_settings", "description", "tags", "properties", "display_name"),
)
_JOINED = ("environment_variables", "resources", "limits")


def of_step(
    node: Mapping[str, Any], definition: Mapping[str, Any], at: At
) -> tuple[dict[str, Any], dict[At, At]]:
    """Its keys, but for inputs, outputs and compute; and where each of them stands.

    Args:
        node: as it is written, the mapping `torchyard:` included.
        definition: its component's; empty where the step is its own.
    """
    document: dict[str, Any] = {"type": "command"}
    document |= {key: definition[key] for key in _OF_COMPONENT if definition.get(key)}
    places: dict[At, At] = {(key,): (*at, "component", key) for key in document}
    if isinstance(environment := document.get("environment"), str) and definition:
        document["environment"] = f"azureml:{environment.removeprefix('azureml:')}"
    for key, value in own_properties.with_mapping(node).items():
        if key not in _OF_STEP or value is None:
            continue
        below = document.get(key)
        if key in _JOINED and isinstance(below, Mapping) and isinstance(value, Mapping):
            places |= {(key, str(name)): (*at, key, str(name)) for name in value}
            value = {**below, **value}
        else:
            places[(key,)] = (*at, key)
        document[key] = value
    places |= {
        ("properties", key): (*at, *key.split("."))
        for key in document.get("properties") or {}
        if isinstance(node.get("torchyard"), Mapping) and key.startswith(own_properties.PREFIX)
    }
    return document, places


def inputs(
    values: Mapping[str, Value | None], ports: Mapping[str, Port]
) -> tuple[dict[str, Any], dict[str, Taken]]:
    """Inputs that are known, as of a job's file, and those that other steps make."""
    known: dict[str, Any] = {}
    taken: dict[str, Taken] = {}
    for name, value in values.items():
        port = ports.get(name) or {}
        if isinstance(value, Literal):
            known[name] = value.value
        elif isinstance(value, Data | Output):
            kind, mode = input_type(port, value), value.mode or str(port.get("mode") or "")
            if isinstance(value, Data):
                known[name] = {"type": kind, "path": value.path, **({"mode": mode} if mode else {})}
            else:
                taken[name] = Taken(value.step, value.output, kind, mode)
    return known, taken


def output(name: str, port: Port, said: Mapping[str, Any], settings: Settings, at: At) -> Any:
    """An output as of a job's file.

    Args:
        said: at the step, joined with what the pipeline says of the output that it is bound to.

    Raises:
        InvalidSpec: it is of a type that no job writes.
    """
    kind = output_type(port, said)
    if kind in LITERALS:
        raise InvalidSpec(
            f"output `{name}` is of type `{kind}`, and outputs are files",
            "write it to a file in an output of `type: uri_file`, and read it in the next step",
            code="not_served",
            at=at,
        )
    keys = ("mode", "path", "name", "version")
    written = {key: said[key] for key in keys if said.get(key) not in (None, "")}
    if "mode" not in written and port.get("mode"):
        written["mode"] = port["mode"]
    if settings.datastore and "path" not in written:
        written["path"] = (
            f"azureml://datastores/{settings.datastore}/paths/azureml/${{{{name}}}}/"
            "${{output_name}}/"
        )
    return {"type": kind, **written}
