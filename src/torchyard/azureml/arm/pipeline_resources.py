"""Our pipeline as the properties of an Azure resource, and the steps of a pipeline component.

Owns: the translation from a pipeline's document to Azure's JSON, key by key.
Leaves: the opposite direction to pipeline_documents.py; what every job has to job_resources.py.
Always: what a client reads and puts again means the same pipeline; a step that names no component
gets a reference that only its content decides, for clients read no step without one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torchyard.azureml.arm import assets, job_resources
from torchyard.azureml.arm.job_documents import COMPONENT_KEY, PRIORITIES, snake
from torchyard.azureml.arm.pipeline_documents import NODE_SAME, SETTINGS, is_binding
from torchyard.azureml.common.calls import Call
from torchyard.base.documents import secret_variables
from torchyard.base.fields import literal
from torchyard.jobs.files.outputs import MADE_BY
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job
from torchyard.jobs.spec.inputs import LITERAL

ANONYMOUS_COMPONENT = "azureml_anonymous"

_SERVERLESS = "serverless"
# What of a step decides what it runs, where it names no component.
_INLINE = ("component", "command", "code", "environment")
_SERVICE_TYPES = {**job_resources.SERVICE_TYPES, "ssh": "SSH"}


class Ids(Protocol):
    """How what a document refers to is written."""

    def name(self, type: str, reference: str) -> str:
        """A compute or a datastore; `type` is ARM's."""
        ...

    def component(self, reference: str) -> str: ...

    def data(self, type: str, path: str) -> str:
        """The path of an input of a type."""
        ...

    def uri(self, path: str) -> str:
        """The path of an output."""
        ...


@dataclass(frozen=True)
class ResourceIds:
    """As resource paths of the call's workspace."""

    call: Call

    def name(self, type: str, reference: str) -> str:
        name = reference.removeprefix("azureml:")
        return name if name == _SERVERLESS or is_binding(name) else self.call.id(type, name)

    def component(self, reference: str) -> str:
        return assets.version_id(self.call, "components", reference)

    def data(self, type: str, path: str) -> str:
        uri = job_resources.input_uri(self.call, type, path)
        # In a pipeline, clients send back only a bare resource path.
        return uri.removeprefix("azureml:") if uri.startswith("azureml:/subscriptions/") else uri

    def uri(self, path: str) -> str:
        return assets.long_uri(self.call, path)


def pipeline(call: Call, job: Job, environment_hash: str) -> dict[str, Any]:
    """The properties of a pipeline's resource.

    Args:
        environment_hash: not used: a pipeline has no environment.
    """
    written = content(masked(job.document), ResourceIds(call))
    described = job_resources.described(job)
    properties = {key: text for key, text in described["properties"].items() if key != MADE_BY}
    return {
        "jobType": "Pipeline",
        **described,
        # Clients send them again with a copy, whose outputs other steps make.
        "properties": properties,
        **job_masking.masked(job, written),
        "parentJobName": job.document.get("parent_job_name") or None,
        "services": job_resources.services(call, job, {}),
    }


def masked(document: Mapping[str, Any]) -> dict[str, Any]:
    """A pipeline's document without the secret variables of its steps."""
    steps = document.get("jobs") or {}
    hidden = {name: secret_variables.masked_document(node) for name, node in steps.items()}
    return {**document, **({"jobs": hidden} if hidden else {})}


