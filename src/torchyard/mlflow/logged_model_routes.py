"""MLflow 3's logged models."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import FileResponse, JSONResponse

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.records import names
from torchyard.mlflow import logged_search, search
from torchyard.mlflow.calls import Call, Caller
from torchyard.mlflow.experiment_routes import experiment, experiment_ids, told_ids
from torchyard.mlflow.places import LoggedPlace, clean, entries
from torchyard.mlflow.registry import Registry, logged_json, logged_root, logged_status
from torchyard.mlflow.run_routes import run_of
from torchyard.mlflow.runs import Runs
from torchyard.mlflow.translate import param_record, run_models, tags_in
from torchyard.models import logged
from torchyard.models.types import LoggedModel

_PREFIX = "/api/2.0/mlflow/logged-models"
# Where MLflow's web page asks, and its tests.
_PAGE_PREFIX = "/ajax-api/2.0/mlflow/logged-models"
_PAGE_LIMIT = 1000


def router(services: Registry, runs: Runs, caller: Caller) -> APIRouter:
    routes = APIRouter(route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]

    def answer(call: Call, models: Sequence[LoggedModel]) -> list[dict[str, Any]]:
        metrics = logged.metrics_of(services.db, call.workspace, [model.id for model in models])
        told = told_ids(runs, call)
        return [logged_json(it, told(it.experiment_id), metrics[it.id]) for it in models]

    def one(call: Call, model: LoggedModel) -> JSONResponse:
        return JSONResponse({"model": answer(call, [model])[0]})

    def change(call: Call, model_id: str, **changes: Any) -> LoggedModel:
        return logged.change(services.db, services.clock, call.workspace, model_id, **changes)

    @routes.post(_PREFIX)
    def create(call: the_call) -> JSONResponse:
        place = experiment(runs, call.workspace, call.text("experiment_id"))
        if place.deleted:
            raise InvalidInput(f"The experiment {place.id} must be in the 'active' state")
        run = call.text("source_run_id", default="")
        made = logged.create(
            services.db,
            services.clock,
            services.datastores,
            call.workspace,
            place.id,
            call.text("name", default="") or names.generate(),
            run=run,
            beside_run=bool(run) and _is_run(runs, call.workspace, run),
            type=call.text("model_type", default=""),
            tags=tags_in(call),
            params=_params(call),
        )
        return one(call, made)

    @routes.post(_PREFIX + "/search")
    def find(call: the_call) -> JSONResponse:
        wanted = call.texts("experiment_ids")
        if not wanted:
            raise InvalidInput("Missing value for required parameter 'experiment_ids'")
        places = experiment_ids(runs, call)
        asked = logged_search.read(call)
        models = logged.list_in(services.db, call.workspace, places)
        metrics = logged.metrics_of(services.db, call.workspace, [model.id for model in models])
        found = asked.of(models, metrics)
        size = call.size("max_results", 100, _PAGE_LIMIT)
        page, token = search.page(found, call.text("page_token", default=""), size)
        told = told_ids(runs, call)
        shown = [logged_json(it, told(it.experiment_id), metrics[it.id]) for it in page]
        body: dict[str, Any] = {"models": shown}
        if token:
            body["next_page_token"] = token
        return JSONResponse(body)

    @routes.get(_PREFIX + "/{model_id}")
    def get(call: the_call, model_id: str) -> JSONResponse:
        deleted = call.text("allow_deleted", default="").lower() == "true"
        return one(call, logged.get(services.db, call.workspace, model_id, deleted))

    @routes.patch(_PREFIX + "/{model_id}")
    def finalize(call: the_call, model_id: str) -> JSONResponse:
        status = logged_status(call.text("status"))
        return one(call, change(call, model_id, status=status))

    @routes.delete(_PREFIX + "/{model_id}")
    def delete(call: the_call, model_id: str) -> JSONResponse:
        change(call, model_id, deleted=True)
        return JSONResponse({})

    @routes.patch(_PREFIX + "/{model_id}/tags")
    def set_tags(call: the_call, model_id: str) -> JSONResponse:
        change(call, model_id, tags=tags_in(call))
        return JSONResponse({})

    @routes.delete(_PREFIX + "/{model_id}/tags/{key:path}")
    def delete_tag(call: the_call, model_id: str, key: str) -> JSONResponse:
        if key not in logged.get(services.db, call.workspace, model_id, deleted=True).tags:
            raise NotFound(f"No tag with key {key!r} found for model with ID {model_id!r}.")
        change(call, model_id, tags={key: None})
        return JSONResponse({})

    @routes.post(_PREFIX + "/{model_id}/params")
    def log_params(call: the_call, model_id: str) -> JSONResponse:
        change(call, model_id, params=_params(call))
        return JSONResponse({})

    def list_files(call: Call, model_id: str) -> JSONResponse:
        model = logged.get(services.db, call.workspace, model_id)
        folder = clean(call.text("artifact_directory_path", default=""))
        found = entries(LoggedPlace(services, model), folder)
        above = f"{folder}/" if folder else ""
        files = [{**entry, "path": above + entry["path"]} for entry in found]
        return JSONResponse({"root_uri": logged_root(model), "files": files})

    def download(call: Call, model_id: str) -> FileResponse:
        model = logged.get(services.db, call.workspace, model_id)
        found = logged.file(services.datastores, model, call.text("artifact_file_path"))
        return FileResponse(found, media_type="application/octet-stream")

    for prefix in (_PREFIX, _PAGE_PREFIX):

        @routes.get(prefix + "/{model_id}/artifacts/directories")
        def list_artifacts(call: the_call, model_id: str) -> JSONResponse:
            return list_files(call, model_id)

        @routes.get(prefix + "/{model_id}/artifacts/files")
        def get_artifact(call: the_call, model_id: str) -> FileResponse:
            return download(call, model_id)

    @routes.post("/api/2.0/mlflow/runs/outputs")
    def log_outputs(call: the_call) -> JSONResponse:
        job = run_of(runs, call.workspace, call.text("run_id", "run_uuid"), call.identity)
        if job.deleted:
            raise InvalidInput(f"The run {job.name} must be in the 'active' state")
        logged.record_uses(services.db, call.workspace, run_models(call, job.name, "output"))
        return JSONResponse({})

    return routes


def _params(call: Call) -> dict[str, str]:
    records = [param_record(item) for item in call.objects("params")]
    return {record.key: record.value for record in records}


def _is_run(runs: Runs, workspace: str, name: str) -> bool:
    """MLflow lets a model name a run that does not exist."""
    try:
        runs.run(workspace, name)
    except NotFound:
        return False
    return True
