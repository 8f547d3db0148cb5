"""Azure's command job as our document.

Owns: the translation from Azure's JSON to a job file's mapping, key by key.
Leaves: validating the document to jobs/spec/job_spec.py and its table of keys; the opposite
direction to job_resources.py.
Always: a key is translated, or refused by its name; only keys that the server writes, and values
with which a client means nothing, are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.azureml.common.calls import refuse_others
from torchyard.azureml.common.errors import NotServed
from torchyard.base.errors import InvalidInput, InvalidSpec, NotFound

NOT_SERVED = {
    "automl": "automated machine learning",
    "spark": "Spark jobs",
    "labeling": "labeling jobs",
    "finetuning": "fine-tuning jobs",
}
INPUT_MODES = {
    "readonlymount": "ro_mount",
    "readwritemount": "rw_mount",
    "download": "download",
    "direct": "direct",
    "evalmount": "eval_mount",
    "evaldownload": "eval_download",
    "upload": "upload",
}
OUTPUT_MODES = {"readwritemount": "rw_mount", "upload": "upload", "direct": "direct"}
PRIORITIES = {1: "low", 2: "medium", 3: "high"}
_IDENTITIES = {"amltoken": "aml_token", "useridentity": "user_identity", "managed": "managed"}
# Resource paths: what may follow `workspaces/<name>/`, by ARM's type.
_ID = re.compile(
    r"(?:azureml:)?/*subscriptions/[^/]+/resourceGroups/[^/]+/providers/"
    r"Microsoft\.MachineLearningServices/workspaces/(?P<workspace>[^/]+)"
    r"/(?P<type>[A-Za-z]+)/(?P<name>[^/]+)(?:/(?P<kind>versions|labels)/(?P<version>[^/]+))?",
    re.IGNORECASE,
)
_DURATION = re.compile(
    r"P(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?\Z",
    re.IGNORECASE,
)
_UNIT_S = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
_LONGEST_S = 1000 * 366 * 86_400
_SNAPSHOT = re.compile(r"^azureml:(snapshot:[0-9a-f]{64})\Z")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_IMPORTED = "azureml.materializationAssetName"
_COMMON_RUNTIME = "AZUREML_COMPUTE_USE_COMMON_RUNTIME"
_LOCAL = "local"
_LOCAL_SIGNS = ("IsLocal", "isLocal", "local")
# The server writes these, and clients that change a job they have read send them back.
_READ_ONLY = ("status", "parameters", "isArchived", "jobType", "provisioningState")
_SERVER_SERVICES = ("tracking", "studio")
_SERVICE_TYPES = {
    "jupyterlab": "jupyter_lab",
    "tensorboard": "tensor_board",
    "vscode": "vs_code",
    "ssh": "ssh",
    "custom": "custom",
}
SAME_KEYS = {
    "displayName": "display_name",
    "description": "description",
    "experimentName": "experiment_name",
    "tags": "tags",
    "properties": "properties",
    "parentJobName": "parent_job_name",
}
COMPONENT_KEY = "componentId"

KeyReader = Callable[["Reader", Any], dict[str, Any]]
"""What one key of Azure's means in our document."""


