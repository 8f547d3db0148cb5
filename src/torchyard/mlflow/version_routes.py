"""MLflow's model versions."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import InvalidInput, NotFound
from torchyard.mlflow import model_sources, search
from torchyard.mlflow.calls import Call, Caller
from torchyard.mlflow.registry import (
    ELSEWHERE,
    VERSIONS_OF,
    Registry,
    aliases_of,
    tags_of_model,
    version_json,
    version_root,
)
from torchyard.mlflow.registry_routes import stage_named, without_prompts
from torchyard.mlflow.translate import appended, milliseconds, tag_record
from torchyard.models import actions, documents, logged, registry
from torchyard.models.types import LoggedModel, Model

_PAGE_LIMIT = 200_000
_ACTIVE_STAGES = ("Staging", "Production")
_VERSIONS = search.Language(
    frozenset({"name", "run_id", "source_path"}),
    frozenset({"version_number"}),
    frozenset({"tag", "attribute"}),
)
_ORDERS = search.Language(
    frozenset({"name"}),
    frozenset({"version_number", "creation_timestamp", "last_updated_timestamp"}),
    frozenset({"attribute"}),
)


def router(services: Registry, caller: Caller) -> APIRouter:
    routes = APIRouter(prefix="/api/2.0/mlflow/model-versions", route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]

    def the_version(call: Call) -> Model:
        name = call.text("name")
        documents.check_name(name)
        return services.version(call.workspace, name, call.text("version"))

    def change(call: Call, **changes: Any) -> Model:
        found = the_version(call)
        version = str(found.version)
        return actions.update(
            services.db, services.clock, call.workspace, found.name, version, changes
        )

    def answer(model: Model) -> JSONResponse:
        return JSONResponse({"model_version": services.shown(model)})

    @routes.post("/create")
    def create(call: the_call) -> JSONResponse:
        name, uri = call.text("name"), call.text("source")
        documents.check_name(name)
        tags = tags_of_model(call)
        services.registered(call.workspace, name)
        origin = _origin(services, call, uri)
        run = call.text("run_id", default="") or (origin.run if origin else "")
        with model_sources.find(services, call.workspace, uri) as source:
            paths = [path for path, _ in source.files]
            asked = documents.Request(
                name=name,
                path=uri,
                type="custom_model" if paths and "MLmodel" not in paths else "mlflow_model",
                description=call.text("description", default=""),
                tags=tags,
                properties={ELSEWHERE: source.uri} if source.uri else {},
                run_link=call.text("run_link", default=""),
                model_id=origin.id if origin else "",
                job=run or source.job,
            )
            made = actions.keep(
                services.db,
                services.clock,
                services.datastores,
                call.workspace,
                asked,
                source,
                call.identity.user,
            )
        if origin is not None:
            _note_version(services, origin, made)
        return answer(made)

    @routes.get("/get")
    def get(call: the_call) -> JSONResponse:
        return answer(the_version(call))

    @routes.patch("/update")
    def update(call: the_call) -> JSONResponse:
        return answer(change(call, description=call.text("description", default="")))

    @routes.delete("/delete")
    def delete(call: the_call) -> JSONResponse:
        found = the_version(call)
        actions.delete(
            services.db,
            services.clock,
            services.datastores,
            call.workspace,
            found.name,
            found.version,
        )
        return JSONResponse({})

    @routes.post("/transition-stage")
    def transition(call: the_call) -> JSONResponse:
        found, stage = the_version(call), stage_named(call.text("stage"))
        archive = call.fields.get("archive_existing_versions") in (True, "true")
        if archive and stage not in _ACTIVE_STAGES:
            raise InvalidInput(
                "Model version transition cannot archive existing model versions because "
                f"'{stage}' is not an Active stage. Valid stages are {list(_ACTIVE_STAGES)}"
            )
        moved = registry.move(
            services.db, services.clock, call.workspace, found.name, found.version, stage, archive
        )
        return answer(moved)

    @routes.get("/search")
    def find(call: the_call) -> JSONResponse:
        conditions = search.read_filter(call.text("filter", default=""), _VERSIONS)
        asked = call.texts("order_by") or ["last_updated_timestamp DESC"]
        orders = search.read_orders(asked, _ORDERS)
        known = sorted(
            registry.all_versions(services.db, call.workspace),
            key=lambda model: (model.name, -model.version),
        )
        found = search.select(known, without_prompts(conditions), _value)
        search.arrange(found, orders, _value)
        size = call.size("max_results", _PAGE_LIMIT, _PAGE_LIMIT)
        page, token = search.page(found, call.text("page_token", default=""), size)
        named = {one.name: one for one in registry.list_in(services.db, call.workspace)}
        body: dict[str, Any] = {
            "model_versions": [
                version_json(model, aliases_of(named[model.name], model.version))
                for model in page
                if model.name in named
            ]
        }
        if token:
            body["next_page_token"] = token
        return JSONResponse(body)

    @routes.get("/get-download-uri")
    def download_uri(call: the_call) -> JSONResponse:
        return JSONResponse({"artifact_uri": version_root(the_version(call))})

    @routes.post("/set-tag")
    def set_tag(call: the_call) -> JSONResponse:
        tag = tag_record(call.fields)
        change(call, tags={tag.key: tag.value})
        return JSONResponse({})

    @routes.delete("/delete-tag")
    def delete_tag(call: the_call) -> JSONResponse:
        change(call, tags={call.text("key"): None})
        return JSONResponse({})

    return routes


def _origin(services: Registry, call: Call, uri: str) -> LoggedModel | None:
    """The logged model that becomes a version, if it is one."""
    model_id = model_sources.logged_id(uri) or call.text("model_id", default="")
    return logged.get(services.db, call.workspace, model_id) if model_id else None


def _note_version(services: Registry, origin: LoggedModel, made: Model) -> None:
    """MLflow tells on a logged model as which versions it was registered."""
    version = {"name": made.name, "version": made.version}
    try:
        logged.change(
            services.db,
            services.clock,
            origin.workspace,
            origin.id,
            tags=lambda old: appended(old, VERSIONS_OF, version),
        )
    except NotFound:
        pass  # deleted meanwhile; the version has its own copy


def _value(model: Model, kind: str, key: str) -> Any:
    if kind == "tag":
        return model.tags.get(key)
    if key == "creation_timestamp":
        return milliseconds(model.created_at)
    if key == "last_updated_timestamp":
        return milliseconds(model.updated_at or model.created_at)
    texts = {"name": model.name, "run_id": model.job, "source_path": model.source}
    return model.version if key == "version_number" else texts[key]
