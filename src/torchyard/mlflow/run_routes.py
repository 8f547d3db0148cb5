"""MLflow's runs and what is logged to them."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.actions import job_key
from torchyard.jobs.history.history_records import Record
from torchyard.jobs.records.types import Job
from torchyard.jobs.records.wakeups import Signals
from torchyard.jobs.requests import local_runs, runs
from torchyard.jobs.requests.run_search import View
from torchyard.jobs.requests.runs import RunRequest
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.mlflow import search, translate
from torchyard.mlflow.calls import (
    Call,
    CallOf,
    CallRoute,
    missing_parameter,
    page_response,
)
from torchyard.mlflow.lookups import (
    client_experiment_id,
    experiment_ids,
    get_experiment,
    get_run,
    read_deleted,
)
from torchyard.models import logged
from torchyard.shared.record_rules import NODE_METRICS, RANK_METRICS
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import TokenKind

_PAGE_LIMIT = 50_000
_MAX_REQUEST_ID_LENGTH = 64

router = APIRouter(prefix="/api/2.0/mlflow", route_class=CallRoute)


@router.post("/runs/log-metric")
@needs(Permission.LOG)
def log_metric(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _log(call, services, lambda call: [translate.read_metric(call.fields)])


@router.post("/runs/log-parameter")
@needs(Permission.LOG)
def log_parameter(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _log(call, services, lambda call: [translate.read_param(call.fields)])


@router.post("/runs/log-batch")
@needs(Permission.LOG)
def log_batch(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _log(call, services, translate.read_batch)


# Azure ML's plug-in calls this where MLflow's client would queue; if it gets an id, it waits.
@router.post("/runs/log-batch-async")
@needs(Permission.LOG)
def log_batch_async(call: CallOf, services: ServicesOf) -> JSONResponse:
    _log(call, services, translate.read_batch)
    return JSONResponse({"batch_tracking_id": ""})


@router.post("/runs/create")
@needs(Permission.JOB)
def create(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = get_experiment(services, call.workspace, call.text("experiment_id", default="0"))
    if experiment.deleted:
        raise InvalidInput(f"The experiment {experiment.id} must be in the 'active' state")
    job = runs.create_run(services, _run_request(call, experiment.id))
    return JSONResponse(_run_json(call, services, job))


@router.get("/runs/get")
@needs(Permission.READ)
def get(call: CallOf, services: ServicesOf) -> JSONResponse:
    return JSONResponse(_run_json(call, services, _run(call, services)))


@router.post("/runs/update")
@needs(Permission.JOB)
def update(call: CallOf, services: ServicesOf) -> JSONResponse:
    job = _run(call, services)
    _refuse_deleted(job)
    name = call.text("run_name", default="") or None
    status = None
    ended_at = None
    # Only the scheduler ends a job's own run, and its program a local run.
    if job.type == "run" and not local_runs.is_local(job) and call.fields.get("status") is not None:
        status = translate.parse_status(call.fields["status"])
        if status.ended:
            ended_at = call.time("end_time") or datetime.now(timezone.utc)
    if name or status:
        job = runs.change_run(
            services,
            call.workspace,
            job.name,
            display_name=name,
            status=status,
            ended_at=ended_at,
            tags={translate.RUN_NAME: name} if name else None,
        )
        _notify(services.signals, job)
    return JSONResponse({"run_info": translate.run_info_json(job, _experiment_id(call, job))})


@router.post("/runs/delete")
@needs(Permission.JOB)
def delete(call: CallOf, services: ServicesOf) -> JSONResponse:
    runs.change_run(services, call.workspace, _run(call, services).name, deleted=True)
    return JSONResponse({})


@router.post("/runs/restore")
@needs(Permission.JOB)
def restore(call: CallOf, services: ServicesOf) -> JSONResponse:
    runs.change_run(services, call.workspace, _run(call, services).name, deleted=False)
    return JSONResponse({})


@router.post("/runs/set-tag")
@needs(Permission.LOG)
def set_tag(call: CallOf, services: ServicesOf) -> JSONResponse:
    run_id = call.text("run_id", "run_uuid")
    tag = translate.read_tag(call.fields)
    job = get_run(services, call.workspace, run_id, call.identity)
    _refuse_deleted(job)
    _change_tags(services, job, {tag.key: tag.value})
    return JSONResponse({})


@router.post("/runs/delete-tag")
@needs(Permission.LOG)
def delete_tag(call: CallOf, services: ServicesOf) -> JSONResponse:
    job, key = _run(call, services), call.text("key")
    _refuse_deleted(job)
    if key not in job.tags:
        raise NotFound(f"No tag with name: {key} in run with id {job.name}")
    _change_tags(services, job, {key: None})
    return JSONResponse({})


@router.post("/runs/log-inputs")
@needs(Permission.LOG)
def log_inputs(call: CallOf, services: ServicesOf) -> JSONResponse:
    run_id = call.text("run_id", "run_uuid")
    if call.fields.get("datasets") is None and call.fields.get("models") is None:
        raise missing_parameter("datasets")
    datasets = translate.read_datasets(call)
    job = get_run(services, call.workspace, run_id, call.identity)
    _refuse_deleted(job)
    runs.add_datasets(services.db, job, datasets)
    logged.record_uses(services.db, call.workspace, translate.read_models(call, job.name, "input"))
    return JSONResponse({})


@router.post("/runs/outputs")
@needs(Permission.LOG)
def log_outputs(call: CallOf, services: ServicesOf) -> JSONResponse:
    job = _run(call, services)
    if job.deleted:
        raise InvalidInput(f"The run {job.name} must be in the 'active' state")
    logged.record_uses(services.db, call.workspace, translate.read_models(call, job.name, "output"))
    return JSONResponse({})


@router.post("/runs/log-model")
@needs(Permission.LOG)
def log_model(call: CallOf, services: ServicesOf) -> JSONResponse:
    job = _run(call, services)
    _refuse_deleted(job)
    try:
        model = json.loads(call.text("model_json"))
    except ValueError as error:
        raise InvalidInput(f"Malformed model info: {error}") from error
    runs.change_run(
        services,
        call.workspace,
        job.name,
        tags=lambda tags: translate.append_to_tag(tags, translate.LOGGED_MODELS, model),
    )
    _notify(services.signals, job)
    return JSONResponse({})


@router.post("/runs/search")
@needs(Permission.READ)
def search_runs(call: CallOf, services: ServicesOf) -> JSONResponse:
    conditions = search.parse_filter(call.text("filter", default=""), search.RUNS)
    orders = search.parse_order_by(call.texts("order_by"), search.RUNS)
    deleted = read_deleted(call, "run_view_type")
    experiments = experiment_ids(services, call)

    def find(offset: int, limit: int) -> Sequence[Job]:
        status_conditions = translate.translate_status_conditions(conditions, search.matches)
        view = View(status_conditions, orders, deleted, offset, limit)
        return runs.find_runs(services.db, experiments, view, translate.IMPLIED_TAGS)

    page, next_page_token = search.find_page(
        call.text("page_token", default=""), call.count("max_results", 1000, _PAGE_LIMIT), find
    )
    job_ids = [job.id for job in page]
    # Those that workers sample would be columns of each table of runs.
    keys = [term.key for term in conditions] + [order.key for order in orders]
    sampled = any(key.startswith((NODE_METRICS, RANK_METRICS)) for key in keys)
    data = services.history.data_of(job_ids, sampled)
    datasets = runs.datasets_of(services.db, job_ids)
    models = logged.of_runs(services.db, call.workspace, [job.name for job in page])
    items = [
        translate.run_json(
            job,
            _experiment_id(call, job),
            data[job.id],
            models.get(job.name, ()),
            datasets.get(job.id, ()),
        )
        for job in page
    ]
    return page_response("runs", items, next_page_token)


def _run_request(call: Call, experiment_id: int) -> RunRequest:
    """The run that a call of `runs/create` asks for."""
    tags = translate.read_tags(call)
    is_script = call.identity.kind is TokenKind.RUN
    script_run = call.identity.subject.rpartition("/")[2] if is_script else ""
    return RunRequest(
        call.workspace,
        experiment_id,
        owner=call.text("user_id", default="") or call.identity.user,
        display_name=call.text("run_name", default="") or tags.get(translate.RUN_NAME, ""),
        started_at=call.time("start_time") or datetime.now(timezone.utc),
        parent=tags.get(translate.PARENT, script_run),
        tags=tags,
        request=call.request_id[:_MAX_REQUEST_ID_LENGTH],
        made_by=call.identity.user,
    )


def _run(call: Call, services: RecordServices) -> Job:
    """The run that a request reads or changes."""
    return get_run(services, call.workspace, call.text("run_id", "run_uuid"), call.identity)


def _log(
    call: Call, services: RecordServices, read: Callable[[Call], Sequence[Record]]
) -> JSONResponse:
    run_id = call.text("run_id", "run_uuid")
    records = read(call)
    job = get_run(services, call.workspace, run_id, call.identity)
    _refuse_deleted(job)
    services.history.append(job.id, records)
    _notify(services.signals, job)
    return JSONResponse({})


def _change_tags(services: RecordServices, job: Job, tags: Mapping[str, str | None]) -> None:
    name = tags.get(translate.RUN_NAME)
    runs.change_run(services, job.workspace, job.name, tags=tags, display_name=name)
    _notify(services.signals, job)


def _notify(signals: Signals, job: Job) -> None:
    """Tell the run's followers that its history, tags or status changed."""
    signals.notify(job_key(job))


def _experiment_id(call: Call, job: Job) -> str:
    return client_experiment_id(call, job.experiment_id, job.experiment_name)


def _run_json(call: Call, services: RecordServices, job: Job) -> dict[str, Any]:
    models = logged.of_runs(services.db, job.workspace, [job.name]).get(job.name, ())
    datasets = runs.datasets_of(services.db, [job.id]).get(job.id, ())
    data = services.history.data_of([job.id])[job.id]
    run = translate.run_json(job, _experiment_id(call, job), data, models, datasets)
    return {"run": run}


def _refuse_deleted(job: Job) -> None:
    if job.deleted:
        raise InvalidInput(
            f"The run {job.name} must be in the 'active' state. Current state is deleted."
        )
