"""What SDK v1 logs inside jobs, as records of run history.

Owns: reading the bodies of Azure's metric service and of a change to a run; which of them are
refused immediately.
Leaves: the rules that any record obeys to record_rules.py; whether the run exists to the server.
Always: a number that `run.log` sends becomes a metric like MLflow's, everything else a row; the
same body makes the same records.

Source: REST.md section 6; the requests of azureml-core 1.61.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from torchyard.shared.record_rules import INTEGER, NUMBER_NAMES, TRUTH, InvalidRecord, number_json

BASE_HEADER = "X-Torchyard-Base"
"""Where the script reaches the server by TLS: early clients open links to files by no other way."""
_SCALAR = "azureml.v1.scalar"
_INTEGERS = ("int", "integer", "long")
_NUMBERS = ("double", "float", *_INTEGERS, "bool", "boolean")
_TEXT = "string"
# numpy 2 writes `np.int64(3)` and earlier ones `3`, which is what a text `3` looks like, too.
_NUMPY_INTEGER = re.compile(r"np\.u?int64\((-?\d{1,20})\)|(-?[1-9]\d{0,18}|0)")
# Integers up to here are floats without loss.
_EXACT = 2**53
_PATH = re.compile(
    r"/{1,2}(?P<service>metric|history)/v\d+\.\d+/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/[^/]+"
    r"(?:/experiments/[^/]+|/experimentids/[^/]+)?/runs/(?P<run>[^/]+)(?P<rest>/.*)?",
    re.IGNORECASE,
)
# A change of nothing but these is kept on the node: the server's response would hold nothing new.
_KEPT_CHANGES = frozenset({"runId", "tags", "properties"})


class RunPath(NamedTuple):
    """The run that a path of Azure is about; `verb` is `metric/batch`, `history`, …"""

    run: str
    verb: str


def run_path(path: str) -> RunPath | None:
    """None for a path that is not about a run."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    return RunPath(match["run"], match["service"].lower() + (match["rest"] or ""))


def logged(run: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of one request to the metric service.

    Raises:
        InvalidRecord: the body does not have the form of such a request.
    """
    metrics = body.get("values")
    if not isinstance(metrics, list):
        raise InvalidRecord("`values` of the request is not a list")
    records: list[dict[str, Any]] = []
    for metric in metrics:
        if not isinstance(metric, Mapping):
            raise InvalidRecord("a metric is not a JSON object")
        records += _points_and_rows(run, metric)
    return records


def changed(run: str, body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The tags and properties of a change to a run; None when it changes anything else."""
    if any(name not in _KEPT_CHANGES for name, value in body.items() if value is not None):
        return None
    texts = {"tag": body.get("tags") or {}, "property": body.get("properties") or {}}
    if not all(isinstance(items, Mapping) for items in texts.values()):
        return None
    return [
        # `run.tag("x")` sends null: a tag without a value.
        {"kind": kind, "run": run, "key": str(key), "value": "" if value is None else str(value)}
        for kind, items in texts.items()
        for key, value in items.items()
    ]


def _points_and_rows(run: str, metric: Mapping[str, Any]) -> list[dict[str, Any]]:
    key, columns = str(metric.get("name") or ""), metric.get("columns") or {}
    properties, values = metric.get("properties") or {}, metric.get("value") or []
    if not (isinstance(columns, Mapping) and isinstance(properties, Mapping)):
        raise InvalidRecord(f"metric `{key[:100]}`: `columns` or `properties` is not an object")
    if not isinstance(values, list):
        raise InvalidRecord(f"metric `{key[:100]}`: `value` is not a list")
    kind = str(properties.get("uxMetricType") or _SCALAR)
    records = []
    for value in values:
        data = (value.get("data") or {}) if isinstance(value, Mapping) else None
        if not isinstance(data, Mapping):
            raise InvalidRecord(f"metric `{key[:100]}`: a value is not a JSON object")
        moment_us = _moment_us(value.get("createdUtc"))
        step = value.get("step")
        common = {"run": run, "key": key, "moment_us": moment_us, "step": step}
        number = _scalar(key, columns, data) if kind == _SCALAR else None
        if number is not None:
            records.append({"kind": "metric", **common, **number})
            continue
        row_id = str(value.get("metricId") or "")
        if not key or not row_id:
            raise InvalidRecord("a metric has no `name` or no `metricId`")
        types = {str(name): str(type) for name, type in columns.items()}
        row = {"id": row_id, "type": kind, "columns": types, "values": _finite(data)}
        records.append({"kind": "row", **common, **row})
    return records


def _scalar(key: str, columns: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any] | None:
    """The value of a number, with its type unless that is a float; None for anything else."""
    if set(data) != {key}:
        return None
    value, type = data[key], str(columns.get(key, "")).lower()
    if type == _TEXT:
        # The client knows no `numpy.int64` and sends what `repr` makes of it.
        integer = _NUMPY_INTEGER.fullmatch(value) if isinstance(value, str) else None
        value, type = (int(integer[1] or integer[2]), "int") if integer else (None, type)
    if type not in _NUMBERS or value is None:
        return None
    if isinstance(value, str):
        return {"value": value} if value in NUMBER_NAMES else None
    if isinstance(value, bool):
        return {"value": float(value), "type": TRUTH}
    if isinstance(value, float):
        return {"value": number_json(value)}
    is_exact = type in _INTEGERS and isinstance(value, int) and abs(value) <= _EXACT
    return {"value": value, "type": INTEGER} if is_exact else {"value": value}


def _finite(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN, and a database keeps none."""
    return {str(name): _cell(value) for name, value in data.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return _finite(value)
    return [_cell(item) for item in value] if isinstance(value, list) else value


def _moment_us(text: Any) -> int:
    """Microseconds since 1970; the present when the client does not say."""
    try:
        moment = datetime.fromisoformat(_shortened(str(text)))
    except ValueError:
        moment = datetime.now(timezone.utc)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    age = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (age.days * 86_400 + age.seconds) * 1_000_000 + age.microseconds


def _shortened(text: str) -> str:
    """Python 3.10 reads six digits of a second and no `Z`."""
    head, _, rest = text.replace("Z", "+00:00").partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return f"{head}.{digits[:6].ljust(6, '0')}{rest[len(digits) :]}" if digits else head
