"""SDK v1's metric service: what `run.log` and its kin send, and what `get_metrics` asks for.

Owns: which of it is a number of the run history, and which a row.
Leaves: numbers to jobs/history.py, rows to jobs/metric_rows.py.
Always: a number that `run.log` sends is the same metric that MLflow and `yard job metrics` show;
what is sent again is stored once.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.calls import Call, Caller
from torchyard.azureml.errors import AzureRoute
from torchyard.azureml.resources import timestamp
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions, history, metric_rows
from torchyard.jobs.actions import job_key
from torchyard.jobs.history import Metric, Record
from torchyard.jobs.metric_rows import Row
from torchyard.jobs.room import Room
from torchyard.jobs.types import Job

_SCALAR = "azureml.v1.scalar"
_NUMBERS = ("double", "float", "int", "integer", "long", "bool", "boolean")
_MOST = 1000


def routes(room: Room, caller: Caller) -> APIRouter:
    """`/metric/v2.0` and what the history service tells of metrics."""
    found = APIRouter(route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.post("/metric/runs/{name}/batch")
    def log(call: the_call, name: str) -> JSONResponse:
        job = actions.get(room, call.workspace.name, name)
        values = call.document.get("values")
        if not isinstance(values, list):
            raise InvalidInput("the request's `values` is no list")
        records, rows = _read(values)
        room.history.append(job.id, records)
        with room.db.write() as connection:
            metric_rows.add(connection, job.id, rows)
        room.signals.notify(job_key(job))
        return JSONResponse({"errors": []})

    @found.post("/metric/runs/{name}/list")
    def keys(call: the_call, name: str) -> JSONResponse:
        job = actions.get(room, call.workspace.name, name)
        columns = {key: {key: "Double"} for key in room.history.keys(job.id)}
        with room.db.read() as connection:
            for row in metric_rows.of_job(connection, job.id):
                columns.setdefault(row.key, {}).update(row.columns)
        value = [
            {"metricKey": {"namespace": "", "name": key}, "columns": types}
            for key, types in columns.items()
        ]
        return JSONResponse({"value": value, "continuationToken": None})

    @found.post("/metric/runs/{name}/full")
    def full(call: the_call, name: str) -> JSONResponse:
        job = actions.get(room, call.workspace.name, name)
        key = str(call.document.get("metricName") or "")
        told = _numbers(room, job, key) or _rows(room, job, key)
        if told is None:
            raise NotFound(f"run `{name}` has no metric `{key[:200]}`")
        return JSONResponse({"dataContainerId": f"dcid.{job.name}", "name": key, **told})

    @found.get("/history/experiments/{experiment}/runs/{name}/metricsingest/wait")
    def ingested(call: the_call, experiment: str, name: str) -> JSONResponse:
        actions.get(room, call.workspace.name, name)
        # Whatever was answered is stored.
        return JSONResponse({})

    return found


def _read(values: Sequence[Any]) -> tuple[list[Record], list[Row]]:
    """(numbers, rows) of what a client sends at once."""
    numbers: list[tuple[datetime, Metric]] = []
    rows: list[Row] = []
    for metric in values:
        if not isinstance(metric, Mapping):
            raise InvalidInput("a metric is no JSON object")
        key, columns = str(metric.get("name") or ""), metric.get("columns") or {}
        kind = str((metric.get("properties") or {}).get("uxMetricType") or _SCALAR)
        for value in metric.get("value") or []:
            data, at = value.get("data") or {}, _time(value.get("createdUtc"))
            step = value.get("step")
            if _is_number(kind, key, columns, data):
                moment = int(at.timestamp() * 1000)
                numbers.append((at, history.metric(key, data[key], moment, step or 0)))
                continue
            row_id = str(value.get("metricId") or "")[:64]
            if not key or not row_id:
                raise InvalidInput("a metric has no `name` or no `metricId`")
            types = {str(name): str(type) for name, type in columns.items()}
            rows.append(Row(row_id, key[:250], kind[:64], types, _finite(data), at, step))
    return _records(numbers), rows


def _records(numbers: Sequence[tuple[datetime, Metric]]) -> list[Record]:
    """Points by their time, no two of a key and step in one millisecond.

    A quick loop logs several in one; the history would lose their order and all but one of those
    that are equal. Sent again, they get the same times.
    """
    found: list[Record] = []
    newest: dict[tuple[str, int], int] = {}
    for _, one in sorted(numbers, key=lambda pair: pair[0]):
        moment = max(one.timestamp, newest.get((one.key, one.step), -1) + 1)
        newest[one.key, one.step] = moment
        found.append(one._replace(timestamp=moment))
    return found


def _is_number(kind: str, key: str, columns: Mapping[str, Any], data: Mapping[str, Any]) -> bool:
    if kind != _SCALAR or set(data) != {key}:
        return False
    value = data[key]
    is_text = isinstance(value, str) and value not in ("NaN", "Infinity", "-Infinity")
    return str(columns.get(key, "")).lower() in _NUMBERS and not is_text and value is not None


def _numbers(room: Room, job: Job, key: str) -> dict[str, Any] | None:
    # The client sends several batches at once.
    points = sorted(room.history.series(job.id, key), key=lambda one: one.timestamp)
    if not points:
        return None
    value = [
        {
            "metricId": f"{key}-{place}",
            "createdUtc": timestamp(datetime.fromtimestamp(one.timestamp / 1000, timezone.utc)),
            "step": one.step,
            "data": {key: history.number_json(one.value)},
        }
        for place, one in enumerate(points)
    ]
    return {
        "columns": {key: "Double"},
        "value": value,
        "properties": {"uxMetricType": _SCALAR},
    }


def _rows(room: Room, job: Job, key: str) -> dict[str, Any] | None:
    with room.db.read() as connection:
        rows = metric_rows.of_job(connection, job.id, key)
    if not rows:
        return None
    columns: dict[str, str] = {}
    for row in rows:
        columns.update(row.columns)
    value = [
        {
            "metricId": row.row_id,
            "createdUtc": timestamp(row.at),
            "step": row.step,
            "data": {name: row.values.get(name) for name in columns},
        }
        for row in rows
    ]
    return {"columns": columns, "value": value, "properties": {"uxMetricType": rows[0].kind}}


def _finite(data: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN, and a database keeps none."""
    return {
        str(name): str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in data.items()
    }


def _time(text: Any) -> datetime:
    try:
        moment = datetime.fromisoformat(_shortened(str(text)))
    except ValueError:
        return datetime.now(timezone.utc)
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)


def _shortened(text: str) -> str:
    """Python 3.10 reads six digits of a second and no `Z`."""
    head, _, rest = text.replace("Z", "+00:00").partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return f"{head}.{digits[:6].ljust(6, '0')}{rest[len(digits) :]}" if digits else head
