"""MLflow's runs and what is logged to them."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.history import History, Record, RunData
from torchyard.jobs.types import Job
from torchyard.mlflow import search, translate
from torchyard.mlflow.calls import Call
from torchyard.mlflow.errors import MlflowRoute
from torchyard.mlflow.experiment_routes import experiment
from torchyard.mlflow.runs import Runs
from torchyard.workspaces.types import TokenKind

_PAGE_LIMIT = 50_000
_POINTS_A_PAGE = 25_000
_NOTHING = RunData()


def router(
    runs: Runs,
    history: History,
    caller: Callable[..., Any],
    changed: Callable[[Job], None],
) -> APIRouter:
    """`changed` is told of every run whose history or status a request changed."""
    routes = APIRouter(prefix="/api/2.0/mlflow", route_class=MlflowRoute)
    the_call = Annotated[Call, Depends(caller)]

    def the_run(call: Call) -> Job:
        return run_of(runs, call.workspace, call.text("run_id", "run_uuid"))

    def log(call: Call, records: Sequence[Record]) -> JSONResponse:
        job = the_run(call)
        _refuse_deleted(job)
        history.append(job.id, records)
        changed(job)
        return JSONResponse({})

    def set_tags(call: Call, job: Job, tags: Mapping[str, str | None]) -> None:
        name = tags.get(translate.RUN_NAME)
        runs.change_run(call.workspace, job.name, tags=tags, display_name=name)
        changed(job)

    def whole(job: Job) -> dict[str, Any]:
        return {"run": translate.run_json(job, history.data_of([job.id])[job.id])}

    @routes.post("/runs/create")
    def create(call: the_call) -> JSONResponse:
        place = experiment(runs, call.workspace, call.text("experiment_id", default="0"))
        if place.deleted:
            raise InvalidInput(f"The experiment {place.id} must be in the 'active' state")
        tags = translate.tags_in(call)
        inside = call.identity.subject if call.identity.kind is TokenKind.RUN else ""
        job = runs.create_run(
            call.workspace,
            experiment_id=place.id,
            owner=call.text("user_id", default="") or call.identity.user,
            display_name=call.text("run_name", default="") or tags.get(translate.RUN_NAME, ""),
            started_at=call.time("start_time") or datetime.now(timezone.utc),
            parent=tags.get(translate.PARENT, inside),
            tags=tags,
        )
        return JSONResponse(whole(job))

    @routes.get("/runs/get")
    def get(call: the_call) -> JSONResponse:
        return JSONResponse(whole(the_run(call)))

    @routes.post("/runs/update")
    def update(call: the_call) -> JSONResponse:
        job = the_run(call)
        name = call.text("run_name", default="") or None
        status = None
        ended_at = None
        # The end of a job's own run is the job's to tell.
        if job.type == "run" and call.fields.get("status") is not None:
            status = translate.status_from(call.text("status"))
            if status.ended:
                ended_at = call.time("end_time") or datetime.now(timezone.utc)
        if name or status:
            job = runs.change_run(
                call.workspace,
                job.name,
                display_name=name,
                status=status,
                ended_at=ended_at,
                tags={translate.RUN_NAME: name} if name else None,
            )
            changed(job)
        return JSONResponse({"run_info": translate.info_json(job)})

    @routes.post("/runs/delete")
    def delete(call: the_call) -> JSONResponse:
        runs.change_run(call.workspace, the_run(call).name, deleted=True)
        return JSONResponse({})

    @routes.post("/runs/restore")
    def restore(call: the_call) -> JSONResponse:
        runs.change_run(call.workspace, the_run(call).name, deleted=False)
        return JSONResponse({})

    @routes.post("/runs/log-metric")
    def log_metric(call: the_call) -> JSONResponse:
        return log(call, [translate.metric_record(call.fields)])

    @routes.post("/runs/log-parameter")
    def log_parameter(call: the_call) -> JSONResponse:
        return log(call, [translate.param_record(call.fields)])

    @routes.post("/runs/log-batch")
    def log_batch(call: the_call) -> JSONResponse:
        return log(call, translate.batch_records(call))

    @routes.post("/runs/set-tag")
    def set_tag(call: the_call) -> JSONResponse:
        job = the_run(call)
        tag = translate.tag_record(call.fields)
        set_tags(call, job, {tag.key: tag.value})
        return JSONResponse({})

    @routes.post("/runs/delete-tag")
    def delete_tag(call: the_call) -> JSONResponse:
        job, key = the_run(call), call.text("key")
        if key not in job.tags:
            raise NotFound(f"No tag with name: {key} in run with id {job.name}")
        set_tags(call, job, {key: None})
        return JSONResponse({})

    @routes.post("/runs/log-inputs")
    def log_inputs(call: the_call) -> JSONResponse:
        job = the_run(call)
        known = json.loads(job.tags.get(translate.DATASETS, "[]"))
        added = [item for item in call.objects("datasets") if item not in known]
        set_tags(call, job, {translate.DATASETS: json.dumps(known + added)})
        return JSONResponse({})

    @routes.post("/runs/log-model")
    def log_model(call: the_call) -> JSONResponse:
        job = the_run(call)
        try:
            models = json.loads(job.tags.get(translate.LOGGED_MODELS, "[]"))
            models.append(json.loads(call.text("model_json")))
        except ValueError as error:
            raise InvalidInput(f"Malformed model info: {error}") from error
        set_tags(call, job, {translate.LOGGED_MODELS: json.dumps(models)})
        return JSONResponse({})

    @routes.post("/runs/search")
    def search_runs(call: the_call) -> JSONResponse:
        conditions = search.read_filter(call.text("filter", default=""), search.RUNS)
        orders = search.read_orders(call.texts("order_by"), search.RUNS)
        places = [experiment(runs, call.workspace, one).id for one in call.texts("experiment_ids")]
        view = call.text("run_view_type", default="ACTIVE_ONLY")
        seen = [
            job
            for job in runs.runs(call.workspace, places)
            if view == "ALL" or job.deleted == (view == "DELETED_ONLY")
        ]
        # Newest first among those that the orders leave equal, as MLflow does.
        seen.sort(key=lambda job: (job.started_at or job.created_at, job.name), reverse=True)
        asked = {one.kind for one in conditions} | {one.kind for one in orders}
        data = history.data_of([job.id for job in seen]) if asked & {"metric", "param"} else {}

        def lookup(job: Job, kind: str, key: str) -> Any:
            return _value(job, data.get(job.id, _NOTHING), kind, key)

        found = search.select(seen, conditions, lookup)
        search.arrange(found, orders, lookup)
        size = call.size("max_results", 1000, _PAGE_LIMIT)
        page, token = search.page(found, call.text("page_token", default=""), size)
        shown = history.data_of([job.id for job in page])
        body: dict[str, Any] = {"runs": [translate.run_json(job, shown[job.id]) for job in page]}
        if token:
            body["next_page_token"] = token
        return JSONResponse(body)

    @routes.get("/metrics/get-history")
    def get_history(call: the_call) -> JSONResponse:
        job, key = the_run(call), call.text("metric_key")
        size = call.size("max_results", _POINTS_A_PAGE, _PAGE_LIMIT)
        start = search.read_token(call.text("page_token", default=""))
        # One more than asked for tells whether there is a next page. A client that names no
        # size wants everything and would not ask again.
        limit = None if call.fields.get("max_results") is None else size + 1
        points = history.series(job.id, key, start, limit)
        more = limit is not None and len(points) > size
        page = points[:size] if more else points
        body: dict[str, Any] = {"metrics": [translate.metric_json(key, one) for one in page]}
        if more:
            body["next_page_token"] = search.page_token(start + size)
        return JSONResponse(body)

    return routes


def run_of(runs: Runs, workspace: str, name: str) -> Job:
    """
    Raises:
        NotFound: in MLflow's words.
    """
    try:
        return runs.run(workspace, name)
    except NotFound as error:
        raise NotFound(f"Run with id={name[:100]} not found") from error


def _refuse_deleted(job: Job) -> None:
    if job.deleted:
        raise InvalidInput(f"The run {job.name} must be in the 'active' state")


def _value(job: Job, data: RunData, kind: str, key: str) -> Any:
    if kind == "metric":
        return next((one.value for one in data.metrics if one.key == key), None)
    if kind == "param":
        return data.params.get(key)
    if kind == "tag":
        return translate.tags_of(job).get(key)
    return translate.info_json(job).get(key)
