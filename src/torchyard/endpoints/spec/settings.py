"""The parts of a deployment's file: requests, probes, scaling, torchyard's own.

Owns: their types, defaults and bounds.
Leaves: the whole file to deployment_spec.py; which keys there are to keys.py; collected data to
data_collection.py.
Always: a value is whole and within its bounds; every error says where by `at`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torchyard.base.errors import InvalidSpec
from torchyard.base.fields import described, unknown_key
from torchyard.endpoints.spec import keys
from torchyard.jobs.spec.keys import Key

At = Sequence[str | int]

_DAY_S = 86_400
_MOST_INSTANCES = 1000
_PREFIX = "torchyard."


@dataclass(frozen=True)
class RequestSettings:
    request_timeout_ms: int = 5000
    max_concurrent_requests_per_instance: int = 1
    max_queue_wait_ms: int = 500


@dataclass(frozen=True)
class Probe:
    """Times in seconds."""

    initial_delay: int = 10
    period: int = 10
    timeout: int = 2
    success_threshold: int = 1
    failure_threshold: int = 30


@dataclass(frozen=True)
class ScaleSettings:
    """`type` is `default` or `target_utilization`; `polling_interval` is in seconds."""

    type: str = "default"
    min_instances: int = 1
    max_instances: int = 1
    polling_interval: int = 1
    target_utilization_percentage: int = 70

    @property
    def is_automatic(self) -> bool:
        return self.type == "target_utilization"


@dataclass(frozen=True)
class Batching:
    max_size: int
    max_wait_ms: int = 5


@dataclass(frozen=True)
class OwnSettings:
    cluster: str = ""
    batching: Batching | None = None
    max_queue: int = 100
    max_body_bytes: int = 100 << 20
    max_collected_bytes: int = 1 << 30
    scale_to_zero_after_s: int = 600


def request_settings(document: Mapping[str, Any]) -> RequestSettings:
    at = ("request_settings",)
    body = _section(document, at[0], keys.REQUEST_SETTINGS)
    return RequestSettings(
        bounded_integer(body, "request_timeout_ms", at, 5000, 1, 180_000),
        bounded_integer(body, "max_concurrent_requests_per_instance", at, 1, 1, 10_000),
        bounded_integer(body, "max_queue_wait_ms", at, 500, 0, 3_600_000),
    )


def probe(document: Mapping[str, Any], name: str) -> Probe:
    at = (name,)
    body = _section(document, name, keys.PROBE)
    return Probe(
        bounded_integer(body, "initial_delay", at, 10, 0, _DAY_S),
        bounded_integer(body, "period", at, 10, 1, _DAY_S),
        bounded_integer(body, "timeout", at, 2, 1, _DAY_S),
        bounded_integer(body, "success_threshold", at, 1, 1, 1000),
        bounded_integer(body, "failure_threshold", at, 30, 1, 10_000),
    )


def scale_settings(document: Mapping[str, Any]) -> ScaleSettings:
    at = ("scale_settings",)
    body = _section(document, at[0], keys.SCALE)
    kind = word(body, "type", at, ("default", "target_utilization"), "default")
    least = bounded_integer(body, "min_instances", at, 1, 0, _MOST_INSTANCES)
    maximum = bounded_integer(body, "max_instances", at, max(least, 1), 1, _MOST_INSTANCES)
    if maximum < least:
        raise InvalidSpec(
            f"`max_instances` is {maximum}, and `min_instances` is {least}",
            f"write {least} or more",
            at=(*at, "max_instances"),
        )
    return ScaleSettings(
        kind,
        least,
        maximum,
        _seconds(body, "polling_interval", at, 1),
        bounded_integer(body, "target_utilization_percentage", at, 70, 1, 100),
    )


def own_settings(document: Mapping[str, Any]) -> OwnSettings:
    """What stands below `torchyard:`, or as tags and properties that begin with `torchyard.`."""
    at = ("torchyard",)
    written = {**_from_texts(document, "properties"), **_from_texts(document, "tags")}
    body = {**written, **_section(document, at[0], keys.OWN)}
    batching = body.get("batching")
    if batching is not None:
        here = (*at, "batching")
        batching = keys.check(batching, keys.BATCHING, here, "`batching`")
        batching = Batching(
            bounded_integer(batching, "max_size", here, 8, 2, 1024),
            bounded_integer(batching, "max_wait_ms", here, 5, 0, 10_000),
        )
    cluster = body.get("cluster") or ""
    if not isinstance(cluster, str):
        raise InvalidSpec("`cluster` must be a cluster's name", at=(*at, "cluster"))
    return OwnSettings(
        cluster.removeprefix("azureml:"),
        batching,
        bounded_integer(body, "max_queue", at, 100, 0, 100_000),
        bounded_integer(body, "max_body_mb", at, 100, 1, 4096) << 20,
        bounded_integer(body, "max_collected_mb", at, 1024, 1, 1 << 24) << 20,
        bounded_integer(body, "scale_to_zero_after_s", at, 600, 1, 30 * _DAY_S),
    )


def bounded_integer(
    body: Mapping[str, Any], key: str, at: At, default: int, least: int, maximum: int
) -> int:
    """A whole number within its bounds; the default when it is left out.

    Raises:
        InvalidSpec: it is anything else.
    """
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= maximum:
        raise InvalidSpec(
            f"`{key}` must be a whole number from {least} to {maximum}, not {described(value)}",
            f"for example `{key}: {max(default, least)}`",
            at=(*at, key),
        )
    return value


def word(body: Mapping[str, Any], key: str, at: At, words: Sequence[str], default: str) -> str:
    """One of the words, written in any case, with `_`, `-` or in camelCase.

    Raises:
        InvalidSpec: it is none of them.
    """
    value = body.get(key)
    if value is None or value == "":
        return default
    plain = _plain(value) if isinstance(value, str) else None
    for each in words:
        if plain == _plain(each):
            return each
    raise InvalidSpec(
        f"`{key}` is {described(value)}", f"use one of: {', '.join(words)}", at=(*at, key)
    )


def yes_or_no(body: Mapping[str, Any], key: str, at: At, default: bool) -> bool:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise InvalidSpec(f"`{key}` is {described(value)}", "write `true` or `false`", at=(*at, key))


def share(body: Mapping[str, Any], key: str, at: At, default: float) -> float:
    """A number from 0 to 1.

    Raises:
        InvalidSpec: it is anything else.
    """
    value = body.get(key)
    if value is None:
        return default
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= 1:
        raise InvalidSpec(
            f"`{key}` must be a number from 0 to 1, not {described(value)}",
            f"for example `{key}: 0.1`",
            at=(*at, key),
        )
    return float(value)


def _section(document: Mapping[str, Any], key: str, table: Sequence[Key]) -> dict[str, Any]:
    value = document.get(key)
    return {} if value is None else keys.check(value, table, (key,), f"`{key}`")


def _seconds(body: Mapping[str, Any], key: str, at: At, default: int) -> int:
    """A number, or `PT10S` as Azure's clients send it."""
    value = body.get(key)
    if isinstance(value, str) and value[:2] == "PT" and value[-1:] == "S" and value[2:-1].isdigit():
        body = {key: int(value[2:-1][:9])}
    return bounded_integer(body, key, at, default, 1, _DAY_S)


def _from_texts(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """{`max_queue`: 20} for the tag `torchyard.max_queue: "20"`."""
    written = document.get(key)
    values: dict[str, Any] = {}
    for name, value in written.items() if isinstance(written, Mapping) else ():
        if isinstance(name, str) and name.startswith(_PREFIX):
            try:
                values[name.removeprefix(_PREFIX)] = (
                    json.loads(value) if isinstance(value, str) else value
                )
            except (ValueError, RecursionError):
                values[name.removeprefix(_PREFIX)] = value
    for name in values:
        if name not in {known_key.name for known_key in keys.OWN}:
            raise unknown_key(
                f"{_PREFIX}{name}", [f"{_PREFIX}{each.name}" for each in keys.OWN], (key,)
            )
    return values


def _plain(text: str) -> str:
    return text.replace("_", "").replace("-", "").replace(" ", "").lower()
