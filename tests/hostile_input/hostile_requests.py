"""Requests with one hostile text each: every parameter and every text field of the interfaces.

The native interface's routes and parameters are those of its OpenAPI document. Bodies that it
does not describe, MLflow's and Azure's are listed here, with the fields that their routes read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

LONGEST_IN_PATH = 6_000
# What a field holds where its hostile text comes in.
_HERE = object()

TEXTS: Mapping[str, str] = {
    "spaces": " ",
    "lines": "\n",
    "expressions": "${{",
    "spaced expressions": "${{ inputs.a",
    "optional parts": "$[[",
    "single quotes": "'",
    "double quotes": '"',
    "backslashes": "\\",
    "parentheses": "(",
    "brackets": "[",
    "braces": "{",
    "small letters": "a",
    "capitals": "A",
    "digits": "1",
    "dots": "a.",
    "slashes": "a/",
    "dashes": "-",
    "commas": "a,",
    "equals": "a=",
    "colons": "a:",
    "stars": "**/",
    "percents": "%",
    "dollars": "${a:-",
    "conditions": "a=1 AND ",
    "words": "RunId eq a or ",
    "lists": "- ",
    "aliases": "&a [*a, ",
    "hashes": " --hash=",
    "emoji": "\U0001f600",
}
# What a parser reads first, so that it comes to the part that is slow.
STARTS = ("", "name IN ('a'", "RunId eq a", "${{", "/", "azureml:", "https://a/", "log /", "a\n")

JOB = {
    "name": "_", "command": "true", "environment": "python", "display_name": "_",
    "experiment_name": "_", "description": "_", "compute": "_", "code": "_", "type": "_",
    "environment_variables": {"A": "_"}, "tags": {"a": "_"}, "parent_job_name": "_",
    "inputs": {"a": {"type": "_", "path": "_", "mode": "_"}, "b": "_"},
    "outputs": {"a": {"type": "_", "path": "_", "mode": "_"}},
    "distribution": {"type": "_"}, "resources": {"instance_type": "_", "shm_size": "_"},
    "limits": {"timeout": "_"}, "job_tier": "_", "priority": "_",
    "properties": {
        "torchyard.retry.on": "_", "torchyard.retry.max_attempts": "3",
        "torchyard.log_quota_mb": "_", "torchyard.preflight": "_", "torchyard.hang_after_s": "_",
    },
    "identity": {"type": "_"}, "services": {"a": {"type": "_"}},
}  # fmt: skip
ENVIRONMENT = {
    "name": "_", "version": "_", "image": "_", "description": "_", "tags": {"a": "_"},
    "conda_file": {"name": "_", "channels": ["_"], "dependencies": ["_", {"pip": ["_"]}]},
    "pip_requirements": "_", "build": {"path": "_", "dockerfile_path": "_"}, "os_type": "_",
}  # fmt: skip
ASSET = {
    "name": "_", "version": "_", "path": "_", "type": "_", "description": "_", "tags": {"a": "_"},
}  # fmt: skip
# Bodies that the document does not describe, by the end of the path.
BODIES: Mapping[str, Any] = {
    "/jobs": JOB,
    "/jobs/validate": JOB,
    "/jobs/{name}": {"display_name": "_", "description": "_", "tags": {"a": "_"}},
    "/jobs/delete": {"names": ["_"], "status": "_", "older_than": "_", "experiment_name": "_"},
    "/snapshots": {"files": [{"path": "_", "sha256": "_", "size": 1}]},
    "/environments": ENVIRONMENT,
    "/environments/resolve": {"environment": ENVIRONMENT, "platform": "_"},
    "/environments/build": {"environment": ENVIRONMENT, "platform": "_"},
    "/environments/definition": {"environment": ENVIRONMENT},
    "/environments/export": {"environment": "_", "format": "_", "name": "_"},
    "/computes/{name}": {"type": "_", "size": "_", "location": "_", "tier": "_",
                         "max_instances": 1, "idle_time_before_scale_down": "_"},
    "/datastores/{name}": {"type": "_", "account_name": "_", "container_name": "_",
                           "path": "_", "endpoint": "_", "protocol": "_",
                           "credentials": {"account_key": "_", "sas_token": "_"}},
    "/data": ASSET,
    "/models": {**ASSET, "flavors": {"a": {"b": "_"}}, "properties": {"a": "_"}},
    "/models/{name}/versions/{version}": {"description": "_", "tags": {"a": "_"}},
    "/components": {**JOB, "version": "_", "inputs": {"a": {"type": "_", "default": "_"}}},
    "/quotas": {"user": "_", "gpus": "_"},
    "/quota-requests": {"reason": "_", "gpus": "_"},
    "/users": {"name": "_", "role": "_"},
    "/users/{name}/role": {"role": "_"},
    "/people/{name}": {"role": "_"},
    "/users/{name}/tokens": {"name": "_", "expires": "_"},
    "/workspaces": {"name": "_", "description": "_", "subscription_id": "_"},
    "/workspaces/{workspace}": {"description": "_", "display_name": "_"},
    "/gc": {"older_than": "_"},
    "/gc/settings": {"jobs": "_"},
}  # fmt: skip

_MLFLOW_SEARCH = {
    "experiment_ids": ["0"], "filter": "_", "order_by": ["_"], "page_token": "_",
    "view_type": "_", "run_view_type": "_",
}  # fmt: skip
_RECORD = {"key": "_", "value": "_"}
MLFLOW: Mapping[str, Any] = {
    "runs/search": _MLFLOW_SEARCH,
    "experiments/search": _MLFLOW_SEARCH,
    "logged-models/search": {**_MLFLOW_SEARCH, "order_by": [{"field_name": "_"}]},
    "registered-models/create": {"name": "_", "description": "_", "tags": [_RECORD]},
    "model-versions/create": {"name": "_", "source": "_", "run_id": "_", "description": "_"},
    "registered-models/alias": {"name": "_", "alias": "_", "version": "_"},
    "experiments/create": {"name": "_", "artifact_location": "_", "tags": [_RECORD]},
    "experiments/set-experiment-tag": {"experiment_id": "_", **_RECORD},
    "runs/create": {"experiment_id": "_", "user_id": "_", "run_name": "_", "tags": [_RECORD]},
    "runs/update": {"run_id": "_", "status": "_", "run_name": "_"},
    "runs/log-metric": {"run_id": "_", "timestamp": 1, **_RECORD},
    "runs/log-batch": {"run_id": "_", "params": [_RECORD], "tags": [_RECORD],
                       "metrics": [{**_RECORD, "timestamp": 1, "step": 0}]},
    "runs/log-inputs": {"run_id": "_", "datasets": [{"dataset": {
        "name": "_", "digest": "_", "source_type": "_", "source": "_", "schema": "_"}}]},
    "runs/log-model": {"run_id": "_", "model_json": "_"},
}  # fmt: skip
MLFLOW_QUERIES: Mapping[str, tuple[str, ...]] = {
    "experiments/get": ("experiment_id",),
    "experiments/get-by-name": ("experiment_name",),
    "runs/get": ("run_id",),
    "metrics/get-history": ("run_id", "metric_key", "page_token"),
    "artifacts/list": ("run_id", "path", "page_token"),
    "registered-models/get": ("name",),
    "registered-models/search": ("filter", "order_by", "page_token"),
    "model-versions/search": ("filter", "order_by", "page_token"),
    "model-versions/get": ("name", "version"),
}

_RESOURCE = {"description": "_", "tags": {"a": "_"}, "properties": {"a": "_"}}
# (service, method, path below the workspace, body)
AZURE: tuple[tuple[str, str, str, Any], ...] = (
    ("", "PUT", "jobs/a", {"properties": {
        **_RESOURCE, "jobType": "Command", "command": "_", "codeId": "_", "environmentId": "_",
        "computeId": "_", "experimentName": "_", "displayName": "_",
        "environmentVariables": {"A": "_"}, "limits": {"timeout": "_"},
        "inputs": {"a": {"jobInputType": "_", "uri": "_", "mode": "_"}},
        "outputs": {"a": {"jobOutputType": "_", "uri": "_"}},
        "resources": {"instanceType": "_", "shmSize": "_", "dockerArgs": "_"}}}),
    ("", "PUT", "environments/a/versions/1", {"properties": {
        **_RESOURCE, "image": "_", "condaFile": "_",
        "build": {"contextUri": "_", "dockerfilePath": "_"}}}),
    ("", "PUT", "data/a/versions/1", {"properties": {
        **_RESOURCE, "dataType": "_", "dataUri": "_"}}),
    ("", "PUT", "models/a/versions/1", {"properties": {
        **_RESOURCE, "modelUri": "_", "modelType": "_", "jobName": "_"}}),
    ("", "PUT", "codes/a/versions/1", {"properties": {**_RESOURCE, "codeUri": "_"}}),
    ("", "PUT", "components/a/versions/1", {"properties": {"componentSpec": {
        "name": "_", "version": "_", "command": "_", "environment": "_", "code": "_"}}}),
    ("", "PUT", "datastores/a", {"properties": {
        **_RESOURCE, "datastoreType": "_", "accountName": "_", "containerName": "_"}}),
    ("", "PUT", "computes/a", {"location": "_", "properties": {
        "computeType": "_", "properties": {"vmSize": "_", "vmPriority": "_", "scaleSettings": {
            "nodeIdleTimeBeforeScaleDown": "_"}}}}),
    ("history/v1.0", "POST", "experiments/a/runs:query",
     {"filter": "_", "orderby": "_", "continuationToken": "_"}),
    ("history/v1.0", "POST", "experiments:query", {"filter": "_", "viewType": "_"}),
    ("history/v1.0", "POST", "experiments/a/metrics:query",
     {"filter": "_", "continuationToken": "_"}),
    ("history/v1.0", "PATCH", "experiments/a/runs/b", {
        "runId": "b", "displayName": "_", "status": "_", "tags": {"a": "_"}, "startTimeUtc": "_"}),
    ("history/v1.0", "POST", "rundata", {"runId": "_"}),
    ("metric/v1.0", "POST", "runs/a/batch", {"values": [
        {"name": "_", "createdUtc": "_", "metricType": "_", "value": [{"data": {"a": "_"}}]}]}),
    ("environment/v1.0", "PUT", "environments/a", {
        "name": "_", "version": "_", "docker": {"baseImage": "_", "baseDockerfile": "_"},
        "python": {"condaDependencies": {"channels": ["_"], "dependencies": ["_"]}}}),
    ("execution/v1.0", "POST", "experiments/a/snapshotrun", {"Configuration": {
        "script": "_", "command": "_", "arguments": ["_"], "target": "a", "framework": "_",
        "environment": {"name": "_"}, "communicator": "_",
        "dataReferences": {"a": {"dataStoreName": "_", "pathOnDataStore": "_"}}}}),
    ("dataset/v1.0", "POST", "saveddatasets", {"dataflow": "_", "mltable": "_"}),
    ("modelmanagement/v1.0", "POST", "models", {"name": "_", "url": "_", "description": "_"}),
)  # fmt: skip


@dataclass(frozen=True)
class Request:
    """`field` says where the text goes; `path` has its query."""

    method: str
    path: str
    field: str
    body: bytes | None = None


@dataclass(frozen=True)
class _Form:
    """A request whose text is still to come, as a parameter or in the body."""

    method: str
    path: str
    field: str
    parameter: str = ""
    in_query: bool = False
    body: Any = None


def requests(
    openapi: Mapping[str, Any], azure_workspace: str, size: int, texts_a_field: int
) -> Iterator[Request]:
    """Each field with some of the texts, so that every text meets many fields.

    Args:
        azure_workspace: the path of a workspace as Azure writes it.
        size: of a text in a body, in characters; those in a path are shorter.
    """
    kinds = [(start, unit) for unit in TEXTS.values() for start in STARTS]
    # A number without a factor in common with the list's length, so that all get their turn.
    step, at = 23, 0
    for form in (*_native(openapi), *_mlflow(), *_azure(azure_workspace)):
        for _ in range(texts_a_field):
            start, unit = kinds[at * step % len(kinds)]
            at += 1
            yield _filled(
                form, (start + unit * size)[: LONGEST_IN_PATH if form.parameter else size]
            )


def raw_requests(azure_workspace: str) -> Iterator[Request]:
    """Whole bodies instead of texts in fields: deeply nested, long numbers, half JSON."""
    bodies = {
        "nested lists": b"[" * 100_000,
        "nested objects": b'{"a":' * 50_000,
        "closed lists": b"[" * 100_000 + b"]" * 100_000,
        "nested in a field": b'{"filter":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
        "a long number": b'{"max_results":' + b"1" * 100_000 + b"}",
        "a long fraction": b'{"max_results":0.' + b"1" * 100_000 + b"}",
        "a great exponent": b'{"max_results":1e' + b"9" * 1_000 + b"}",
        "half a character": b'{"name":"\\ud800"}',
        "no text": b"\xff" * 1_000,
        "many items": b'{"name":[' + b"[]," * 1_000_000 + b"1]}",
        "as many items as are read": b'{"name":[' + b"[]," * 120_000 + b"1]}",
        "many keys": b"{" + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}",
    }
    routes = [
        ("POST", "/v1/workspaces/default/jobs"),
        ("POST", "/v1/workspaces/default/jobs/validate"),
        ("PUT", "/v1/workspaces/default/snapshots"),
        ("POST", "/v1/workspaces/default/environments/resolve"),
        ("POST", "/v1/gc"),
        ("POST", "/api/2.0/mlflow/runs/search"),
        ("POST", "/api/2.0/mlflow/runs/log-batch"),
        ("PUT", f"{azure_workspace}/jobs/a?api-version=2024-04-01"),
        ("POST", f"/history/v1.0{azure_workspace}/experiments/a/runs:query"),
        ("POST", f"/metric/v1.0{azure_workspace}/runs/a/batch"),
    ]
    for name, body in bodies.items():
        for method, path in routes:
            yield Request(method, path, f"{method} {path}: {name}", body)


def _filled(form: _Form, text: str) -> Request:
    if form.parameter:
        text = text[: LONGEST_IN_PATH // 4] if not text.isascii() else text
        written = quote(text, safe="")
        if form.in_query:
            path = f"{form.path}{'&' if '?' in form.path else '?'}{form.parameter}={written}"
        else:
            path = form.path.replace(f"{{{form.parameter}}}", written)
        return Request(form.method, path, form.field)
    return Request(form.method, form.path, form.field, json.dumps(_with(form.body, text)).encode())


def _native(openapi: Mapping[str, Any]) -> Iterator[_Form]:
    schemas = openapi.get("components", {}).get("schemas", {})
    for path, methods in openapi["paths"].items():
        for method, operation in methods.items():
            verb = method.upper()
            parameters = operation.get("parameters", [])
            names = {item["name"] for item in parameters if item["in"] == "path"}
            plain = path.replace("{workspace}", "default")
            for name in names | ({"workspace"} if "{workspace}" in path else set()):
                others = {other: "a" for other in names - {name}}
                values = {**others, **({} if name == "workspace" else {"workspace": "default"})}
                yield _Form(verb, _fill_path(path, values), f"{verb} {path} {{{name}}}", name)
            plain = _fill_path(plain, dict.fromkeys(names, "a"))
            for item in parameters:
                if item["in"] == "query" and item["name"] != "wait_s":
                    field = f"{verb} {path} ?{item['name']}"
                    yield _Form(verb, plain, field, item["name"], in_query=True)
            if "requestBody" in operation:
                below = path.removeprefix("/v1").removeprefix("/workspaces/{workspace}") or path
                below = "/workspaces/{workspace}" if path.endswith("/{workspace}") else below
                body = BODIES.get(below) or _described(operation, schemas)
                yield from _fields(verb, plain, f"{verb} {path}", body)


def _fill_path(path: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def _described(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """A body with a text in each of its properties."""
    content = operation["requestBody"]["content"].get("application/json", {}).get("schema", {})
    schema = schemas.get(content.get("$ref", "").rpartition("/")[2], content)
    return dict.fromkeys(schema.get("properties", {"name": None}), "_")


def _mlflow() -> Iterator[_Form]:
    base = "/api/2.0/mlflow"
    for path, body in MLFLOW.items():
        yield from _fields("POST", f"{base}/{path}", f"POST {base}/{path}", body)
    for path, names in MLFLOW_QUERIES.items():
        for name in names:
            where = f"{base}/{path}"
            yield _Form("GET", where, f"GET {where} ?{name}", name, in_query=True)
    artifacts = "/api/2.0/mlflow-artifacts/artifacts/{path}"
    yield _Form("GET", artifacts, f"GET {artifacts}", "path")


def _azure(workspace: str) -> Iterator[_Form]:
    for service, method, below, body in AZURE:
        version = "" if service else "?api-version=2024-04-01"
        path = f"{'/' + service if service else ''}{workspace}/{below}{version}"
        yield from _fields(method, path, f"{method} {service}/…/{below}", body)
        for at, part in enumerate(below.split("/")[1:2], 1):
            template = "/".join("{part}" if address == at else each
                             for address, each in enumerate(below.split("/")))  # fmt: skip
            address = f"{'/' + service if service else ''}{workspace}/{template}{version}"
            yield _Form("GET", address, f"GET {service}/…/{template} ({part})", "part")
    for name in ("$filter", "$skip", "$top", "listViewType", "orderBy", "$continuationToken"):
        for below in ("jobs", "models", "data", "environments"):
            path = f"{workspace}/{below}?api-version=2024-04-01"
            yield _Form("GET", path, f"GET …/{below} ?{name}", name, in_query=True)


def _fields(method: str, path: str, name: str, body: Any) -> Iterator[_Form]:
    for position, hollow in _hollows(body, ""):
        yield _Form(method, path, f"{name} {position}", body=hollow)


def _hollows(value: Any, position: str) -> Iterator[tuple[str, Any]]:
    """The value with each of its texts, and each of its keys, left open in turn.

    The other texts that say nothing (`_`) are left out.
    """
    if isinstance(value, str):
        yield position, _HERE
    elif isinstance(value, Mapping):
        plain = {key: item for key, item in value.items() if not _says_nothing(item)}
        for key, item in value.items():
            for inner, hollow in _hollows(item, f"{position}.{key}"):
                yield inner, {**plain, key: hollow}
    elif isinstance(value, list):
        for item in value:
            for inner, hollow in _hollows(item, f"{position}[]"):
                yield inner, [hollow]


def _says_nothing(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_says_nothing(item) for item in value.values())
    if isinstance(value, list):
        return any(_says_nothing(item) for item in value)
    return bool(value == "_")


def _with(value: Any, text: str) -> Any:
    if value is _HERE:
        return text
    if isinstance(value, Mapping):
        return {key: _with(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [_with(item, text) for item in value]
    return value