def content(document: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    """What of a pipeline is neither a label nor the server's."""
    component = document.get("component")
    compute = str(document.get("compute") or "")
    return {
        "computeId": ids.name("computes", compute) if compute else None,
        COMPONENT_KEY: ids.component(_component(document)) if component else None,
        "inputs": _inputs(document, ids),
        "outputs": _outputs(document, ids),
        "identity": job_resources.identity(document),
        "settings": _settings(document.get("settings") or {}, ids),
        "jobs": nodes(document.get("jobs") or {}, ids),
    }


def nodes(steps: Mapping[str, Mapping[str, Any]], ids: Ids) -> dict[str, Any]:
    """The steps of a pipeline, or of a pipeline component."""
    return {name: _node(name, node, ids) for name, node in steps.items()}


def _node(name: str, node: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    compute = str(node.get("compute") or "")
    outputs = {key: _as_of_step(port) for key, port in _outputs(node, ids).items()}
    parts = {
        "computeId": ids.name("computes", compute) if compute else None,
        "environment_variables": node.get("environment_variables"),
        "resources": _resources(node.get("resources") or {}),
        "distribution": _distribution(node.get("distribution") or {}),
        "limits": _limits(node.get("limits") or {}),
        "queue_settings": _queue(node.get("queue_settings") or {}),
        "services": _services(node.get("services") or {}),
        "identity": _in_snake_case(job_resources.identity(node) or {}),
        **{key: node.get(key) for key in NODE_SAME},
    }
    return {
        "name": name,
        "type": str(node.get("type") or "command"),
        COMPONENT_KEY: ids.component(_component(node)),
        "inputs": {key: _in_snake_case(port) for key, port in _inputs(node, ids).items()},
        "outputs": outputs,
        **{key: part for key, part in parts.items() if part},
    }


def _component(node: Mapping[str, Any]) -> str:
    component = node.get("component")
    if isinstance(component, str):
        return component if component.startswith("azureml:") else f"azureml:{component}"
    inline = {key: node[key] for key in _INLINE if node.get(key)}
    text = json.dumps(inline, sort_keys=True, ensure_ascii=False, default=str)
    return f"azureml:{ANONYMOUS_COMPONENT}:{hashlib.sha256(text.encode()).hexdigest()}"


def _inputs(document: Mapping[str, Any], ids: Ids) -> dict[str, dict[str, Any]]:
    written = (document.get("inputs") or {}).items()
    return {name: _input(value, ids) for name, value in written if value is not None}


def _input(value: Any, ids: Ids) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"jobInputType": LITERAL, "value": literal(value)}
    mode = _mode(value)
    if is_binding(value.get("path")):
        return {"jobInputType": LITERAL, "value": value["path"], **mode}
    if "path" not in value:
        return {"jobInputType": LITERAL, "value": literal(value.get("value", ""))}
    type = str(value.get("type") or "uri_folder")
    return {"jobInputType": type, "uri": ids.data(type, str(value["path"])), **mode}


def _outputs(document: Mapping[str, Any], ids: Ids) -> dict[str, dict[str, Any]]:
    written = (document.get("outputs") or {}).items()
    return {name: _output(value or {}, ids) for name, value in written}


def _output(value: Any, ids: Ids) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"jobOutputType": LITERAL, "value": value}
    asset = {
        azure_key: str(value[key])
        for key, azure_key in (("name", "assetName"), ("version", "assetVersion"))
        if value.get(key) not in (None, "")
    }
    beside = {**_mode(value), **asset}
    path = str(value.get("path") or "")
    if is_binding(path) and "parent." in path:
        return {"jobOutputType": LITERAL, "value": path, **beside}
    type = job_resources.output_type(str(value.get("type") or "uri_folder"))
    return {"jobOutputType": type, **({"uri": ids.uri(path)} if path else {}), **beside}


def _mode(port: Mapping[str, Any]) -> dict[str, Any]:
    mode = port.get("mode")
    return {"mode": job_resources.MODES.get(str(mode), mode)} if mode else {}


def _as_of_step(port: Mapping[str, Any]) -> dict[str, Any]:
    """In a step, an output has other keys than in a job."""
    type_key = "type" if port["jobOutputType"] == LITERAL else "job_output_type"
    names = {"jobOutputType": type_key, "assetName": "name", "assetVersion": "version"}
    return {names.get(key, key): value for key, value in port.items()}


def _in_snake_case(part: Mapping[str, Any]) -> dict[str, Any]:
    return {snake(key): value for key, value in part.items()}


def _resources(written: Mapping[str, Any]) -> dict[str, Any]:
    resources = {key: value for key, value in written.items() if value not in (None, "", {}, [])}
    if isinstance(resources.get("docker_args"), list):
        resources["docker_args_list"] = resources.pop("docker_args")
    return resources


def _distribution(written: Mapping[str, Any]) -> dict[str, Any]:
    if not written.get("type"):
        return {}
    rest = {key: value for key, value in written.items() if key != "type" and value is not None}
    kind = str(written["type"])
    return {"distribution_type": job_resources.DISTRIBUTIONS.get(kind.lower(), kind), **rest}


def _limits(written: Mapping[str, Any]) -> dict[str, Any]:
    timeout = written.get("timeout")
    if not timeout:
        return {}
    is_text = is_binding(timeout) or not str(timeout).replace(".", "", 1).isdigit()
    shown = str(timeout) if is_text else job_resources.duration(float(timeout))
    return {"job_limits_type": "Command", "timeout": shown}


def _queue(written: Mapping[str, Any]) -> dict[str, Any]:
    tier, priority = (str(written.get(key) or "").lower() for key in ("job_tier", "priority"))
    numbers = {name: number for number, name in PRIORITIES.items()}
    shown = {"job_tier": job_resources.TIERS.get(tier), "priority": numbers.get(priority)}
    return {key: value for key, value in shown.items() if value}


def _services(written: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _service(service or {}) for name, service in written.items()}


def _service(service: Mapping[str, Any]) -> dict[str, Any]:
    kind = _SERVICE_TYPES.get(snake(str(service.get("type") or "custom")), "Custom")
    rest = {
        "port": service.get("port"),
        "nodes": {"nodes_value_type": "All"} if service.get("nodes") == "all" else None,
        "properties": service.get("properties"),
    }
    return {"job_service_type": kind, **{key: value for key, value in rest.items() if value}}


def _settings(written: Mapping[str, Any], ids: Ids) -> dict[str, Any]:
    settings = {key: written[key] for key in SETTINGS if written.get(key) is not None}
    for key, type in (("default_compute", "computes"), ("default_datastore", "datastores")):
        if settings.get(key):
            settings[key] = ids.name(type, str(settings[key]))
    return settings
