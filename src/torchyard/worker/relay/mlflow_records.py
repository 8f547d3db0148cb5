"""What a script logs by MLflow's REST protocol, as records of run history.

Owns: reading the bodies of log-metric, log-batch, log-parameter and set-tag; which of them the
relay refuses immediately.
Leaves: the rules that any record obeys to shared/record_rules.py; whether the run exists to the
server.
Always: numbers that JSON lacks are written by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchyard.shared import record_rules
from torchyard.shared.record_rules import InvalidRecord


def run_of(body: Mapping[str, Any]) -> str:
    """The run that a request's body is about."""
    run = body.get("run_id") or body.get("run_uuid")
    if not isinstance(run, str):
        raise _missing("run_id")
    return run


def records(verb: str, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The records of one request; `verb` is the last part of its path.

    Raises:
        InvalidRecord: names the field that is missing or wrong.
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
        raise InvalidRecord(f"Invalid value for parameter '{name}': not a list of objects")
    return items


def _metric(run: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    key = _key(fields, "metric")
    timestamp = _integer(fields, "timestamp", key, None)
    if timestamp < 0:
        raise InvalidRecord(f"metric `{key}`: timestamp `{timestamp}` is negative")
    value = fields.get("value")
    if value is None:
        raise _missing("value")
    record = {
        "kind": "metric",
        "run": run,
        "key": key,
        "value": record_rules.number_json(record_rules.number(value, key)),
        "timestamp": timestamp,
        "step": _integer(fields, "step", key, 0),
    }
    for name in record_rules.MODEL_FIELDS:
        if fields.get(name):
            record[name] = record_rules.model_field(fields[name], name, key)
    return record


def _text(kind: str, run: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    name = "parameter" if kind == "param" else kind
    key = _key(fields, name)
    value = record_rules.text(fields.get("value", ""), name, key)
    return {"kind": kind, "run": run, "key": key, "value": value}


def _key(fields: Mapping[str, Any], kind: str) -> str:
    if not fields.get("key"):
        raise _missing("key")
    return record_rules.key(fields["key"], kind)


def _integer(fields: Mapping[str, Any], name: str, key: str, default: int | None) -> int:
    value = fields.get(name)
    if value is None:
        if default is None:
            raise _missing(name)
        return default
    # Protocol buffers write a 64-bit integer as a string, and accept 5.0 for 5.
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            pass  # the rules say what is wrong
    return record_rules.integer(value, name, key)


def _missing(name: str) -> InvalidRecord:
    return InvalidRecord(f"Missing value for required parameter '{name}'")
