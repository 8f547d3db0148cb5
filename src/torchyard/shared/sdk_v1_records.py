"""What SDK v1 logs inside jobs, as records of run history.

Owns: reading the bodies of Azure's metric service and of a change to a run, and what of them is
refused at once.
Leaves: whether the run exists, and what a valid record is, to the server.
Always: a number that `run.log` sends becomes a metric as MLflow's are, all else a row; the same
body makes the same records.

Source: REST.md section 6; the requests of azureml-core 1.61.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from torchyard.shared.relay_records import Invalid

_SCALAR = "azureml.v1.scalar"
_NUMBERS = ("double", "float", "int", "integer", "long", "bool", "boolean")
_NAMES = ("NaN", "Infinity", "-Infinity")
_PATH = re.compile(
    r"/{1,2}(?P<service>metric|history)/v\d+\.\d+/subscriptions/[^/]+/resourceGroups/[^/]+"
    r"/providers/Microsoft\.MachineLearningServices/workspaces/[^/]+"
    r"(?:/experiments/[^/]+|/experimentids/[^/]+)?/runs/(?P<run>[^/]+)(?P<rest>/.*)?",
    re.IGNORECASE,
)
# What a change to a run may say to be kept here: the server's answer would hold nothing new.
_KEPT_CHANGES = frozenset({"runId", "tags", "properties"})


class Place(NamedTuple):
    """Which run a path of Azure is about; `verb` is `metric/batch`, `history`, …"""

    run: str
    verb: str


def place_of(path: str) -> Place | None:
    """None for a path that is about no run."""
    found = _PATH.fullmatch(path)
    if found is None:
        return None
    return Place(found["run"], found["service"].lower() + (found["rest"] or ""))


def logged(run: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of one request to the metric service.

    Raises:
        Invalid: the body is none of such a request.
    """
    metrics = body.get("values")
    if not isinstance(metrics, list):
        raise Invalid("the request's `values` is no list")
    found: list[dict[str, Any]] = []
    for metric in metrics:
        if not isinstance(metric, Mapping):
            raise Invalid("a metric is no JSON object")
        found += _points_and_rows(run, metric)
    return found


def changed(run: str, body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """The tags and properties of a change to a run; None when it says more than that."""
    if any(name not in _KEPT_CHANGES for name, value in body.items() if value is not None):
        return None
    kinds = {"tag": body.get("tags") or {}, "property": body.get("properties") or {}}
    if not all(isinstance(given, Mapping) for given in kinds.values()):
        return None
    return [
        {"kind": kind, "run": run, "key": str(key), "value": str(value)}
        for kind, given in kinds.items()
        for key, value in given.items()
        if value is not None
    ]


def _points_and_rows(run: str, metric: Mapping[str, Any]) -> list[dict[str, Any]]:
    key, columns = str(metric.get("name") or ""), metric.get("columns") or {}
    said, values = metric.get("properties") or {}, metric.get("value") or []
    if not (isinstance(columns, Mapping) and isinstance(said, Mapping)):
        raise Invalid(f"metric `{key[:100]}`: its `columns` or its `properties` are no object")
    if not isinstance(values, list):
        raise Invalid(f"metric `{key[:100]}`: its `value` is no list")
    kind = str(said.get("uxMetricType") or _SCALAR)
    found = []
    for value in values:
        data = (value.get("data") or {}) if isinstance(value, Mapping) else None
        if not isinstance(data, Mapping):
            raise Invalid(f"metric `{key[:100]}`: a value is no JSON object")
        moment_us = _moment_us(value.get("createdUtc"))
        step = value.get("step")
        common = {"run": run, "key": key, "moment_us": moment_us, "step": step}
        if _is_number(kind, key, columns, data):
            found.append({"kind": "metric", **common, "value": _number(data[key])})
            continue
        row_id = str(value.get("metricId") or "")
        if not key or not row_id:
            raise Invalid("a metric has no `name` or no `metricId`")
        types = {str(name): str(type) for name, type in columns.items()}
        row = {"id": row_id, "type": kind, "columns": types, "values": _finite(data)}
        found.append({"kind": "row", **common, **row})
    return found


def _is_number(kind: str, key: str, columns: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    if kind != _SCALAR or set(data) != {key}:
        return False
    value = data[key]
    is_text = isinstance(value, str) and value not in _NAMES
    return str(columns.get(key, "")).lower() in _NUMBERS and not is_text and value is not None


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


def _finite(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN, and a database keeps none."""
    return {str(name): _told(value) for name, value in data.items()}


def _told(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return _finite(value)
    return [_told(one) for one in value] if isinstance(value, list) else value


def _moment_us(text: Any) -> int:
    """Microseconds since 1970; now, when the client does not say."""
    try:
        moment = datetime.fromisoformat(_shortened(str(text)))
    except ValueError:
        moment = datetime.now(timezone.utc)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    passed = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds


def _shortened(text: str) -> str:
    """Python 3.10 reads six digits of a second and no `Z`."""
    head, _, rest = text.replace("Z", "+00:00").partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return f"{head}.{digits[:6].ljust(6, '0')}{rest[len(digits) :]}" if digits else head
