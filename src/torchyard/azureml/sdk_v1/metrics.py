"""SDK v1's metric service: what `run.log` and its variants send, and what `get_metrics` requests.

Owns: the routes, and the form of their responses.
Leaves: reading what was logged to shared/sdk_v1_records.py, which the relay uses, too; numbers to
jobs/history/history.py, rows to jobs/history/metric_rows.py.
Always: a number that `run.log` sends is the same metric that MLflow and `yard job metrics` show;
what is sent again is stored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import AzureCall, Call
from torchyard.azureml.common.routing import RouteTable
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions, owners
from torchyard.jobs.actions import job_key
from torchyard.jobs.history import history_records, metric_rows
from torchyard.jobs.history.history import History
from torchyard.jobs.history.history_records import Record
from torchyard.jobs.history.metric_rows import Row
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.shared import record_rules, sdk_v1_records
from torchyard.shared.record_rules import INTEGER, TRUTH, InvalidRecord
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_SCALAR = "azureml.v1.scalar"
_FLOATS = ("float", "double")
_DOUBLE = "Double"
# Floats of a larger size are whole numbers that were rounded.
_EXACT = 2**53
# How the client gets the numbers of a type.
_READERS: dict[str, Callable[[float], Any]] = {INTEGER: int, TRUTH: bool}

routes = RouteTable()


@routes.post("/metric/runs/{name}/batch")
@needs(Permission.LOG)
def log(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    job = owners.get_own(services, call.workspace.name, name, call.identity)
    try:
        logged = sdk_v1_records.logged(name, call.document)
    except InvalidRecord as error:
        raise InvalidInput(str(error)) from error
    records, errors = _valid(logged)
    services.history.append(job.id, records)
    services.signals.notify(job_key(job))
    return JSONResponse({"errors": errors})


@routes.post("/metric/runs/{name}/list")
@needs(Permission.READ)
def list_keys(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    job = _job(services, call, name)
    types = services.history.types(job.id)
    columns = {key: {key: types.get(key, _DOUBLE)} for key in services.history.keys(job.id)}
    with services.db.read() as connection:
        for row in metric_rows.of_job(connection, job.id):
            columns.setdefault(row.key, {}).update(row.columns)
    value = [
        {"metricKey": {"namespace": "", "name": key}, "columns": types}
        for key, types in columns.items()
    ]
    return JSONResponse({"value": value, "continuationToken": None})


@routes.post("/metric/runs/{name}/full")
@needs(Permission.READ)
def get_metric(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    job = _job(services, call, name)
    key = str(call.document.get("metricName") or "")
    metric = _numbers(services.history, job, key) or _rows(services.db, job, key)
    if metric is None:
        raise NotFound(f"run `{name}` has no metric `{key[:200]}`")
    return JSONResponse({"dataContainerId": f"dcid.{job.name}", "name": key, **metric})


@routes.get("/history/experiments/{experiment}/runs/{name}/metricsingest/wait")
@needs(Permission.READ)
def wait_for_ingestion(
    call: AzureCall, services: ServicesOf, experiment: str, name: str
) -> JSONResponse:
    _job(services, call, name)
    # Metrics are stored before the request that logs them is answered.
    return JSONResponse({})


def _job(services: RecordServices, call: Call, name: str) -> Job:
    return actions.get(services, call.workspace.name, name)


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    """Types by name; the client converts all values in a column of numbers to numbers."""
    columns: dict[str, str] = {}
    for row in rows:
        columns.update(row.columns)
    for name, type in columns.items():
        values = [row.values[name] for row in rows if name in row.values]
        if type.lower() in _FLOATS and not all(map(_is_number, values)):
            columns[name] = "string"
    return columns


def _cell(row: Row, name: str, type: str) -> Any:
    """The client needs a number for a missing value in a column of numbers."""
    value = row.values.get(name)
    return "NaN" if value is None and type.lower() in _FLOATS else value


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")


def _valid(logged: Sequence[Mapping[str, Any]]) -> tuple[list[Record], list[dict[str, Any]]]:
    """What can be stored, and what the client prints about the others.

    Raises:
        InvalidInput: nothing can be stored.
    """
    records: list[Record] = []
    refused: list[tuple[str, InvalidInput]] = []
    for document in logged:
        try:
            records.append(history_records.read(document)[1])
        except InvalidInput as error:
            refused.append((str(document.get("key"))[:250], error))
    if refused and not records:
        raise refused[0][1]
    return records, [
        {
            "metric": {"name": key},
            "errorResponse": {"error": {"code": "UserError", "message": error.message}},
        }
        for key, error in refused
    ]


def _numbers(history: History, job: Job, key: str) -> dict[str, Any] | None:
    # The client sends several batches at once.
    points = sorted(history.series(job.id, key), key=lambda point: point.timestamp)
    if not points:
        return None
    numbers = [point.value for point in points]
    type = _type_of(numbers, history.types(job.id).get(key, _DOUBLE))
    read = _READERS.get(type, record_rules.number_json)
    value = [
        {
            "metricId": f"{key}-{number}",
            "createdUtc": timestamp(datetime.fromtimestamp(point.timestamp / 1000, timezone.utc)),
            "step": point.step,
            "data": {key: read(point.value)},
        }
        for number, point in enumerate(points)
    ]
    return {
        "columns": {key: type},
        "value": value,
        "properties": {"uxMetricType": _SCALAR},
    }


def _type_of(numbers: Sequence[float], first_type: str) -> str:
    """That of the first point, if all are of it: others may have been logged under the same key."""
    fits = {
        INTEGER: lambda number: number.is_integer() and abs(number) <= _EXACT,
        TRUTH: lambda number: number in (0.0, 1.0),
    }.get(first_type)
    return first_type if fits is not None and all(map(fits, numbers)) else _DOUBLE


def _rows(db: Database, job: Job, key: str) -> dict[str, Any] | None:
    with db.read() as connection:
        rows = metric_rows.of_job(connection, job.id, key)
    if not rows:
        return None
    columns = _columns(rows)
    value = [
        {
            "metricId": row.row_id,
            "createdUtc": timestamp(row.at),
            "step": row.step,
            "data": {name: _cell(row, name, type) for name, type in columns.items()},
        }
        for row in rows
    ]
    return {"columns": columns, "value": value, "properties": {"uxMetricType": rows[0].kind}}
