"""What a web service's configuration says: AciWebservice's and AksWebservice's JSON.

Owns: `ServiceSettings`; what of a cloud is refused by name; changes by a JSON patch.
Leaves: model, code and environment to images.py; endpoints and deployments to documents.py.
Always: a setting is honoured, satisfied by what is there anyway, or refused by name before anything
is stored; the JSON that is kept is the client's own, so that a patch applies to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.azureml.common.calls import object_at
from torchyard.azureml.common.errors import NotServed
from torchyard.base import fields
from torchyard.base.errors import InvalidInput
from torchyard.base.fields import described

ACI, AKS = "ACI", "AKS"
IMAGE, NAME = "environmentImageRequest", "name"
_SERVER_TLS = "the router has the server's certificate: `yard-server --tls-cert --tls-key`"
_SINGLE = {
    "authEnabled",
    "aadAuthEnabled",
    "appInsightsEnabled",
    "computeName",
    "computeType",
    "dnsNameLabel",
    "location",
    "maxConcurrentRequestsPerContainer",
    "maxQueueWaitMs",
    "numReplicas",
    "scoringTimeoutMs",
    "storageInitEnabled",
}
_PARTS = {
    "autoScaler": (
        *("autoscaleEnabled", "minReplicas", "maxReplicas"),
        *("targetUtilization", "refreshPeriodInSeconds"),
    ),
    "containerResourceRequirements": ("cpu", "cpuLimit", "memoryInGB", "memoryInGBLimit", "gpu"),
    "dataCollection": ("storageEnabled", "eventHubEnabled"),
    "livenessProbeRequirements": (
        *("initialDelaySeconds", "periodSeconds", "timeoutSeconds"),
        *("successThreshold", "failureThreshold"),
    ),
}
_REFUSED = {
    "sslEnabled": ("a certificate of its own", _SERVER_TLS),
    "sslCertificate": ("a certificate of its own", _SERVER_TLS),
    "sslKey": ("a certificate of its own", _SERVER_TLS),
    "cname": ("a host name of its own", "leave `ssl_cname` out"),
    "encryptionProperties": ("a key of a key vault", "leave `cmk_vault_base_url` out"),
    "vnetConfiguration": ("a virtual network", "leave `vnet_name` and `subnet_name` out"),
    "namespace": ("a namespace of Kubernetes", "leave `namespace` out"),
    "imageId": ("an image", "deploy models with `Model.deploy` and an InferenceConfig"),
    "versions": ("AksEndpoint", "split traffic with `yard online-endpoint update --traffic`"),
}
_KEPT_APART = (NAME, IMAGE, "description", "kvTags", "properties", "keys", "overwrite", "tags")


@dataclass(frozen=True)
class AutoScaler:
    """`refresh_s` is in seconds, `utilization` in percent."""

    least: int = 1
    most: int = 10
    refresh_s: int = 1
    utilization: int = 70


@dataclass(frozen=True)
class ServiceSettings:
    """A configuration, read. None is what it leaves to the engine.

    `cpu` and `memory_gb` are shown as they were asked for, and limit nothing. `probe` has the
    liveness probe's numbers by the client's names. `notices` say what has no effect.
    """

    compute_type: str
    cluster: str = ""
    token_auth: bool = False
    cpu: float | None = None
    memory_gb: float | None = None
    gpus: int = 0
    replicas: int = 1
    scaler: AutoScaler | None = None
    timeout_ms: int | None = None
    concurrent: int | None = None
    queue_wait_ms: int | None = None
    probe: Mapping[str, int] | None = None
    collect: bool = False
    app_insights: bool = False
    notices: tuple[str, ...] = ()


def select_settings(body: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a client's JSON that says how a service runs, without what is empty.

    Raises:
        NotServed: a setting that only a cloud can honour.
        InvalidInput: a setting that a web service does not have.
    """
    settings: dict[str, Any] = {}
    for key, value in body.items():
        if key in _KEPT_APART or value is None or (value is False and key in _REFUSED):
            continue
        if key in _REFUSED:
            setting, hint = _REFUSED[key]
            raise NotServed(f"a web service with {setting} (`{key}`) is not served", hint, at=[key])
        if key in _PARTS:
            part = object_at(body, key)
            fields.refuse_unknown(part, _PARTS[key])
            settings[key] = {name: item for name, item in part.items() if item is not None}
        elif key in _SINGLE:
            settings[key] = value
        else:
            raise InvalidInput(f"`{key[:100]}` is not a setting of a web service", at=[key])
    return settings


