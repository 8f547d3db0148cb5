"""The deployment's file: from a mapping to a `DeploymentSpec`.

Owns: `DeploymentSpec`; what stands at the top of a deployment's file; its model and its code.
Leaves: its parts to settings.py; whether model, code and environment exist to actions.
Always: a `DeploymentSpec` is whole and valid; every error says where by `at`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torchyard.base.documents import expressions, faults
from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, mapping, text, texts
from torchyard.endpoints.spec import (
    data_collection,
    endpoint_spec,
    inference_config,
    keys,
    settings,
)
from torchyard.endpoints.spec.data_collection import DataCollector
from torchyard.endpoints.spec.settings import (
    OwnSettings,
    Probe,
    RequestSettings,
    ScaleSettings,
)
from torchyard.shared.plurals import plural

_REQUESTS, _PROBE, _SCALE, _OWN = RequestSettings(), Probe(), ScaleSettings(), OwnSettings()
MLFLOW = "mlflow_model"
_TYPES = ("custom_model", MLFLOW, "triton_model")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}\Z", re.ASCII)
WORKERS = "WORKER_COUNT"
"""How many processes of an instance answer requests, each one at a time; 1 by default."""
_FOLDER = re.compile(r"[\w.-]{1,100}\Z", re.ASCII)


@dataclass(frozen=True)
class ModelReference:
    """`path` is `azureml:<name>:<version>`, `snapshot:<id>` or what a model's path may name.

    `folder` is the model's own folder below AZUREML_MODEL_DIR, empty where its files are directly
    in it. `is_file` says that it is one file.
    """

    path: str
    type: str = "custom_model"
    name: str = ""
    version: str = ""
    description: str = ""
    folder: str = ""
    is_file: bool = False


@dataclass(frozen=True)
class CodeConfiguration:
    """`code` is `snapshot:<id>`, `scoring_script` a path in it."""

    code: str
    scoring_script: str


@dataclass(frozen=True)
class DeploymentSpec:
    """`environment` is None where the model brings it. `notices` say what has no effect here."""

    name: str
    endpoint_name: str
    model: ModelReference | None = None
    code: CodeConfiguration | None = None
    environment: str | Mapping[str, Any] | None = None
    environment_variables: Mapping[str, str] = field(default_factory=dict)
    instance_type: str = ""
    instance_count: int = 1
    request_settings: RequestSettings = _REQUESTS
    liveness_probe: Probe = _PROBE
    readiness_probe: Probe = _PROBE
    scale_settings: ScaleSettings = _SCALE
    data_collector: DataCollector | None = None
    own_settings: OwnSettings = _OWN
    description: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


@faults.all_at_once
def read(document: Any) -> DeploymentSpec:
    """Check a deployment file's mapping and give every key its default.

    Raises:
        InvalidSpec: the first thing that is wrong, with its place.
    """
    body = mapping(document, "the deployment")
    # First, for these are why other keys are there: the type and an image's own server.
    if settings.word(body, "type", (), ("managed", "kubernetes"), "managed") == "kubernetes":
        raise InvalidSpec(
            "`type: kubernetes` is not served",
            "leave it out, and name a cluster by `torchyard: {cluster: …}`",
            code="not_served",
            at=("type",),
        )
    routes_notice = _routes_notice(body)
    body = keys.check(body, keys.DEPLOYMENT, (), "the deployment")
    expressions.refuse(body)
    _egress(body)
    return DeploymentSpec(
        name=endpoint_spec.name(body, "name", "the deployment"),
        endpoint_name=endpoint_spec.name(body, "endpoint_name", "the deployment"),
        model=_model(body.get("model")),
        code=_code(body.get("code_configuration")),
        environment=_environment(body),
        environment_variables=_variables(body),
        instance_type=text(body, "instance_type"),
        instance_count=settings.bounded_integer(body, "instance_count", (), 1, 1, 1000),
        request_settings=settings.request_settings(body),
        liveness_probe=settings.probe(body, "liveness_probe"),
        readiness_probe=settings.probe(body, "readiness_probe"),
        scale_settings=settings.scale_settings(body),
        data_collector=data_collection.data_collector(body),
        own_settings=settings.own_settings(body),
        description=text(body, "description"),
        tags=texts(body, "tags"),
        properties=texts(body, "properties"),
        notices=(*routes_notice, *_notices(body)),
    )


def _model(value: Any) -> ModelReference | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return ModelReference(value)
    at = ("model",)
    body = keys.check(value, keys.MODEL, at, "`model`")
    kind = settings.word(body, "type", at, _TYPES, "custom_model")
    if kind == "triton_model":
        raise InvalidSpec(
            "`type: triton_model` is not served: no Triton server runs here",
            "deploy the ONNX file or the TorchScript program itself, as `custom_model`",
            code="not_served",
            at=(*at, "type"),
        )
    path = text(body, "path", at)
    if not path:
        raise InvalidSpec("`model` has no `path`", "for example `path: ./model`", at=at)
    folder = text(body, "folder", at)
    if folder and (not _FOLDER.match(folder) or folder in (".", "..")):
        raise InvalidSpec(f"`{folder[:50]}` is not a folder's name", at=(*at, "folder"))
    version = body.get("version")
    return ModelReference(
        path,
        kind,
        text(body, "name", at),
        "" if version is None else str(version),
        text(body, "description", at),
        folder,
        settings.yes_or_no(body, "is_file", at, False),
    )


def _code(value: Any) -> CodeConfiguration | None:
    if value is None:
        return None
    at = ("code_configuration",)
    body = keys.check(value, keys.CODE, at, "`code_configuration`")
    code, script = text(body, "code", at), text(body, "scoring_script", at)
    for key, written in (("code", code), ("scoring_script", script)):
        if not written:
            raise InvalidSpec(
                f"`code_configuration` has no `{key}`",
                "for example `{code: ./src, scoring_script: score.py}`",
                at=at,
            )
    parts = script.split("/")
    if not script.endswith(".py") or script.startswith("/") or ".." in parts or "\0" in script:
        raise InvalidSpec(
            f"`{script[:80]}` is not a Python file in the code's folder",
            "for example `scoring_script: score.py`",
            at=(*at, "scoring_script"),
        )
    return CodeConfiguration(code, script.removeprefix("./"))


def _environment(body: Mapping[str, Any]) -> str | Mapping[str, Any] | None:
    value = body.get("environment")
    if value is None or value == "":
        return None
    if not isinstance(value, str | Mapping):
        raise InvalidSpec(
            f"`environment` must be a name or a mapping, not {described(value)}",
            "for example `environment: {conda_file: conda.yml}`",
            at=("environment",),
        )
    return value


def _routes_notice(body: Mapping[str, Any]) -> tuple[str, ...]:
    environment = body.get("environment")
    if not isinstance(environment, Mapping):
        return ()
    notice = inference_config.check(environment, body.get("code_configuration") is not None)
    return (notice,) if notice else ()


def _variables(body: Mapping[str, Any]) -> dict[str, str]:
    values = texts(body, "environment_variables")
    for variable, value in values.items():
        if not _VARIABLE.match(variable) or "\0" in value:
            raise InvalidSpec(
                f"`{variable[:80]}` is not a valid name for an environment variable",
                "use letters, digits and `_`, beginning with a letter",
                at=("environment_variables", variable),
            )
    return values


def _egress(body: Mapping[str, Any]) -> None:
    key = "egress_public_network_access"
    if settings.word(body, key, (), ("enabled", "disabled"), "enabled") == "disabled":
        raise InvalidSpec(
            f"`{key}: disabled` is not served",
            "an owner of the workspace limits the network of its jobs",
            code="not_served",
            at=(key,),
        )


def _notices(body: Mapping[str, Any]) -> tuple[str, ...]:
    notices = []
    if settings.yes_or_no(body, "app_insights_enabled", (), False):
        notices.append(
            "`app_insights_enabled` has no effect: logs are in `yard online-deployment get-logs`"
        )
    requests = settings.request_settings(body).max_concurrent_requests_per_instance
    processes = _variables(body).get(WORKERS) or "1"
    if processes.isdecimal() and requests > int(processes):
        notices.append(
            f"an instance gets {requests} requests at once and has "
            f"{processes} {plural('process', int(processes))} to serve them: the others wait "
            f"in it. Write `environment_variables: {{{WORKERS}: {requests}}}`, or lower "
            "`max_concurrent_requests_per_instance`"
        )
    return tuple(notices)
