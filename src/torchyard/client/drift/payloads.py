"""Rows of a table in what was sent to a model, or answered by one.

Owns: the forms of JSON that model servers take, and Azure's data collector writes.
Leaves: the lines of files to tables.py, what a value means to columns.py.
Always: text of another form gives None, never an error: anybody who may call the endpoint wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_WRAPPERS = ("input_data", "data", "Inputs", "inputs", "instances", "dataframe_records", "Results")
_SPLITS = ("dataframe_split", "input_data", "data", "Inputs")
_MOST_DEPTH = 4

Row = Mapping[str, Any]


def rows_of(payload: Any, names: Sequence[str] = ()) -> list[Row] | None:
    """The rows by column; None where the payload holds none, or they can't be named.

    Read are lists of records, lists of lists, columns of lists, pandas' split form (`columns` and
    `data`), one record; each also below `data`, `input_data`, `Inputs`, `instances`,
    `dataframe_records` or `dataframe_split`.

    Args:
        names: of the columns of rows that are lists; a row of another length is none.
    """
    return _rows(payload, names, 0)


def _rows(payload: Any, names: Sequence[str], depth: int) -> list[Row] | None:
    if depth > _MOST_DEPTH:
        return None
    if isinstance(payload, list):
        return _of_list(payload, names)
    if not isinstance(payload, Mapping) or not payload:
        return None
    columns, data = payload.get("columns"), payload.get("data")
    if isinstance(columns, list) and isinstance(data, list):
        return _of_list(data, [str(column) for column in columns])
    for key in (*_SPLITS, *_WRAPPERS):
        inner = payload.get(key)
        if isinstance(inner, list | Mapping):
            return _rows(inner, names, depth + 1)
    return _of_mapping(payload)


def _of_list(payload: list[Any], names: Sequence[str]) -> list[Row] | None:
    if not payload:
        return []
    if all(isinstance(row, Mapping) for row in payload):
        return payload
    if all(isinstance(row, list) for row in payload):
        if names and all(len(row) == len(names) for row in payload):
            return [dict(zip(names, row, strict=True)) for row in payload]
        return None
    if any(isinstance(value, list | Mapping) for value in payload):
        return None
    if len(names) == 1:
        return [{names[0]: value} for value in payload]
    return [dict(zip(names, payload, strict=True))] if len(payload) == len(names) else None


def _of_mapping(payload: Mapping[str, Any]) -> list[Row] | None:
    lists = [value for value in payload.values() if isinstance(value, list)]
    if not lists:
        return None if any(isinstance(v, Mapping) for v in payload.values()) else [payload]
    if len(lists) < len(payload) or len({len(each) for each in lists}) != 1:
        return None
    return [dict(zip(payload, row, strict=True)) for row in zip(*payload.values(), strict=True)]
