"""The histories of metrics: of one run, of several, thinned out for a chart.

Owns: which points are answered, and in which order.
Leaves: the points to jobs/history/history.py.
Always: points of one run come in order of arrival when they are paged, so that a page stays what
it was while the run goes on.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import InvalidInput
from torchyard.jobs.history.history import History
from torchyard.jobs.history.metric_blocks import Point
from torchyard.jobs.records.types import Job
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call, Caller, missing
from torchyard.mlflow.experiment_routes import experiment_ids, told_ids
from torchyard.mlflow.run_routes import run_of
from torchyard.mlflow.runs import Runs
from torchyard.mlflow.translate import metric_json

_POINTS_A_PAGE = 25_000
_PAGE_LIMIT = 50_000
_RUNS_LIMIT = 100
_STEPS_LIMIT = 2_500
_EXPERIMENTS_LIMIT = 20


def router(runs: Runs, history: History, caller: Caller) -> APIRouter:
    routes = APIRouter(prefix="/api/2.0/mlflow", route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]

    @routes.get("/metrics/get-history")
    def get_history(call: the_call) -> JSONResponse:
        name, key = call.text("run_id", "run_uuid"), call.text("metric_key")
        job = run_of(runs, call.workspace, name)
        size = call.size("max_results", _POINTS_A_PAGE, _PAGE_LIMIT)
        start = search.read_token(call.text("page_token", default=""))
        # One more than asked for tells whether there is a next page. A client that names no
        # size wants everything and would not ask again.
        limit = None if call.fields.get("max_results") is None else size + 1
        points = history.series(job.id, key, start, limit)
        more = limit is not None and len(points) > size
        page = points[:size] if more else points
        body: dict[str, Any] = {"metrics": [metric_json(key, one) for one in page]}
        if more:
            body["next_page_token"] = search.page_token(start + size)
        return JSONResponse(body)

    @routes.get("/metrics/get-history-bulk")
    def get_history_of_several(call: the_call) -> JSONResponse:
        names = call.texts("run_id")
        if not names:
            raise InvalidInput("GetMetricHistoryBulk request must specify at least one run_id.")
        if len(names) > _RUNS_LIMIT:
            raise InvalidInput(
                f"GetMetricHistoryBulk request cannot specify more than {_RUNS_LIMIT} run_ids."
                f" Received {len(names)} run_ids."
            )
        key = call.text("metric_key", default="")
        if not key:
            raise InvalidInput("GetMetricHistoryBulk request must specify a metric_key.")
        services = min(call.integer("max_results", _POINTS_A_PAGE), _POINTS_A_PAGE)
        found: list[dict[str, Any]] = []
        for job in [run_of(runs, call.workspace, name) for name in sorted(names)]:
            points = sorted(history.series(job.id, key), key=_by_time)
            found += _told(job, key, points[: services - len(found)])
        return JSONResponse({"metrics": found})

    @routes.get("/metrics/get-history-bulk-interval")
    def get_thinned_history(call: the_call) -> JSONResponse:
        names, key, bounds, size = _read_interval(call)
        jobs = [run_of(runs, call.workspace, name) for name in names]
        found: list[dict[str, Any]] = []
        for job in jobs:
            points = sorted(history.series(job.id, key), key=_by_step)
            found += _told(job, key, _thinned(points, bounds, size))
        return JSONResponse({"metrics": found})

    @routes.post("/experiments/search-datasets")
    def search_datasets(call: the_call) -> JSONResponse:
        asked = call.texts("experiment_ids")
        if not asked:
            raise InvalidInput("SearchDatasets request must specify at least one experiment_id.")
        if len(asked) > _EXPERIMENTS_LIMIT:
            raise InvalidInput(
                f"SearchDatasets request cannot specify more than {_EXPERIMENTS_LIMIT}"
                f" experiment_ids. Received {len(asked)} experiment_ids."
            )
        summaries, told_as = [], told_ids(runs, call)
        for number, name, digest, context in runs.datasets_in(experiment_ids(runs, call)):
            told = {"experiment_id": told_as(number), "name": name, "digest": digest}
            summaries.append(told if context is None else {**told, "context": context})
        return JSONResponse({"dataset_summaries": summaries})

    return routes


def _read_interval(call: Call) -> tuple[list[str], str, tuple[int, int] | None, int]:
    names = call.texts("run_ids")
    if not names:
        raise missing("run_ids")
    if len(names) > _RUNS_LIMIT:
        raise InvalidInput(
            f"GetMetricHistoryBulkInterval request must specify at most {_RUNS_LIMIT} run_ids."
            f" Received {len(names)} run_ids."
        )
    key, size = call.text("metric_key"), call.integer("max_results", _STEPS_LIMIT)
    if not 1 <= size <= _STEPS_LIMIT:
        raise InvalidInput(f"max_results must be between 1 and {_STEPS_LIMIT}.")
    ends = [name for name in ("start_step", "end_step") if call.fields.get(name) is not None]
    if len(ends) == 1:
        raise InvalidInput(
            "If either start step or end step are specified, both must be specified."
        )
    if not ends:
        return names, key, None, size
    first, last = call.integer("start_step"), call.integer("end_step")
    if first > last:
        raise InvalidInput(
            "end_step must be greater than start_step. "
            f"Found start_step={first} and end_step={last}."
        )
    return names, key, (first, last), size


def _thinned(points: Sequence[Point], bounds: tuple[int, int] | None, size: int) -> Sequence[Point]:
    """At most `size` of a run's points within bounds, evenly taken, the last one among them.

    MLflow did so by steps that all runs share until 3.14; since then as here.
    """
    if bounds:
        first, last = bounds
        start = bisect_left(points, first, key=_step)
        points = points[start : bisect_right(points, last, key=_step)]
    if len(points) <= size:
        return points
    taken = [points[place * len(points) // size] for place in range(size)]
    return [*taken[:-1], points[-1]]


def _told(job: Job, key: str, points: Sequence[Point]) -> list[dict[str, Any]]:
    return [{**metric_json(key, one), "run_id": job.name} for one in points]


def _by_time(one: Point) -> tuple[int, int, float]:
    return one.timestamp, one.step, one.value


def _step(one: Point) -> int:
    return one.step


def _by_step(one: Point) -> tuple[int, int, float]:
    return one.step, one.timestamp, one.value
