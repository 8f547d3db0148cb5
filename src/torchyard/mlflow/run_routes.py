"""MLflow's runs and what is logged to them."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.files import owners
from torchyard.jobs.history.history import History
from torchyard.jobs.history.history_records import Record
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests.run_search import View
from torchyard.mlflow import search, translate
from torchyard.mlflow.calls import Call, Caller, missing
from torchyard.mlflow.experiment_routes import (
    deleted_in,
    experiment,
    experiment_ids,
    told_id,
)
from torchyard.mlflow.registry import Registry
from torchyard.mlflow.runs import Runs
from torchyard.models import logged
from torchyard.workspaces.access import refuse_foreign
from torchyard.workspaces.types import Identity, TokenKind

_PAGE_LIMIT = 50_000
_REQUEST_LENGTH = 64


def router(
    runs: Runs,
    registry: Registry,
    history: History,
    caller: Caller,
    changed: Callable[[Job], None],
) -> APIRouter:
    """`changed` is told of every run whose history or status a request changed."""
    routes = APIRouter(prefix="/api/2.0/mlflow", route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]

    def the_run(call: Call) -> Job:
        return run_of(runs, call.workspace, call.text("run_id", "run_uuid"), call.identity)

    def log(call: Call, read: Callable[[Call], Sequence[Record]]) -> JSONResponse:
        name = call.text("run_id", "run_uuid")
        records = read(call)
        job = run_of(runs, call.workspace, name, call.identity)
        _refuse_deleted(job)
        history.append(job.id, records)
        changed(job)
        return JSONResponse({})

    def set_tags(call: Call, job: Job, tags: Mapping[str, str | None]) -> None:
        name = tags.get(translate.RUN_NAME)
        runs.change_run(call.workspace, job.name, tags=tags, display_name=name)
        changed(job)

    def place_of(call: Call, job: Job) -> str:
        return told_id(call, job.experiment_id, job.experiment_name)

    def whole(call: Call, job: Job) -> dict[str, Any]:
        models = logged.of_runs(registry.db, job.workspace, [job.name]).get(job.name, ())
        given = runs.datasets_of([job.id]).get(job.id, ())
        data = history.data_of([job.id])[job.id]
        return {"run": translate.run_json(job, place_of(call, job), data, models, given)}

    @routes.post("/runs/log-metric")
    def log_metric(call: the_call) -> JSONResponse:
        return log(call, lambda call: [translate.metric_record(call.fields)])

    @routes.post("/runs/log-parameter")
    def log_parameter(call: the_call) -> JSONResponse:
        return log(call, lambda call: [translate.param_record(call.fields)])

    @routes.post("/runs/log-batch")
    def log_batch(call: the_call) -> JSONResponse:
        return log(call, translate.batch_records)

    # Azure ML's plug-in asks so where MLflow's client would queue, and waits if it gets an id.
    @routes.post("/runs/log-batch-async")
    def log_batch_async(call: the_call) -> JSONResponse:
        log(call, translate.batch_records)
        return JSONResponse({"batch_tracking_id": ""})

    @routes.post("/runs/create")
    def create(call: the_call) -> JSONResponse:
        place = experiment(runs, call.workspace, call.text("experiment_id", default="0"))
        if place.deleted:
            raise InvalidInput(f"The experiment {place.id} must be in the 'active' state")
        tags = translate.tags_in(call)
        started_by = call.identity.subject if call.identity.kind is TokenKind.RUN else ""
        inside = started_by.rpartition("/")[2]
        job = runs.create_run(
            call.workspace,
            experiment_id=place.id,
            owner=call.text("user_id", default="") or call.identity.user,
            display_name=call.text("run_name", default="") or tags.get(translate.RUN_NAME, ""),
            started_at=call.time("start_time") or datetime.now(timezone.utc),
            parent=tags.get(translate.PARENT, inside),
            tags=tags,
            request=call.request_id[:_REQUEST_LENGTH],
            made_by=call.identity.user,
        )
        return JSONResponse(whole(call, job))

    @routes.get("/runs/get")
    def get(call: the_call) -> JSONResponse:
        return JSONResponse(whole(call, the_run(call)))

    @routes.post("/runs/update")
    def update(call: the_call) -> JSONResponse:
        job = the_run(call)
        _refuse_deleted(job)
        name = call.text("run_name", default="") or None
        status = None
        ended_at = None
        # The end of a job's own run is the job's to tell.
        if job.type == "run" and call.fields.get("status") is not None:
            status = translate.status_from(call.fields["status"])
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
        return JSONResponse({"run_info": translate.info_json(job, place_of(call, job))})

    @routes.post("/runs/delete")
    def delete(call: the_call) -> JSONResponse:
        runs.change_run(call.workspace, the_run(call).name, deleted=True)
        return JSONResponse({})

    @routes.post("/runs/restore")
    def restore(call: the_call) -> JSONResponse:
        runs.change_run(call.workspace, the_run(call).name, deleted=False)
        return JSONResponse({})

    @routes.post("/runs/set-tag")
    def set_tag(call: the_call) -> JSONResponse:
        name = call.text("run_id", "run_uuid")
        tag = translate.tag_record(call.fields)
        job = run_of(runs, call.workspace, name, call.identity)
        _refuse_deleted(job)
        set_tags(call, job, {tag.key: tag.value})
        return JSONResponse({})

    @routes.post("/runs/delete-tag")
    def delete_tag(call: the_call) -> JSONResponse:
        job, key = the_run(call), call.text("key")
        _refuse_deleted(job)
        if key not in job.tags:
            raise NotFound(f"No tag with name: {key} in run with id {job.name}")
        set_tags(call, job, {key: None})
        return JSONResponse({})

    @routes.post("/runs/log-inputs")
    def log_inputs(call: the_call) -> JSONResponse:
        name = call.text("run_id", "run_uuid")
        if call.fields.get("datasets") is None and call.fields.get("models") is None:
            raise missing("datasets")
        given = translate.dataset_records(call)
        job = run_of(runs, call.workspace, name, call.identity)
        _refuse_deleted(job)
        runs.add_datasets(job, given)
        logged.record_uses(
            registry.db, call.workspace, translate.run_models(call, job.name, "input")
        )
        return JSONResponse({})

    @routes.post("/runs/log-model")
    def log_model(call: the_call) -> JSONResponse:
        job = the_run(call)
        _refuse_deleted(job)
        try:
            made = json.loads(call.text("model_json"))
        except ValueError as error:
            raise InvalidInput(f"Malformed model info: {error}") from error
        runs.change_run(
            call.workspace,
            job.name,
            tags=lambda old: translate.appended(old, translate.LOGGED_MODELS, made),
        )
        changed(job)
        return JSONResponse({})

    @routes.post("/runs/search")
    def search_runs(call: the_call) -> JSONResponse:
        conditions = search.read_filter(call.text("filter", default=""), search.RUNS)
        orders = search.read_orders(call.texts("order_by"), search.RUNS)
        deleted = deleted_in(call, "run_view_type")
        places = experiment_ids(runs, call)
        page, token = search.paged(
            call.text("page_token", default=""),
            call.size("max_results", 1000, _PAGE_LIMIT),
            lambda offset, limit: runs.find_runs(
                places,
                View(
                    translate.with_our_statuses(conditions, search.holds),
                    orders,
                    deleted,
                    offset,
                    limit,
                ),
                translate.IMPLIED_TAGS,
            ),
        )
        ids = [job.id for job in page]
        shown, given = history.data_of(ids), runs.datasets_of(ids)
        models = logged.of_runs(registry.db, call.workspace, [job.name for job in page])
        body: dict[str, Any] = {
            "runs": [
                translate.run_json(
                    job,
                    place_of(call, job),
                    shown[job.id],
                    models.get(job.name, ()),
                    given.get(job.id, ()),
                )
                for job in page
            ]
        }
        if token:
            body["next_page_token"] = token
        return JSONResponse(body)

    return routes


def run_of(runs: Runs, workspace: str, name: str, identity: Identity | None = None) -> Job:
    """
    Args:
        identity: who wants to change it; None for those who look.

    Raises:
        NotFound: in MLflow's words.
        Forbidden: it is another's, and `identity` may change its own only.
    """
    try:
        found = runs.run(workspace, name)
    except NotFound as error:
        raise NotFound(f"Run with id={name[:100]} not found") from error
    if identity is not None and identity.own_only:
        refuse_foreign(identity, owners.of(found), f"run `{found.name}`")
    return found


def _refuse_deleted(job: Job) -> None:
    if job.deleted:
        raise InvalidInput(
            f"The run {job.name} must be in the 'active' state. Current state is deleted."
        )
