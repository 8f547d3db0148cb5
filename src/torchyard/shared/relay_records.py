"""What a script logs, as records of run history.

Owns: reading the bodies of MLflow's log-metric, log-batch, log-parameter and set-tag, and what of
them is refused at once.
Leaves: whether the run exists, and all else, to the server.
Always: numbers that JSON lacks are written by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_KEY_MAX_LENGTH = 250
_INT64 = range(-(2**63), 2**63)
_NAMES = ("NaN", "Infinity", "-Infinity")
# What MLflow 3 may tell of a metric besides: the logged model and the data it was measured on.
_OF_A_MODEL = ("model_id", "dataset_name", "dataset_digest")


class Invalid(Exception):
    """The client is told so with status 400."""


def run_of(body: Mapping[str, Any]) -> str:
    """The run a body is about."""
    run = body.get("run_id") or body.get("run_uuid")
    if not isinstance(run, str):
        raise Invalid("Missing value for required parameter 'run_id'")
    return run


def records(verb: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of one request; `verb` is the last part of its path.

    Raises:
        Invalid: names the field that is missing or wrong.
    """
    run = run_of(body)
    if verb == "log-metric":
        return [_metric(run, body)]
    if verb == "log-parameter":
        return [_text("param", run, body)]
    if verb == "set-tag":
        return [_text("tag", run, body)]
    return [
        *(_metric(run, item) for item in _items(body, "metrics")),
        *(_text("param", run, item) for item in _items(body, "params")),
        *(_text("tag", run, item) for item in _items(body, "tags")),
    ]


def _items(body: Mapping[str, Any], name: str) -> list[Any]:
    items = body.get(name) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise Invalid(f"Invalid value for parameter '{name}': not a list of objects")
    return items


def _metric(run: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    key = _key(fields)
    timestamp = _integer(fields, "timestamp", None)
    if timestamp < 0:
        raise Invalid(f"Invalid value for parameter 'timestamp' of metric '{key}': negative")
    record = {
        "kind": "metric",
        "run": run,
        "key": key,
        "value": _number(key, fields.get("value")),
        "timestamp": timestamp,
        "step": _integer(fields, "step", 0),
    }
    for name in _OF_A_MODEL:
        text = fields.get(name)
        if text:
            if not isinstance(text, str):
                raise Invalid(f"Invalid value for parameter '{name}' of metric '{key}': no text")
            record[name] = text
    return record


def _text(kind: str, run: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    value = fields.get("value", "")
    if not isinstance(value, str):
        raise Invalid(f"Invalid value for parameter 'value' of {kind} '{_key(fields)}': no text")
    return {"kind": kind, "run": run, "key": _key(fields), "value": value}


def _key(fields: Mapping[str, Any]) -> str:
    key = fields.get("key")
    if not isinstance(key, str) or not key:
        raise Invalid("Missing value for required parameter 'key'")
    if len(key) > _KEY_MAX_LENGTH:
        raise Invalid(f"'{key[:50]}…' exceeds the maximum length of {_KEY_MAX_LENGTH} characters")
    return key


def _number(key: str, value: Any) -> Any:
    if value is None:
        raise Invalid("Missing value for required parameter 'value'")
    if isinstance(value, str) and value in _NAMES:
        return value
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number):
                return number
            return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"
    except OverflowError:
        pass
    raise Invalid(f"Invalid value for parameter 'value' of metric '{key}': no 64-bit float")


def _integer(fields: Mapping[str, Any], name: str, default: int | None) -> int:
    value = fields.get(name)
    if value is None and default is not None:
        return default
    if value is None:
        raise Invalid(f"Missing value for required parameter '{name}'")
    try:
        whole = isinstance(value, (int, str)) or (isinstance(value, float) and value.is_integer())
        if whole and not isinstance(value, bool) and int(value) in _INT64:
            return int(value)
    except ValueError:
        pass
    raise Invalid(f"Invalid value for parameter '{name}': no 64-bit integer")
