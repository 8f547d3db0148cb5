"""What a run tells of itself, as records: metrics, parameters, tags, properties.

Owns: what a valid record is; how a float is said in JSON.
Leaves: storing them to history.py; rows of several columns to metric_rows.py.
Always: a record is made by one of the functions here, which name the field that is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from torchyard.base.errors import InvalidInput
from torchyard.jobs.history import metric_blocks, metric_rows, stepless_points
from torchyard.jobs.history.metric_blocks import INT64_MAX, INT64_MIN
from torchyard.jobs.history.metric_rows import Row

KEY_MAX_LENGTH = 250
TEXT_MAX_LENGTH = 1_000_000
# What may stand beside a metric of a logged model, and how long it may be.
_MODEL_FIELDS = {"model_id": 64, "dataset_name": 500, "dataset_digest": 128}
_NUMBER_NAMES = {"NaN": metric_blocks.NAN, "Infinity": math.inf, "-Infinity": -math.inf}


class Metric(NamedTuple):
    """One point of one key; `timestamp` in ms since 1970."""

    key: str
    timestamp: int
    step: int
    value: float


@dataclass(frozen=True)
class Param:
    key: str
    value: str


@dataclass(frozen=True)
class Tag:
    key: str
    value: str


@dataclass(frozen=True)
class Property:
    key: str
    value: str


@dataclass(frozen=True)
class ModelMetric:
    """A point that was measured of a logged model, maybe on a data set; the run has it too."""

    model_id: str
    dataset_name: str
    dataset_digest: str
    metric: Metric


Record = Metric | Param | Tag | Property | ModelMetric | Row


def metric(key: Any, value: Any, timestamp: Any, step: Any = 0) -> Metric:
    """A metric record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "metric")
    return Metric(
        key,
        _integer(timestamp, "timestamp", key),
        _integer(step, "step", key),
        number(value, key),
    )


def without_step(key: Any, value: Any, moment_us: Any) -> Metric:
    """A metric record that has no step, logged `moment_us` µs after 1970.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    moment_us = _integer(moment_us, "moment", key if isinstance(key, str) else "")
    return metric(key, value, moment_us // 1000, stepless_points.step_at(moment_us))


def read(body: Any) -> tuple[str, Record]:
    """(run, record) from what a worker sends.

    Raises:
        InvalidInput: names what is wrong.
    """
    if not isinstance(body, dict):
        raise InvalidInput("a record is no JSON object")
    run, kind = body.get("run"), body.get("kind")
    if not isinstance(run, str) or not is_storable(run):
        raise InvalidInput("a record names no run")
    key, value = body.get("key"), body.get("value")
    if kind == "metric":
        return run, _point(key, value, body)
    if kind == "param":
        return run, param(key, value)
    if kind == "tag":
        return run, tag(key, value)
    if kind == "property":
        return run, own_property(key, value)
    if kind == "row":
        return run, metric_rows.read(body)
    raise InvalidInput(f"kind `{str(kind)[:50]}` is not metric, row, param, tag or property")


def _point(key: Any, value: Any, body: Mapping[str, Any]) -> Metric | ModelMetric:
    moment_us, step = body.get("moment_us"), body.get("step", 0)
    if moment_us is None:
        return of_model(metric(key, value, body.get("timestamp"), step), body)
    if step is None:
        return without_step(key, value, moment_us)
    return metric(key, value, _integer(moment_us, "moment", str(key)) // 1000, step)


def of_model(point: Metric, fields: Mapping[str, Any]) -> Metric | ModelMetric:
    """The point with the logged model and the data set that `fields` may name besides.

    Raises:
        InvalidInput: one of them is no text, or too long.
    """
    if not fields.get("model_id"):
        return point
    names = []
    for name, limit in _MODEL_FIELDS.items():
        text = fields.get(name) or ""
        if not isinstance(text, str) or len(text) > limit or not is_storable(text):
            raise InvalidInput(f"metric `{point.key}`: `{name}` is no text of up to {limit}")
        names.append(text)
    return ModelMetric(names[0], names[1], names[2], point)


def param(key: Any, value: Any) -> Param:
    """A parameter record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "parameter")
    return Param(key, _text(value, "parameter", key))


def tag(key: Any, value: Any) -> Tag:
    """A tag record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "tag")
    return Tag(key, _text(value, "tag", key))


def own_property(key: Any, value: Any) -> Property:
    """A property record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "property")
    return Property(key, _text(value, "property", key))


def number(value: Any, key: str) -> float:
    """A float from a JSON number or the name of one that JSON lacks; every NaN the same object.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(value, str):
        if value in _NUMBER_NAMES:
            return _NUMBER_NAMES[value]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            converted = float(value)
        except OverflowError:
            raise InvalidInput(f"metric `{key}`: the value does not fit a 64-bit float") from None
        return converted if converted == converted else metric_blocks.NAN
    raise InvalidInput(f"metric `{key}`: value `{str(value)[:100]}` is no number")


def number_json(value: float) -> float | str:
    """A float as JSON can say it: `number` reads it back."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _check_key(key: Any, kind: str) -> None:
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"a {kind} has no key")
    if len(key) > KEY_MAX_LENGTH:
        raise InvalidInput(
            f"{kind} key `{key[:50]}…` has {len(key)} characters, {KEY_MAX_LENGTH} at the most"
        )
    if not is_storable(key):
        raise InvalidInput(f"{kind} key {key[:50]!a} holds characters that are no text")


def _text(value: Any, kind: str, key: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{kind} `{key}`: the value is no text")
    if len(value) > TEXT_MAX_LENGTH:
        raise InvalidInput(
            f"{kind} `{key}`: the value has {len(value)} characters, {TEXT_MAX_LENGTH} at the most"
        )
    if not is_storable(value):
        raise InvalidInput(f"{kind} `{key}`: the value holds characters that are no text")
    return value


def is_storable(text: str) -> bool:
    """JSON can say half a surrogate pair and NUL, which databases refuse."""
    if text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _integer(value: Any, field_name: str, key: str) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise InvalidInput(f"metric `{key}`: {field_name} `{str(value)[:50]}` is no 64-bit integer")
    return value
