"""HTTP: what runs logged, for people: summaries, charts, exact points, exports.

Owns: the requests and their limits.
Leaves: reduction to history/charts.py, points to history/exact_points.py, files to
history/exports.py.
Always: the size of a response is bounded by its request, or it is streamed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from typing_extensions import NotRequired, TypedDict

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound, did_you_mean
from torchyard.jobs import actions
from torchyard.jobs.history import chart_store, charts, exact_points, exports, metric_rows
from torchyard.jobs.history.chart_store import By, Points, Sampled, Window
from torchyard.jobs.history.metric_rows import MetricTable
from torchyard.jobs.records import job_masking
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import answer_types
from torchyard.jobs.requests.to_json import comparison_json
from torchyard.jobs.services import ServicesOf
from torchyard.shared.record_rules import INT64_MAX, INT64_MIN, JsonNumber, number_json
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_MOST_COLUMNS = 10_000
_MOST_SERIES = 100
_MOST_TABLES, _MOST_ROWS = 50, 50
_MOST_NUMBERS = 200_000

Keys = Annotated[list[str] | None, Query()]
Names = Annotated[list[str], Query()]
Start = Annotated[int | None, Query(alias="from", ge=INT64_MIN, le=INT64_MAX)]
End = Annotated[int | None, Query(alias="to", ge=INT64_MIN, le=INT64_MAX)]
Width = Annotated[int, Query(ge=1, le=_MOST_COLUMNS)]
Offset = Annotated[int, Query(ge=0)]
Limit = Annotated[int | None, Query(ge=1)]

router = APIRouter(prefix="/v1/workspaces/{workspace}", tags=["metrics"], route_class=GuardedRoute)


class MetricSummary(TypedDict):
    key: str
    count: int
    step: int
    timestamp: int
    value: JsonNumber
    min: JsonNumber | None
    max: JsonNumber | None


class MetricSummaries(TypedDict):
    value: list[MetricSummary]
    tables: list[MetricTable]


_Range = TypedDict("_Range", {"from": NotRequired[int], "to": NotRequired[int]})


class Chart(_Range):
    """Points where `exact`, else the least and the largest value of each column."""

    job: NotRequired[str]
    key: str
    x: By
    exact: bool
    count: int
    points: NotRequired[list[tuple[int, JsonNumber]]]
    columns: NotRequired[list[tuple[int, JsonNumber, JsonNumber]]]


class Charts(TypedDict):
    value: list[Chart]


@router.get("/jobs/{name}/metrics")
@needs(Permission.READ)
def summaries(
    services: ServicesOf, workspace: str, name: str, system: Sampled = "hidden"
) -> MetricSummaries:
    job = actions.get(services, workspace, name)
    with services.db.read() as connection:
        metrics = chart_store.summaries(connection, job.id, system)
        tables = metric_rows.tables(connection, job.id, _MOST_TABLES, _MOST_ROWS)
    return {
        "tables": job_masking.masked(job, tables),
        "value": [
            {
                "key": metric.key,
                "count": metric.count,
                "step": metric.step,
                "timestamp": metric.timestamp,
                "value": number_json(metric.value),
                "min": None if metric.low is None else number_json(metric.low),
                "max": None if metric.high is None else number_json(metric.high),
            }
            for metric in metrics
        ],
    }


@router.get("/jobs/{name}/metrics/chart")
@needs(Permission.READ)
def chart(
    services: ServicesOf,
    workspace: str,
    name: str,
    key: str,
    width: Width = 1000,
    x: By = "step",
    start: Start = None,
    end: End = None,
) -> Chart:
    job = actions.get(services, workspace, name)
    drawn = _charts(services.db, [job], key, Window(x, start, end), width)
    if job.id not in drawn:
        raise _no_key(services.db, job, key)
    return _chart_json(key, x, drawn[job.id])


@router.get("/metrics/chart")
@needs(Permission.READ)
def overlay(
    services: ServicesOf,
    workspace: str,
    job: Names,
    key: Names,
    width: Width = 1000,
    x: By = "step",
    start: Start = None,
    end: End = None,
) -> Charts:
    series = len(job) * len(key)
    if series > _MOST_SERIES or series * width > _MOST_NUMBERS:
        raise InvalidInput(
            f"{series} lines of {width} columns are too much for one chart",
            f"ask for up to {_MOST_SERIES} lines, and {_MOST_NUMBERS:,} columns in all",
        )
    jobs = actions.get_all(services, workspace, job)
    window = Window(x, start, end)
    drawn = {metric: _charts(services.db, jobs, metric, window, width) for metric in key}
    lines: list[Chart] = [
        {"job": charted.name, **_chart_json(metric, x, drawn[metric][charted.id])}
        for charted in jobs
        for metric in key
        if charted.id in drawn[metric]
    ]
    return {"value": lines}


@router.get("/metrics/comparison")
@needs(Permission.READ)
def comparison(services: ServicesOf, workspace: str, job: Names) -> answer_types.Comparison:
    names = list(dict.fromkeys(job))
    if len(names) > _MOST_SERIES:
        raise InvalidInput(
            f"{len(names)} jobs are too many to compare", f"name {_MOST_SERIES} or fewer"
        )
    return comparison_json(services, actions.get_all(services, workspace, names))


@router.get("/jobs/{name}/metrics/history")
@needs(Permission.READ)
def history(
    services: ServicesOf,
    workspace: str,
    name: str,
    key: str,
    x: By = "step",
    start: Start = None,
    end: End = None,
    offset: Offset = 0,
    limit: Limit = None,
) -> StreamingResponse:
    job = actions.get(services, workspace, name)
    _check_keys(services.db, job, [key])
    window = Window(x, start, end)
    pieces = exact_points.pieces(services.db, job.id, key, window, offset, limit)
    return StreamingResponse(
        exports.as_json(key, pieces, offset, limit), media_type="application/json"
    )


@router.get("/jobs/{name}/metrics/export")
@needs(Permission.READ)
def export(
    services: ServicesOf,
    workspace: str,
    name: str,
    format: Literal["csv", "parquet"] = "csv",
    key: Keys = None,
    x: By = "step",
    start: Start = None,
    end: End = None,
) -> StreamingResponse:
    job = actions.get(services, workspace, name)
    keys = _check_keys(services.db, job, key)
    series = (
        ((key,), points) for key, points in _series(services.db, job, keys, Window(x, start, end))
    )
    return _file(format, series, ("key",))


@router.get("/metrics/export")
@needs(Permission.READ)
def export_of_jobs(
    services: ServicesOf,
    workspace: str,
    job: Names,
    format: Literal["csv", "parquet"] = "csv",
    key: Keys = None,
    x: By = "step",
    start: Start = None,
    end: End = None,
) -> StreamingResponse:
    if len(job) > _MOST_SERIES:
        raise InvalidInput(
            f"{len(job)} jobs are too many for one file", f"name {_MOST_SERIES} or fewer"
        )
    jobs = actions.get_all(services, workspace, list(dict.fromkeys(job)))
    keys = _keys_by_job(services.db, jobs, key)
    window = Window(x, start, end)
    series = (
        ((exported.name, key), points)
        for exported in jobs
        for key, points in _series(services.db, exported, keys[exported.name], window)
    )
    return _file(format, series, ("job", "key"))


def _file(format: str, series: exports.Series, labels: tuple[str, ...]) -> StreamingResponse:
    write = exports.as_csv if format == "csv" else exports.parquet()
    kind = "text/csv; charset=utf-8" if format == "csv" else "application/vnd.apache.parquet"
    return StreamingResponse(write(series, labels), media_type=kind)


def _series(
    db: Database, job: Job, keys: Sequence[str], window: Window
) -> Iterator[tuple[str, Iterator[Points]]]:
    for key in keys:
        yield key, exact_points.pieces(db, job.id, key, window)


def _charts(
    db: Database, jobs: Sequence[Job], key: str, window: Window, width: int
) -> dict[int, charts.Chart]:
    with db.read() as connection:
        return chart_store.charts_of(connection, [job.id for job in jobs], key, window, width)


def _chart_json(key: str, by: By, drawn: charts.Chart) -> Chart:
    body: Chart = {"key": key, "x": by, "exact": drawn.exact, "count": drawn.count}
    if drawn.count:
        body["from"], body["to"] = drawn.start, drawn.end
    if drawn.exact:
        body["points"] = [(x, number_json(value)) for x, value in drawn.points]
    else:
        body["columns"] = [
            (x, number_json(low), number_json(high)) for x, low, high in drawn.columns
        ]
    return body


def _keys_by_job(
    db: Database, jobs: Sequence[Job], requested_keys: list[str] | None
) -> dict[str, list[str]]:
    """Which of the keys each job has, or all of its keys; each is one job's at least."""
    with db.read() as connection:
        sampled: Sampled = "hidden" if requested_keys is None else "too"
        keys = {job.name: chart_store.keys(connection, job.id, sampled) for job in jobs}
    logged = sorted({key for names in keys.values() for key in names})
    for key in requested_keys or ():
        if key not in logged:
            listed = ", ".join(f"`{name}`" for name in logged[:20])
            raise NotFound(
                f"none of the jobs has a metric `{key}`",
                did_you_mean(key, logged, f"they have {listed or 'none yet'}"),
                code="metric_not_found",
            )
    if requested_keys is None:
        return keys
    return {
        name: [key for key in dict.fromkeys(requested_keys) if key in set(names)]
        for name, names in keys.items()
    }


def _check_keys(db: Database, job: Job, requested_keys: list[str] | None) -> list[str]:
    """The keys asked for, or all of them."""
    with db.read() as connection:
        keys = chart_store.keys(connection, job.id, "hidden" if requested_keys is None else "too")
    for key in requested_keys or ():
        if key not in keys:
            raise _unknown(job, key, keys)
    return keys if requested_keys is None else list(dict.fromkeys(requested_keys))


def _no_key(db: Database, job: Job, key: str) -> NotFound:
    with db.read() as connection:
        return _unknown(job, key, chart_store.keys(connection, job.id))


def _unknown(job: Job, key: str, keys: Sequence[str]) -> NotFound:
    listed = ", ".join(f"`{name}`" for name in keys[:20])
    hint = did_you_mean(key, keys, f"it has {listed}" if keys else "it has none yet")
    return NotFound(f"job `{job.name}` has no metric `{key}`", hint, code="metric_not_found")
