"""MLflow's model versions."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.batch_endpoints.actions import model_uses
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.mlflow import search, version_sources
from torchyard.mlflow.calls import Call, CallOf, CallRoute, page_response
from torchyard.mlflow.model_json import (
    MODEL_VERSIONS_TAG,
    STORAGE_LOCATION,
    get_registered,
    get_version,
    load_version_json,
    model_tags,
    version_aliases,
    version_json,
    version_uri,
)
from torchyard.mlflow.registry_routes import parse_stage, without_prompt_conditions
from torchyard.mlflow.translate import append_to_tag, read_tag, to_milliseconds
from torchyard.models import actions, documents, logged, registry
from torchyard.models.types import LoggedModel, Model
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_PAGE_LIMIT = 200_000
_ACTIVE_STAGES = ("Staging", "Production")
_FILTERS = search.Language(
    frozenset({"name", "run_id", "source_path"}),
    frozenset({"version_number"}),
    frozenset({"tag", "attribute"}),
)
_ORDERS = search.Language(
    frozenset({"name"}),
    frozenset({"version_number", "creation_timestamp", "last_updated_timestamp"}),
    frozenset({"attribute"}),
)

router = APIRouter(prefix="/api/2.0/mlflow/model-versions", route_class=CallRoute)


@router.post("/create")
@needs(Permission.WRITE)
def create(call: CallOf, services: ServicesOf) -> JSONResponse:
    name, uri = call.text("name"), call.text("source")
    documents.check_name(name)
    tags = model_tags(call)
    get_registered(services.db, call.workspace, name)
    logged_model = _logged_model(call, services.db, uri)
    run = call.text("run_id", default="") or (logged_model.run if logged_model else "")
    with version_sources.open_source(services, call.workspace, uri) as source:
        paths = [path for path, _ in source.files]
        request = documents.ModelRequest(
            name=name,
            path=uri,
            type="custom_model" if paths and "MLmodel" not in paths else "mlflow_model",
            description=call.text("description", default=""),
            tags=tags,
            properties={STORAGE_LOCATION: source.uri} if source.uri else {},
            run_link=call.text("run_link", default=""),
            model_id=logged_model.id if logged_model else "",
            job=run or source.job,
        )
        model = actions.keep(
            services.db,
            services.clock,
            services.datastores,
            call.workspace,
            request,
            source,
            call.identity.user,
        )
    if logged_model is not None:
        _add_version_tag(services, logged_model, model)
    return _version_response(services.db, model)


@router.get("/get")
@needs(Permission.READ)
def get(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _version_response(services.db, _version(call, services.db))


@router.patch("/update")
@needs(Permission.WRITE)
def update(call: CallOf, services: ServicesOf) -> JSONResponse:
    description = call.text("description", default="")
    return _version_response(services.db, _change(call, services, description=description))


@router.delete("/delete")
@needs(Permission.WRITE)
def delete(call: CallOf, services: ServicesOf) -> JSONResponse:
    model = _version(call, services.db)
    model_uses.refuse_deployed(services.db, call.workspace, model.name, str(model.version))
    actions.delete(
        services.db,
        services.clock,
        services.datastores,
        call.workspace,
        model.name,
        model.version,
        user=call.identity.user,
    )
    return JSONResponse({})


@router.post("/transition-stage")
@needs(Permission.WRITE)
def transition_stage(call: CallOf, services: ServicesOf) -> JSONResponse:
    model, stage = _version(call, services.db), parse_stage(call.text("stage"))
    archive = call.fields.get("archive_existing_versions") in (True, "true")
    if archive and stage not in _ACTIVE_STAGES:
        raise InvalidInput(
            "Model version transition cannot archive existing model versions because "
            f"'{stage}' is not an Active stage. Valid stages are {list(_ACTIVE_STAGES)}"
        )
    moved_model = registry.move(
        services.db,
        services.clock,
        call.workspace,
        model.name,
        model.version,
        stage,
        archive,
        user=call.identity.user,
    )
    return _version_response(services.db, moved_model)


@router.get("/search")
@needs(Permission.READ)
def search_versions(call: CallOf, services: ServicesOf) -> JSONResponse:
    conditions = search.parse_filter(call.text("filter", default=""), _FILTERS)
    order_by = call.texts("order_by") or ["last_updated_timestamp DESC"]
    orders = search.parse_order_by(order_by, _ORDERS)
    versions = sorted(
        registry.all_versions(services.db, call.workspace),
        key=lambda model: (model.name, -model.version),
    )
    models = search.filter_items(versions, without_prompt_conditions(conditions), _attribute)
    search.sort_items(models, orders, _attribute)
    size = call.count("max_results", _PAGE_LIMIT, _PAGE_LIMIT)
    page, next_page_token = search.slice_page(models, call.text("page_token", default=""), size)
    registered = {model.name: model for model in registry.list_in(services.db, call.workspace)}
    items = [
        version_json(model, version_aliases(registered[model.name], model.version))
        for model in page
        if model.name in registered
    ]
    return page_response("model_versions", items, next_page_token)


@router.get("/get-download-uri")
@needs(Permission.READ)
def get_download_uri(call: CallOf, services: ServicesOf) -> JSONResponse:
    return JSONResponse({"artifact_uri": version_uri(_version(call, services.db))})


@router.post("/set-tag")
@needs(Permission.WRITE)
def set_tag(call: CallOf, services: ServicesOf) -> JSONResponse:
    tag = read_tag(call.fields)
    _change(call, services, tags={tag.key: tag.value})
    return JSONResponse({})


@router.delete("/delete-tag")
@needs(Permission.WRITE)
def delete_tag(call: CallOf, services: ServicesOf) -> JSONResponse:
    _change(call, services, tags={call.text("key"): None})
    return JSONResponse({})


def _version(call: Call, db: Database) -> Model:
    name = call.text("name")
    documents.check_name(name)
    return get_version(db, call.workspace, name, call.text("version"))


def _change(call: Call, services: RecordServices, **changes: Any) -> Model:
    model = _version(call, services.db)
    return actions.update(
        services.db,
        services.clock,
        call.workspace,
        model.name,
        str(model.version),
        changes,
        user=call.identity.user,
    )


def _version_response(db: Database, model: Model) -> JSONResponse:
    return JSONResponse({"model_version": load_version_json(db, model)})


def _logged_model(call: Call, db: Database, uri: str) -> LoggedModel | None:
    """The logged model that is registered as a version, if it is one."""
    model_id = version_sources.logged_model_id(uri) or call.text("model_id", default="")
    return logged.get(db, call.workspace, model_id) if model_id else None


def _add_version_tag(services: RecordServices, logged_model: LoggedModel, model: Model) -> None:
    """List the version in the logged model's tag, as MLflow does."""
    version = {"name": model.name, "version": model.version}
    try:
        logged.change(
            services.db,
            services.clock,
            logged_model.workspace,
            logged_model.id,
            tags=lambda tags: append_to_tag(tags, MODEL_VERSIONS_TAG, version),
        )
    except NotFound:
        pass  # deleted in the meantime; the version has its own copy


def _attribute(model: Model, kind: str, key: str) -> Any:
    if kind == "tag":
        return model.tags.get(key)
    if key == "creation_timestamp":
        return to_milliseconds(model.created_at)
    if key == "last_updated_timestamp":
        return to_milliseconds(model.updated_at or model.created_at)
    texts = {"name": model.name, "run_id": model.job, "source_path": model.source}
    return model.version if key == "version_number" else texts[key]
