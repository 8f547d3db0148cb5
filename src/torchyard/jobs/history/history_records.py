"""What a run tells of itself, as records: metrics, parameters, tags, properties.

Owns: the types of records, and reading one from what a worker or a client sends.
Leaves: the rules that a record obeys to shared/record_rules.py, for the relay on the node has the
same; storing them to history.py; rows of several columns to metric_rows.py.
Always: a record is made by one of the functions here, which name the field that is wrong.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, ParamSpec, TypeVar

from torchyard.base.errors import InvalidInput
from torchyard.jobs.history import metric_rows, stepless_points
from torchyard.jobs.history.metric_rows import Row
from torchyard.shared import record_rules
from torchyard.shared.record_rules import InvalidRecord

P = ParamSpec("P")
R = TypeVar("R")


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


@dataclass(frozen=True)
class RunLogMetric:
    """A point that SDK v1's `run.log` logged; `type` is one of `record_rules.NUMBER_TYPES`, None
    for a float.
    """

    metric: Metric
    type: str | None = None


@dataclass(frozen=True)
class SampledMetric:
    """A point of what the node and its ranks use, which the worker sampled."""

    metric: Metric


Record = Metric | Param | Tag | Property | ModelMetric | RunLogMetric | SampledMetric | Row


def _as_invalid_input(build: Callable[P, R]) -> Callable[P, R]:
    """`build`, raising a broken rule as the server's own error."""

    @functools.wraps(build)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return build(*args, **kwargs)
        except InvalidRecord as error:
            raise InvalidInput(str(error)) from error

    return checked


@_as_invalid_input
def metric(key: Any, value: Any, timestamp: Any, step: Any = 0) -> Metric:
    """A metric record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    return _metric(key, value, timestamp, step)


@_as_invalid_input
def without_step(key: Any, value: Any, moment_us: Any) -> Metric:
    """A metric record that has no step, logged `moment_us` µs after 1970.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    return _without_step(key, value, moment_us)


@_as_invalid_input
def read(body: Any) -> tuple[str, Record]:
    """(run, record) from what a worker sends.

    Raises:
        InvalidInput: names what is wrong.
    """
    if not isinstance(body, dict):
        raise InvalidRecord("a record is not a JSON object")
    run, kind = body.get("run"), body.get("kind")
    if not isinstance(run, str) or not record_rules.is_storable(run):
        raise InvalidRecord("a record names no run")
    key, value = body.get("key"), body.get("value")
    if kind == "metric":
        if body.get("moment_us") is not None:
            return run, _of_run_log(key, value, body)
        point = _metric(key, value, body.get("timestamp"), body.get("step", 0))
        return run, SampledMetric(point) if body.get("sampled") is True else _of_model(point, body)
    if kind == "param":
        return run, param(key, value)
    if kind == "tag":
        return run, tag(key, value)
    if kind == "property":
        return run, own_property(key, value)
    if kind == "row":
        return run, metric_rows.read(body)
    raise InvalidRecord(f"kind `{str(kind)[:50]}` is not metric, row, param, tag or property")


@_as_invalid_input
def of_model(point: Metric, fields: Mapping[str, Any]) -> Metric | ModelMetric:
    """The point with the logged model and the data set that `fields` may name besides.

    Raises:
        InvalidInput: one of them is not a string, or too long.
    """
    return _of_model(point, fields)


@_as_invalid_input
def param(key: Any, value: Any) -> Param:
    """A parameter record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    key = record_rules.key(key, "parameter")
    return Param(key, record_rules.text(value, "parameter", key))


@_as_invalid_input
def tag(key: Any, value: Any) -> Tag:
    """A tag record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    key = record_rules.key(key, "tag")
    return Tag(key, record_rules.text(value, "tag", key))


@_as_invalid_input
def own_property(key: Any, value: Any) -> Property:
    """A property record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    key = record_rules.key(key, "property")
    return Property(key, record_rules.text(value, "property", key))


def _metric(key: Any, value: Any, timestamp: Any, step: Any) -> Metric:
    key = record_rules.key(key, "metric")
    return Metric(
        key,
        record_rules.integer(timestamp, "timestamp", key),
        record_rules.integer(step, "step", key),
        record_rules.number(value, key),
    )


def _without_step(key: Any, value: Any, moment_us: Any) -> Metric:
    moment_us = record_rules.integer(moment_us, "moment", key if isinstance(key, str) else "")
    return _metric(key, value, moment_us // 1000, stepless_points.step_at(moment_us))


def _of_run_log(key: Any, value: Any, body: Mapping[str, Any]) -> RunLogMetric:
    point = _without_step(key, value, body["moment_us"])
    if body.get("step", 0) is not None:
        point = _metric(key, value, point.timestamp, body.get("step", 0))
    type = body.get("type")
    if type is not None and type not in record_rules.NUMBER_TYPES:
        raise InvalidRecord(f"metric `{point.key}`: type `{str(type)[:50]}` is unknown")
    return RunLogMetric(point, type)


def _of_model(point: Metric, fields: Mapping[str, Any]) -> Metric | ModelMetric:
    if not fields.get("model_id"):
        return point
    texts = {
        name: record_rules.model_field(fields.get(name), name, point.key)
        for name in record_rules.MODEL_FIELDS
    }
    return ModelMetric(metric=point, **texts)
