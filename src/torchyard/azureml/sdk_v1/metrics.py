"""SDK v1's metric service: what `run.log` and its kin send, and what `get_metrics` asks for.

Owns: the routes, and the form of what they tell.
Leaves: reading what was logged to shared/sdk_v1_records.py, for the relay reads it too; numbers to
jobs/history/history.py, rows to jobs/history/metric_rows.py.
Always: a number that `run.log` sends is the same metric that MLflow and `yard job metrics` show;
what is sent again is stored once.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import AzureRoute
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions
from torchyard.jobs.actions import job_key
from torchyard.jobs.history import history_records, metric_rows
from torchyard.jobs.history.history_records import Record
from torchyard.jobs.history.metric_rows import Row
from torchyard.jobs.records.types import Job
from torchyard.jobs.services import Services
from torchyard.shared import record_rules, sdk_v1_records
from torchyard.shared.record_rules import InvalidRecord

_SCALAR = "azureml.v1.scalar"
_FLOATS = ("float", "double")


def routes(services: Services, caller: Caller) -> APIRouter:
    """`/metric/v2.0` and what the history service tells of metrics."""
    found = APIRouter(route_class=AzureRoute)
    the_call = Annotated[Call, Depends(caller)]

    @found.post("/metric/runs/{name}/batch")
    def log(call: the_call, name: str) -> JSONResponse:
        job = actions.get(services, call.workspace.name, name)
        try:
            told = sdk_v1_records.logged(name, call.document)
        except InvalidRecord as error:
            raise InvalidInput(str(error)) from error
        records, errors = _valid(told)
        services.history.append(job.id, records)
        services.signals.notify(job_key(job))
        return JSONResponse({"errors": errors})

    @found.post("/metric/runs/{name}/list")
    def keys(call: the_call, name: str) -> JSONResponse:
        job = actions.get(services, call.workspace.name, name)
        columns = {key: {key: "Double"} for key in services.history.keys(job.id)}
        with services.db.read() as connection:
            for row in metric_rows.of_job(connection, job.id):
                columns.setdefault(row.key, {}).update(row.columns)
        value = [
            {"metricKey": {"namespace": "", "name": key}, "columns": types}
            for key, types in columns.items()
        ]
        return JSONResponse({"value": value, "continuationToken": None})

    @found.post("/metric/runs/{name}/full")
    def full(call: the_call, name: str) -> JSONResponse:
        job = actions.get(services, call.workspace.name, name)
        key = str(call.document.get("metricName") or "")
        told = _numbers(services, job, key) or _rows(services, job, key)
        if told is None:
            raise NotFound(f"run `{name}` has no metric `{key[:200]}`")
        return JSONResponse({"dataContainerId": f"dcid.{job.name}", "name": key, **told})

    @found.get("/history/experiments/{experiment}/runs/{name}/metricsingest/wait")
    def ingested(call: the_call, experiment: str, name: str) -> JSONResponse:
        actions.get(services, call.workspace.name, name)
        # Whatever was answered is stored.
        return JSONResponse({})

    return found


def _columns(rows: Sequence[Row]) -> dict[str, str]:
    """Types by name; the client makes a number of all that stands in a column of numbers."""
    columns: dict[str, str] = {}
    for row in rows:
        columns.update(row.columns)
    for name, type in columns.items():
        values = [row.values[name] for row in rows if name in row.values]
        if type.lower() in _FLOATS and not all(map(_is_number, values)):
            columns[name] = "string"
    return columns


def _cell(row: Row, name: str, type: str) -> Any:
    """What is missing in a column of numbers has to be one for the client."""
    value = row.values.get(name)
    return "NaN" if value is None and type.lower() in _FLOATS else value


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, (int, float)) or value in ("nan", "inf", "-inf")


def _valid(told: Sequence[Mapping[str, Any]]) -> tuple[list[Record], list[dict[str, Any]]]:
    """What can be stored, and what the client prints of the rest: one does not hold up others.

    Raises:
        InvalidInput: nothing of it can be stored.
    """
    found: list[Record] = []
    refused: list[tuple[str, InvalidInput]] = []
    for one in told:
        try:
            found.append(history_records.read(one)[1])
        except InvalidInput as error:
            refused.append((str(one.get("key"))[:250], error))
    if refused and not found:
        raise refused[0][1]
    return found, [
        {
            "metric": {"name": key},
            "errorResponse": {"error": {"code": "UserError", "message": error.message}},
        }
        for key, error in refused
    ]


def _numbers(services: Services, job: Job, key: str) -> dict[str, Any] | None:
    # The client sends several batches at once.
    points = sorted(services.history.series(job.id, key), key=lambda one: one.timestamp)
    if not points:
        return None
    value = [
        {
            "metricId": f"{key}-{place}",
            "createdUtc": timestamp(datetime.fromtimestamp(one.timestamp / 1000, timezone.utc)),
            "step": one.step,
            "data": {key: record_rules.number_json(one.value)},
        }
        for place, one in enumerate(points)
    ]
    return {
        "columns": {key: "Double"},
        "value": value,
        "properties": {"uxMetricType": _SCALAR},
    }


def _rows(services: Services, job: Job, key: str) -> dict[str, Any] | None:
    with services.db.read() as connection:
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
