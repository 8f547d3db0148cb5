"""The histories of metrics: of one run, of several, thinned out for a chart.

Owns: which points a response holds, and their order.
Leaves: the points to jobs/history/history.py.
Always: the pages of one run's points follow the order of arrival, so that a page does not change
while the run goes on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from torchyard.base.errors import InvalidInput
from torchyard.jobs.history.metric_blocks import Point
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import runs
from torchyard.jobs.services import ServicesOf
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call, CallOf, CallRoute, missing_parameter, page_response
from torchyard.mlflow.lookups import client_experiment_ids, experiment_ids, get_run
from torchyard.mlflow.translate import metric_json
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_DEFAULT_POINTS = 25_000
_PAGE_LIMIT = 50_000
_MAX_RUNS = 100
_MAX_STEPS = 2_500
_MAX_EXPERIMENTS = 20

router = APIRouter(prefix="/api/2.0/mlflow", route_class=CallRoute)


@router.get("/metrics/get-history")
@needs(Permission.READ)
def get_history(call: CallOf, services: ServicesOf) -> JSONResponse:
    run_id, key = call.text("run_id", "run_uuid"), call.text("metric_key")
    job = get_run(services, call.workspace, run_id)
    size = call.count("max_results", _DEFAULT_POINTS, _PAGE_LIMIT)
    start = search.parse_page_token(call.text("page_token", default=""))
    # One point more than the page holds tells whether there is a next page. A client that names no
    # size wants every point and would not request another page.
    limit = None if call.fields.get("max_results") is None else size + 1
    points = services.history.series(job.id, key, start, limit)
    has_more = limit is not None and len(points) > size
    page = points[:size] if has_more else points
    next_page_token = search.make_page_token(start + size) if has_more else ""
    return page_response("metrics", [metric_json(key, point) for point in page], next_page_token)


@router.get("/metrics/get-history-bulk")
@needs(Permission.READ)
def get_history_of_runs(call: CallOf, services: ServicesOf) -> JSONResponse:
    run_ids = call.texts("run_id")
    if not run_ids:
        raise InvalidInput("GetMetricHistoryBulk request must specify at least one run_id.")
    if len(run_ids) > _MAX_RUNS:
        raise InvalidInput(
            f"GetMetricHistoryBulk request cannot specify more than {_MAX_RUNS} run_ids."
            f" Received {len(run_ids)} run_ids."
        )
    key = call.text("metric_key", default="")
    if not key:
        raise InvalidInput("GetMetricHistoryBulk request must specify a metric_key.")
    max_points = min(call.integer("max_results", _DEFAULT_POINTS), _DEFAULT_POINTS)
    metrics: list[dict[str, Any]] = []
    for job in [get_run(services, call.workspace, run_id) for run_id in sorted(run_ids)]:
        points = sorted(services.history.series(job.id, key), key=_by_time)
        metrics += _run_metrics(job, key, points[: max_points - len(metrics)])
    return JSONResponse({"metrics": metrics})


@router.get("/metrics/get-history-bulk-interval")
@needs(Permission.READ)
def get_sampled_history(call: CallOf, services: ServicesOf) -> JSONResponse:
    run_ids, key, bounds, size = _read_interval(call)
    jobs = [get_run(services, call.workspace, run_id) for run_id in run_ids]
    metrics: list[dict[str, Any]] = []
    for job in jobs:
        points = sorted(services.history.series(job.id, key), key=_by_step)
        metrics += _run_metrics(job, key, _sample(points, bounds, size))
    return JSONResponse({"metrics": metrics})


@router.post("/experiments/search-datasets")
@needs(Permission.READ)
def search_datasets(call: CallOf, services: ServicesOf) -> JSONResponse:
    requested_ids = call.texts("experiment_ids")
    if not requested_ids:
        raise InvalidInput("SearchDatasets request must specify at least one experiment_id.")
    if len(requested_ids) > _MAX_EXPERIMENTS:
        raise InvalidInput(
            f"SearchDatasets request cannot specify more than {_MAX_EXPERIMENTS}"
            f" experiment_ids. Received {len(requested_ids)} experiment_ids."
        )
    client_id = client_experiment_ids(services.db, call)
    summaries = []
    datasets = runs.datasets_in(services.db, experiment_ids(services, call))
    for experiment_id, name, digest, context in datasets:
        summary = {"experiment_id": client_id(experiment_id), "name": name, "digest": digest}
        summaries.append(summary if context is None else {**summary, "context": context})
    return JSONResponse({"dataset_summaries": summaries})


def _read_interval(call: Call) -> tuple[list[str], str, tuple[int, int] | None, int]:
    run_ids = call.texts("run_ids")
    if not run_ids:
        raise missing_parameter("run_ids")
    if len(run_ids) > _MAX_RUNS:
        raise InvalidInput(
            f"GetMetricHistoryBulkInterval request must specify at most {_MAX_RUNS} run_ids."
            f" Received {len(run_ids)} run_ids."
        )
    key, size = call.text("metric_key"), call.integer("max_results", _MAX_STEPS)
    if not 1 <= size <= _MAX_STEPS:
        raise InvalidInput(f"max_results must be between 1 and {_MAX_STEPS}.")
    ends = [name for name in ("start_step", "end_step") if call.fields.get(name) is not None]
    if len(ends) == 1:
        raise InvalidInput(
            "If either start step or end step are specified, both must be specified."
        )
    if not ends:
        return run_ids, key, None, size
    first, last = call.integer("start_step"), call.integer("end_step")
    if first > last:
        raise InvalidInput(
            "end_step must be greater than start_step. "
            f"Found start_step={first} and end_step={last}."
        )
    return run_ids, key, (first, last), size


def _sample(points: Sequence[Point], bounds: tuple[int, int] | None, size: int) -> Sequence[Point]:
    """At most `size` evenly spaced points of a run within the bounds, with the last one of them.

    MLflow sampled by the steps that all runs share until 3.14, and samples like this since.
    """
    if bounds:
        first, last = bounds
        start = bisect_left(points, first, key=_step)
        points = points[start : bisect_right(points, last, key=_step)]
    if len(points) <= size:
        return points
    sample = [points[index * len(points) // size] for index in range(size)]
    return [*sample[:-1], points[-1]]


def _run_metrics(job: Job, key: str, points: Sequence[Point]) -> list[dict[str, Any]]:
    return [{**metric_json(key, point), "run_id": job.name} for point in points]


def _by_time(point: Point) -> tuple[int, int, float]:
    return point.timestamp, point.step, point.value


def _step(point: Point) -> int:
    return point.step


def _by_step(point: Point) -> tuple[int, int, float]:
    return point.step, point.timestamp, point.value