@dataclass(frozen=True)
class Reader:
    """`snapshot_of` is the snapshot that a `codeId` stands for."""

    workspace: str
    snapshot_of: Callable[[str], str]

    def read(self, name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The document of the job that a client sends.

        Raises:
            NotServed: a kind of job that torchyard does not have.
            InvalidSpec: a value of the wrong form, or an unknown key.
            NotFound: it names something in another workspace.
        """
        kind = str(properties.get("jobType") or "")
        if kind.lower() != "command":
            refuse_imports(properties)
            raise _not_served(NOT_SERVED.get(kind.lower(), f"jobs of type `{kind[:40]}`"))
        same = {"command": "command", **SAME_KEYS}
        return self.read_keys({"name": name}, properties, same, JOB_READERS)

    def read_keys(
        self,
        document: dict[str, Any],
        properties: Mapping[str, Any],
        same: Mapping[str, str],
        readers: Mapping[str, KeyReader],
    ) -> dict[str, Any]:
        """`document` with what the keys of a kind of job mean.

        Args:
            same: our name of each key whose value means the same.

        Raises:
            InvalidSpec: a value of the wrong form, or an unknown key.
        """
        refuse_others(properties, (*same, *readers, *_READ_ONLY), ("properties",), " of a job")
        for key, value in properties.items():
            if key in _READ_ONLY or value is None:
                continue
            if key in same:
                if value not in ("", {}):
                    document[same[key]] = value
            elif key in readers:
                document.update(readers[key](self, value))
        return document

    def code(self, value: Any) -> dict[str, Any]:
        return {"code": f"snapshot:{self.snapshot_of(text_at(value, 'codeId'))}"} if value else {}

    def variables(self, value: Any) -> dict[str, Any]:
        """Without the variable that the SDK adds to every job of `compute: local`."""
        variables = dict(mapping_at(value, "environmentVariables"))
        if variables.get(_COMMON_RUNTIME) == "true":
            del variables[_COMMON_RUNTIME]
        return {"environment_variables": variables} if variables else {}

    def compute(self, value: Any) -> dict[str, Any]:
        name = self.name_of(text_at(value, "computeId"), "computes")
        return {"compute": f"azureml:{name}"} if name else {}

    def environment(self, value: Any) -> dict[str, Any]:
        return {"environment": self.reference(text_at(value, "environmentId"), "environments")}

    def inputs(self, value: Any) -> dict[str, Any]:
        inputs = mapping_at(value, "inputs")
        return {"inputs": {name: self._input(name, document) for name, document in inputs.items()}}

    def outputs(self, value: Any) -> dict[str, Any]:
        documents = mapping_at(value, "outputs")
        outputs = {name: _output(name, document) for name, document in documents.items()}
        return {"outputs": outputs} if outputs else {}

    def reference(self, written: str, type: str) -> str:
        """`azureml:name:version` of a resource path; any other text unchanged."""
        match = _ID.fullmatch(written.strip())
        if match is None or match["type"].lower() != type:
            return written.strip()
        self._same_workspace(written, match["workspace"])
        # In Python, users may write this prefix, and the SDK copies it into the path.
        name = match["name"].removeprefix("azureml:")
        if not match["version"]:
            return f"azureml:{name}"
        between = "@" if match["kind"].lower() == "labels" else ":"
        return f"azureml:{name}{between}{match['version']}"

    def name_of(self, written: str, type: str) -> str:
        """The name in a resource path; any other text without `azureml:`."""
        match = _ID.fullmatch(written.strip())
        if match is None or match["type"].lower() != type:
            return written.strip().removeprefix("azureml:")
        self._same_workspace(written, match["workspace"])
        return match["name"]

    def _same_workspace(self, written: str, workspace: str) -> None:
        if workspace.lower() != self.workspace.lower():
            raise NotFound(
                f"`{written}` is in workspace `{workspace}`, and this is workspace "
                f"`{self.workspace}`",
                "name something in this workspace",
            )

    def _input(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        at = ("properties", "inputs", name)
        document = mapping_at(value, *at[1:])
        kind = str(document.get("jobInputType") or "").lower()
        if kind == "literal":
            return document.get("value")
        keys = ("jobInputType", "uri", "mode", "description", "pathOnCompute")
        refuse_others(document, keys, at)
        path = text_at(document.get("uri") or "", "uri", at)
        for type in ("data", "models"):
            path = self.reference(path, type)
        # Clients treat a text that is not a URL as a name with a version, and write it so.
        path = _SNAPSHOT.sub(r"\1", path)
        input = {"type": snake(str(document.get("jobInputType") or "")), "path": path}
        if document.get("mode"):
            input["mode"] = choice_of(str(document["mode"]), INPUT_MODES, (*at, "mode"))
        if document.get("pathOnCompute"):
            input["path_on_compute"] = document["pathOnCompute"]
        return input


def refuse_imports(properties: Mapping[str, Any]) -> None:
    """
    Raises:
        NotServed: it is what `data.import_data` sends, a pipeline of one step.
    """
    written = properties.get("properties")
    if isinstance(written, Mapping) and _IMPORTED in written:
        raise _not_served("imports of data by a connection")


def _not_served(subject: str) -> NotServed:
    return NotServed(
        f"torchyard does not serve {subject} yet",
        "submit its parts as command jobs; see docs/reference/azure-ml.md",
        at=["properties", "jobType"],
    )


def duration_ms(text: str, at: tuple[str, ...] = ()) -> int:
    """The milliseconds of an ISO 8601 duration without years and months.

    Raises:
        InvalidSpec: it is not one.
    """
    match = _DURATION.match(text.strip())
    if match is None or not any(match.groupdict().values()):
        raise InvalidSpec(f"`{text[:40]}` is not a duration", "write it like `PT1H30M`", at=at)
    total_s = sum(float(match[unit] or 0) * each_s for unit, each_s in _UNIT_S.items())
    if total_s > _LONGEST_S:
        raise InvalidSpec(f"`{text[:40]}` is longer than a thousand years", "shorten it", at=at)
    return round(total_s * 1000)


def duration_s(text: str, at: tuple[str, ...] = ()) -> int:
    """The seconds of an ISO 8601 duration without years and months.

    Raises:
        InvalidSpec: it is not one.
    """
    return round(duration_ms(text, at) / 1000)


def _distribution(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "distribution")
    at = ("properties", "distribution")
    kind = text_at(document.get("distributionType") or "", "distributionType", at)
    settings = {
        snake(key): setting
        for key, setting in document.items()
        if key != "distributionType" and setting is not None
    }
    return {"distribution": {"type": kind.lower(), **settings}}


def _resources(reader: Reader, value: Any) -> dict[str, Any]:
    """`IsLocal` among the properties is how the SDK writes `compute: local`."""
    document = {
        key: setting
        for key, setting in mapping_at(value, "resources").items()
        if setting is not None
    }
    compute: dict[str, Any] = {}
    all_properties = document.pop("properties", None) or {}
    properties = {
        key: setting
        for key, setting in mapping_at(all_properties, "resources", "properties").items()
        if setting
    }
    for sign in _LOCAL_SIGNS:
        if properties.pop(sign, None):
            compute["compute"] = f"azureml:{_LOCAL}"
    arguments = document.pop("dockerArgsList", None) or document.pop("dockerArgs", None)
    document.pop("dockerArgs", None)
    resources = {
        snake(key): setting for key, setting in document.items() if setting not in ("", [], {})
    }
    if arguments:
        resources["docker_args"] = arguments
    if properties:
        resources["properties"] = properties
    return {**compute, "resources": resources} if resources else compute


def _limits(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "limits")
    at = ("properties", "limits")
    refuse_others(document, ("jobLimitsType", "timeout"), at)
    if not document.get("timeout"):
        return {}
    timeout = text_at(document["timeout"], "timeout", at)
    return {"limits": {"timeout": duration_s(timeout, (*at, "timeout"))}}


def _identity(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "identity")
    at = ("properties", "identity", "identityType")
    kind = choice_of(str(document.get("identityType") or ""), _IDENTITIES, at)
    ids = {
        id_key: document[key]
        for key, id_key in (
            ("clientId", "client_id"),
            ("objectId", "object_id"),
            ("resourceId", "msi_resource_id"),
        )
        if document.get(key)
    }
    return {"identity": {"type": kind, **ids}}


def _services(reader: Reader, value: Any) -> dict[str, Any]:
    """The services that the user requests, without the links that the server adds to every job."""
    services: dict[str, Any] = {}
    for name, service in mapping_at(value, "services").items():
        document = mapping_at(service or {}, "services", name)
        kind = str(document.get("jobServiceType") or "")
        if kind.lower() not in _SERVER_SERVICES:
            extra = document.get("properties") or {}
            rest = {
                "port": document.get("port"),
                "nodes": _nodes(document.get("nodes")),
                "properties": extra,
            }
            services[name] = {
                "type": _SERVICE_TYPES.get(kind.lower(), snake(kind)),
                **{key: content for key, content in rest.items() if content},
            }
    return {"services": services} if services else {}


def _nodes(value: Any) -> Any:
    """`all`, or what it is instead; nothing for the first node."""
    kind = value.get("nodesValueType") if isinstance(value, Mapping) else value
    return str(kind).lower() if kind else None


def _queue_settings(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "queueSettings")
    at = ("properties", "queueSettings")
    refuse_others(document, ("jobTier", "priority"), at)
    settings: dict[str, Any] = {}
    tier = str(document.get("jobTier") or "").lower()
    if tier and tier != "null":
        settings["job_tier"] = tier
    priority = document.get("priority")
    if priority is not None:
        if type(priority) is not int or priority not in PRIORITIES:
            raise InvalidSpec(
                f"`priority` is `{str(priority)[:40]}`",
                "use 1 (low), 2 (medium) or 3 (high)",
                at=(*at, "priority"),
            )
        settings["priority"] = PRIORITIES[priority]
    return {"queue_settings": settings} if settings else {}


def _autologger(reader: Reader, value: Any) -> dict[str, Any]:
    document = mapping_at(value, "autologgerSettings")
    if str(document.get("mlflowAutologger") or "").lower() == "enabled":
        raise InvalidSpec(
            "`autologgerSettings` of a job is not served",
            "call `mlflow.autolog()` in the script",
            at=["properties", "autologgerSettings"],
        )
    return {}


def _notification(reader: Reader, value: Any) -> dict[str, Any]:
    """A webhook of Azure is Azure DevOps, which the job file refuses by its name, too."""
    document = mapping_at(value, "notificationSetting")
    keys = ("emailOn", "emails", "webhooks")
    refuse_others(document, keys, ("properties", "notificationSetting"))
    settings = {snake(key): document[key] for key in keys if document.get(key)}
    return {"notification_settings": settings} if settings else {}


# What of a job a sweep has once for each trial, and what it has once for all of them.
TRIAL_READERS: Mapping[str, KeyReader] = {
    "codeId": Reader.code,
    "environmentId": Reader.environment,
    "environmentVariables": Reader.variables,
    "distribution": _distribution,
    "resources": _resources,
}
COMMON_READERS: Mapping[str, KeyReader] = {
    "computeId": Reader.compute,
    "inputs": Reader.inputs,
    "outputs": Reader.outputs,
    "identity": _identity,
    "services": _services,
    "queueSettings": _queue_settings,
    "notificationSetting": _notification,
}
JOB_READERS: Mapping[str, KeyReader] = {
    **TRIAL_READERS,
    **COMMON_READERS,
    "limits": _limits,
    "autologgerSettings": _autologger,
}


def _output(name: str, value: Any) -> dict[str, Any]:
    at = ("properties", "outputs", name)
    document = mapping_at(value or {}, *at[1:])
    keys = ("jobOutputType", "uri", "mode", "assetName", "assetVersion", "description")
    refuse_others(document, keys, at)
    output: dict[str, Any] = {"type": snake(str(document.get("jobOutputType") or "uri_folder"))}
    if document.get("uri"):
        output["path"] = document["uri"]
    if document.get("mode"):
        output["mode"] = choice_of(str(document["mode"]), OUTPUT_MODES, (*at, "mode"))
    for key, output_key in (("assetName", "name"), ("assetVersion", "version")):
        if document.get(key):
            output[output_key] = document[key]
    return output


def snake(name: str) -> str:
    """`processCountPerInstance` as `process_count_per_instance`."""
    return _HUMP.sub("_", name).lower()


def choice_of(written: str, choices: Mapping[str, str], at: tuple[str, ...]) -> str:
    """Our value for Azure's, in any case and with or without `_`."""
    plain = written.replace("_", "").lower()
    if plain not in choices and plain not in {
        choice.replace("_", "") for choice in choices.values()
    }:
        raise InvalidSpec(
            f"`{written[:40]}` is not a value of `{at[-1]}`",
            f"use one of: {', '.join(sorted(choices.values()))}",
            at=at,
        )
    return choices.get(plain, written.lower())


def mapping_at(value: Any, *at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        key = ".".join(at)
        raise InvalidInput(f"`{key}` of the job is not a JSON object", at=["properties", *at])
    return value


def text_at(value: Any, key: str, at: tuple[str, ...] = ("properties",)) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"`{key}` of the job is not a string", at=[*at, key])
    return value