def read(settings: Mapping[str, Any]) -> ServiceSettings:
    """
    Args:
        settings: as `select_settings` returns it.

    Raises:
        NotServed: a kind of service that only a cloud has.
        InvalidInput: a value of the wrong type.
    """
    kind = _text(settings, "computeType").upper()
    if kind not in (ACI, AKS):
        raise NotServed(
            f"a web service of type `{kind[:40]}` is not served",
            "deploy with `AciWebservice` or `AksWebservice`; an endpoint with several versions is "
            "`yard online-endpoint create`",
            at=["computeType"],
        )
    resources = object_at(settings, "containerResourceRequirements")
    collection = object_at(settings, "dataCollection")
    if _truth(collection, "eventHubEnabled", False):
        raise NotServed(
            "collected data does not go to an event hub", at=["dataCollection", "eventHubEnabled"]
        )
    probe = object_at(settings, "livenessProbeRequirements")
    return ServiceSettings(
        compute_type=kind,
        cluster=_text(settings, "computeName"),
        token_auth=_token_auth(settings, kind),
        cpu=_number(resources, "cpu"),
        memory_gb=_number(resources, "memoryInGB"),
        gpus=_integer(resources, "gpu") or 0,
        replicas=_integer(settings, "numReplicas") or 1,
        scaler=_scaler(settings),
        timeout_ms=_integer(settings, "scoringTimeoutMs"),
        concurrent=_integer(settings, "maxConcurrentRequestsPerContainer"),
        queue_wait_ms=_integer(settings, "maxQueueWaitMs"),
        probe={key: number for key in probe if (number := _integer(probe, key)) is not None},
        collect=_truth(collection, "storageEnabled", False),
        app_insights=_truth(settings, "appInsightsEnabled", False),
        notices=_notices(settings),
    )


def patched(settings: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The settings with one value replaced; `path` is a JSON pointer such as
    `/autoScaler/minReplicas`.

    Raises:
        NotServed: a setting that only a cloud can honour.
        InvalidInput: a service has no such setting.
    """
    keys = [key.replace("~1", "/").replace("~0", "~") for key in path.strip("/").split("/")]
    if len(keys) == 1 and keys[0] not in ("computeType", *_KEPT_APART):
        return {**settings, **select_settings({keys[0]: value})}
    if len(keys) == 2 and keys[0] in _PARTS and keys[1] in _PARTS[keys[0]]:
        part = {**object_at(settings, keys[0]), keys[1]: value}
        return {**settings, **select_settings({keys[0]: part})}
    raise InvalidInput(f"`{path[:100]}` of a web service can't be changed")


def _token_auth(settings: Mapping[str, Any], kind: str) -> bool:
    """Whether callers have tokens instead of keys.

    A configuration that says nothing gets keys, and its client sends them by itself: the opposite
    of Azure's container instances, see docs/decisions/0092-web-services-have-keys.md.
    """
    tokens = _truth(settings, "aadAuthEnabled", False)
    keys = _truth(settings, "authEnabled", not tokens)
    if keys and tokens:
        raise InvalidInput(
            "a web service has keys or tokens, not both",
            "set `auth_enabled=False` with `token_auth_enabled=True`",
            at=["aadAuthEnabled"],
        )
    if tokens and kind == ACI:
        raise InvalidInput("an AciWebservice has keys, not tokens", at=["aadAuthEnabled"])
    if not keys and not tokens:
        raise NotServed(
            "a web service that answers callers without a key is not served",
            "leave `auth_enabled` out: `service.run` sends the key by itself, others send "
            "`service.get_keys()[0]` as `Authorization: Bearer …`",
            at=["authEnabled"],
        )
    return tokens


def _scaler(settings: Mapping[str, Any]) -> AutoScaler | None:
    part = object_at(settings, "autoScaler")
    if not _truth(part, "autoscaleEnabled", False):
        return None
    least = _integer(part, "minReplicas") or 1
    return AutoScaler(
        least,
        _integer(part, "maxReplicas") or max(10, least),
        _integer(part, "refreshPeriodInSeconds") or 1,
        _integer(part, "targetUtilization") or 70,
    )


def _notices(settings: Mapping[str, Any]) -> tuple[str, ...]:
    notices = []
    if _text(settings, "dnsNameLabel"):
        notices.append("dns_name_label has no effect: scoring_uri is an address of the server")
    if _text(settings, "location"):
        notices.append("location has no effect: the service runs on the server's compute")
    if _truth(settings, "appInsightsEnabled", False):
        notices.append("enable_app_insights has no effect: get_logs() has the logs")
    return tuple(notices)


def _text(document: Mapping[str, Any], key: str) -> str:
    return fields.text(document, key)


def _truth(document: Mapping[str, Any], key: str, default: bool) -> bool:
    value = document.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(key, "true or false", value)
    return value


def _integer(document: Mapping[str, Any], key: str) -> int | None:
    number = _number(document, key)
    if number is not None and number != int(number):
        raise _wrong(key, "a whole number", number)
    return None if number is None else int(number)


def _number(document: Mapping[str, Any], key: str) -> float | None:
    value = document.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_sane(value):
        raise _wrong(key, "a number from 0 to 1e9", value)
    return value


def _is_sane(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= 1e9


def _wrong(key: str, expected: str, value: Any, at: Sequence[str] = ()) -> InvalidInput:
    return InvalidInput(f"`{key}` must be {expected}, not {described(value)}", at=[*at, key])
