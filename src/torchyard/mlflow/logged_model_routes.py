"""MLflow 3's logged models."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions as jobs
from torchyard.jobs.records import names
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.mlflow import logged_search, search
from torchyard.mlflow.artifact_repositories import (
    LoggedModelArtifacts,
    list_folder_from_root,
    normalize,
)
from torchyard.mlflow.calls import Call, CallOf, CallRoute, page_response
from torchyard.mlflow.lookups import client_experiment_ids, experiment_ids, get_experiment
from torchyard.mlflow.model_json import (
    logged_model_json,
    logged_model_uri,
    parse_logged_model_status,
)
from torchyard.mlflow.translate import read_param, read_tags
from torchyard.models import logged
from torchyard.models.types import LoggedModel
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_PREFIX = "/api/2.0/mlflow/logged-models"
# The paths that MLflow's web page and its tests use.
_PAGE_PREFIX = "/ajax-api/2.0/mlflow/logged-models"
_PAGE_LIMIT = 1000

router = APIRouter(route_class=CallRoute)


@router.post(_PREFIX)
@needs(Permission.LOG)
def create(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = get_experiment(services, call.workspace, call.text("experiment_id"))
    if experiment.deleted:
        raise InvalidInput(f"The experiment {experiment.id} must be in the 'active' state")
    run = call.text("source_run_id", default="")
    model = logged.create(
        services.db,
        services.clock,
        services.datastores,
        call.workspace,
        experiment.id,
        call.text("name", default="") or names.generate(),
        run=run,
        beside_run=bool(run) and _run_exists(services, call.workspace, run),
        type=call.text("model_type", default=""),
        tags=read_tags(call),
        params=_params(call),
    )
    return _model_response(call, services.db, model)


@router.post(_PREFIX + "/search")
@needs(Permission.READ)
def search_models(call: CallOf, services: ServicesOf) -> JSONResponse:
    if not call.texts("experiment_ids"):
        raise InvalidInput("Missing value for required parameter 'experiment_ids'")
    experiments = experiment_ids(services, call)
    query = logged_search.parse_search(call)
    candidates = logged.list_in(services.db, call.workspace, experiments)
    model_ids = [model.id for model in candidates]
    metrics = logged.metrics_of(services.db, call.workspace, model_ids)
    models = query.run(candidates, metrics)
    size = call.count("max_results", 100, _PAGE_LIMIT)
    page, next_page_token = search.slice_page(models, call.text("page_token", default=""), size)
    items = _to_json(call, services.db, page, metrics)
    return page_response("models", items, next_page_token)


@router.get(_PREFIX + "/{model_id}")
@needs(Permission.READ)
def get(call: CallOf, services: ServicesOf, model_id: str) -> JSONResponse:
    deleted = call.text("allow_deleted", default="").lower() == "true"
    model = logged.get(services.db, call.workspace, model_id, deleted)
    return _model_response(call, services.db, model)


@router.patch(_PREFIX + "/{model_id}")
@needs(Permission.LOG)
def finalize(call: CallOf, services: ServicesOf, model_id: str) -> JSONResponse:
    status = parse_logged_model_status(call.text("status"))
    return _model_response(call, services.db, _change(call, services, model_id, status=status))


@router.delete(_PREFIX + "/{model_id}")
@needs(Permission.WRITE)
def delete(call: CallOf, services: ServicesOf, model_id: str) -> JSONResponse:
    _change(call, services, model_id, deleted=True)
    return JSONResponse({})


@router.patch(_PREFIX + "/{model_id}/tags")
@needs(Permission.LOG)
def set_tags(call: CallOf, services: ServicesOf, model_id: str) -> JSONResponse:
    _change(call, services, model_id, tags=read_tags(call))
    return JSONResponse({})


@router.delete(_PREFIX + "/{model_id}/tags/{key:path}")
@needs(Permission.LOG)
def delete_tag(call: CallOf, services: ServicesOf, model_id: str, key: str) -> JSONResponse:
    if key not in logged.get(services.db, call.workspace, model_id, deleted=True).tags:
        raise NotFound(f"No tag with key {key!r} found for model with ID {model_id!r}.")
    _change(call, services, model_id, tags={key: None})
    return JSONResponse({})


@router.post(_PREFIX + "/{model_id}/params")
@needs(Permission.LOG)
def log_params(call: CallOf, services: ServicesOf, model_id: str) -> JSONResponse:
    _change(call, services, model_id, params=_params(call))
    return JSONResponse({})


@router.get(_PAGE_PREFIX + "/{model_id}/artifacts/directories")
@router.get(_PREFIX + "/{model_id}/artifacts/directories")
@needs(Permission.READ)
def list_files(call: CallOf, services: ServicesOf, model_id: str) -> JSONResponse:
    model = logged.get(services.db, call.workspace, model_id)
    folder = normalize(call.text("artifact_directory_path", default=""))
    files = list_folder_from_root(LoggedModelArtifacts(services, model), folder)
    return JSONResponse({"root_uri": logged_model_uri(model), "files": files})


@router.get(_PAGE_PREFIX + "/{model_id}/artifacts/files")
@router.get(_PREFIX + "/{model_id}/artifacts/files")
@needs(Permission.READ)
def download(call: CallOf, services: ServicesOf, model_id: str) -> OpenFileResponse:
    model = logged.get(services.db, call.workspace, model_id)
    file = logged.file(services.datastores, model, call.text("artifact_file_path"))
    return OpenFileResponse(file, media_type="application/octet-stream")


def _to_json(
    call: Call, db: Database, models: Sequence[LoggedModel], metrics: logged_search.Metrics
) -> list[dict[str, Any]]:
    client_id = client_experiment_ids(db, call)
    return [
        logged_model_json(model, client_id(model.experiment_id), metrics[model.id])
        for model in models
    ]


def _model_response(call: Call, db: Database, model: LoggedModel) -> JSONResponse:
    metrics = logged.metrics_of(db, call.workspace, [model.id])
    return JSONResponse({"model": _to_json(call, db, [model], metrics)[0]})


def _change(call: Call, services: RecordServices, model_id: str, **changes: Any) -> LoggedModel:
    return logged.change(services.db, services.clock, call.workspace, model_id, **changes)


def _params(call: Call) -> dict[str, str]:
    records = [read_param(item) for item in call.objects("params")]
    return {record.key: record.value for record in records}


def _run_exists(services: RecordServices, workspace: str, name: str) -> bool:
    """MLflow lets a model name a run that does not exist."""
    try:
        jobs.get(services, workspace, name)
    except NotFound:
        return False
    return True
