"""The parts of a deployment in Azure's JSON and in our file: requests, probes, scale, collection.

Owns: the name and the form of every key in them, both ways.
Leaves: their defaults and bounds to endpoints/spec/settings.py.
Always: a key that Azure has and torchyard does not is refused by name; durations are ISO 8601 in
Azure's JSON and numbers in our file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torchyard.azureml.arm import assets
from torchyard.azureml.arm.job_documents import Reader, duration_ms
from torchyard.azureml.arm.job_resources import duration
from torchyard.azureml.common.calls import Call, object_at, refuse_others
from torchyard.base import fields
from torchyard.base.errors import InvalidInput
from torchyard.base.fields import described
from torchyard.endpoints.spec.settings import Probe, RequestSettings, ScaleSettings

Read = Callable[[Any, tuple[str, ...]], Any]


def _same(value: Any, at: tuple[str, ...]) -> Any:
    return value


def _ms(value: Any, at: tuple[str, ...]) -> int:
    if not isinstance(value, str):
        raise InvalidInput(f"`{at[-1]}` must be a duration, not {described(value)}", at=at)
    return duration_ms(value, at)


def _seconds(value: Any, at: tuple[str, ...]) -> int:
    return round(_ms(value, at) / 1000)


_PROBE: Mapping[str, tuple[str, Read]] = {
    "failureThreshold": ("failure_threshold", _same),
    "initialDelay": ("initial_delay", _seconds),
    "period": ("period", _seconds),
    "successThreshold": ("success_threshold", _same),
    "timeout": ("timeout", _seconds),
}
_TABLES: Mapping[str, tuple[str, Mapping[str, tuple[str, Read]]]] = {
    "requestSettings": (
        "request_settings",
        {
            "maxConcurrentRequestsPerInstance": ("max_concurrent_requests_per_instance", _same),
            "maxQueueWait": ("max_queue_wait_ms", _ms),
            "requestTimeout": ("request_timeout_ms", _ms),
        },
    ),
    "livenessProbe": ("liveness_probe", _PROBE),
    "readinessProbe": ("readiness_probe", _PROBE),
    "scaleSettings": (
        "scale_settings",
        {
            "scaleType": ("type", _same),
            "minInstances": ("min_instances", _same),
            "maxInstances": ("max_instances", _same),
            "pollingInterval": ("polling_interval", _seconds),
            "targetUtilizationPercentage": ("target_utilization_percentage", _same),
        },
    ),
}
KEYS = (*_TABLES, "dataCollector")
"""Azure's names of the parts."""


def read(call: Call, key: str, properties: Mapping[str, Any], asset: str) -> dict[str, Any]:
    """A part as a key of our file; nothing where it is absent.

    Args:
        key: one of `KEYS`.
        asset: the start of the names that collected data has, `<endpoint>-<deployment>`.

    Raises:
        InvalidInput: a value of the wrong form.
        InvalidSpec: a key that torchyard does not have.
    """
    part = object_at(properties, key)
    if not part:
        return {}
    if key == "dataCollector":
        return {"data_collector": _collector(call, part, asset)}
    name, table = _TABLES[key]
    at = ("properties", key)
    refuse_others(part, table, at)
    body = {}
    for azure_key, (our_key, form) in table.items():
        if part.get(azure_key) is not None:
            body[our_key] = form(part[azure_key], (*at, azure_key))
    return {name: body}


def request_settings(settings: RequestSettings) -> dict[str, Any]:
    return {
        "maxConcurrentRequestsPerInstance": settings.max_concurrent_requests_per_instance,
        "maxQueueWait": _duration(settings.max_queue_wait_ms),
        "requestTimeout": _duration(settings.request_timeout_ms),
    }


def probe(settings: Probe) -> dict[str, Any]:
    return {
        "failureThreshold": settings.failure_threshold,
        "initialDelay": duration(settings.initial_delay),
        "period": duration(settings.period),
        "successThreshold": settings.success_threshold,
        "timeout": duration(settings.timeout),
    }


def scale_settings(settings: ScaleSettings) -> dict[str, Any]:
    if not settings.is_automatic:
        return {"scaleType": "Default"}
    return {
        "scaleType": "TargetUtilization",
        "minInstances": settings.min_instances,
        "maxInstances": settings.max_instances,
        "pollingInterval": duration(settings.polling_interval),
        "targetUtilizationPercentage": settings.target_utilization_percentage,
    }


def data_collector(call: Call, document: Mapping[str, Any]) -> dict[str, Any] | None:
    """
    Args:
        document: the deployment's file, as it was accepted.
    """
    body = object_at(document, "data_collector")
    if not body:
        return None
    collections = {}
    for name in object_at(body, "collections"):
        value = object_at(object_at(body, "collections"), name)
        rate = value.get("sampling_rate", body.get("sampling_rate"))
        data = value.get("data")
        collections[name] = {
            "dataCollectionMode": "Disabled" if value.get("enabled") is False else "Enabled",
            "dataId": assets.version_id(call, "data", data) if isinstance(data, str) else None,
            "samplingRate": 1.0 if rate is None else rate,
        }
    rolling = str(body.get("rolling_rate") or "hour")
    return {"collections": collections, "rollingRate": rolling.capitalize()}


def _collector(call: Call, part: Mapping[str, Any], asset: str) -> dict[str, Any]:
    at = ("properties", "dataCollector")
    refuse_others(part, ("collections", "rollingRate", "requestLogging"), at)
    body: dict[str, Any] = {"collections": {}}
    for name, value in object_at(part, "collections").items():
        body["collections"][name] = _collection(call, name, value, asset)
    if part.get("rollingRate") is not None:
        body["rolling_rate"] = part["rollingRate"]
    headers = object_at(part, "requestLogging").get("captureHeaders")
    if headers:
        body["request_logging"] = {"capture_headers": headers}
    return body


def _collection(call: Call, name: str, value: Any, asset: str) -> dict[str, Any]:
    at = ("properties", "dataCollector", "collections", name)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"collection `{name[:80]}` is not a JSON object", at=at)
    refuse_others(value, ("dataCollectionMode", "samplingRate", "dataId", "clientId"), at)
    mode = fields.text(value, "dataCollectionMode", at).lower()
    if mode not in ("enabled", "disabled", ""):
        raise InvalidInput(
            f"`dataCollectionMode` is {described(mode)}", "write `Enabled` or `Disabled`", at=at
        )
    body: dict[str, Any] = {"enabled": mode != "disabled"}
    if value.get("samplingRate") is not None:
        body["sampling_rate"] = value["samplingRate"]
    # The client names an asset in any case; torchyard's has the same name.
    data = fields.text(value, "dataId", at)
    if data and f"/data/{asset}-{name}/".lower() not in data.lower():
        reader = Reader(call.workspace.name, lambda code: code)
        body["data"] = reader.reference(data, "data")
    if value.get("clientId"):
        body["client_id"] = value["clientId"]
    return body


def _duration(milliseconds: int) -> str:
    """`PT5S`, `PT0.5S`."""
    seconds, rest = divmod(milliseconds, 1000)
    return duration(seconds) if not rest else f"PT{milliseconds / 1000}S"
