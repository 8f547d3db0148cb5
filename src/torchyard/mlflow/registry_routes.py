"""MLflow's registered models."""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from torchyard.base.db import Database
from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.batch_endpoints.actions import model_uses
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call, CallOf, CallRoute, page_response
from torchyard.mlflow.model_json import (
    IS_PROMPT,
    get_registered,
    get_version,
    load_version_json,
    model_not_found,
    model_tags,
    name_taken,
    parse_version,
    registered_json,
)
from torchyard.mlflow.translate import read_tag, to_milliseconds
from torchyard.models import actions, registry
from torchyard.models.documents import check_name
from torchyard.models.types import Model, Registered
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_PAGE_LIMIT = 1000
_FILTERS = search.Language(frozenset({"name"}), frozenset(), frozenset({"tag", "attribute"}))
_ORDERS = search.Language(
    frozenset({"name"}),
    frozenset({"timestamp", "last_updated_timestamp", "creation_timestamp"}),
    frozenset({"attribute"}),
)
_ALIAS = re.compile(r"[\w-]{1,255}")
_RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)

router = APIRouter(prefix="/api/2.0/mlflow/registered-models", route_class=CallRoute)


@router.post("/create")
@needs(Permission.WRITE)
def create(call: CallOf, services: ServicesOf) -> JSONResponse:
    name, tags = _name(call), model_tags(call)
    description = call.text("description", default="")
    try:
        registry.create(services.db, services.clock, call.workspace, name, description, tags)
    except Conflict as error:
        raise name_taken(name, error) from error
    return _model_response(call, services.db, name)


@router.get("/get")
@needs(Permission.READ)
def get(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _model_response(call, services.db, _name(call))


@router.patch("/update")
@needs(Permission.WRITE)
def update(call: CallOf, services: ServicesOf) -> JSONResponse:
    _change(call, services, description=call.text("description", default=""))
    return _model_response(call, services.db, _name(call))


@router.post("/rename")
@needs(Permission.WRITE)
def rename(call: CallOf, services: ServicesOf) -> JSONResponse:
    name, new_name = _name(call), call.text("new_name")
    if not new_name.strip():
        raise InvalidInput("Missing value for required parameter 'new_name'.")
    try:
        registry.rename(
            services.db, services.clock, call.workspace, name, new_name, user=call.identity.user
        )
    except NotFound as error:
        raise model_not_found(name) from error
    except Conflict as error:
        raise name_taken(new_name, error) from error
    return _model_response(call, services.db, new_name)


@router.delete("/delete")
@needs(Permission.WRITE)
def delete(call: CallOf, services: ServicesOf) -> JSONResponse:
    name = _name(call)
    try:
        model_uses.refuse_deployed(services.db, call.workspace, name)
        actions.delete_all(
            services.db, services.datastores, call.workspace, name, user=call.identity.user
        )
    except NotFound as error:
        raise model_not_found(name) from error
    return JSONResponse({})


@router.get("/search")
@needs(Permission.READ)
def search_models(call: CallOf, services: ServicesOf) -> JSONResponse:
    conditions = search.parse_filter(call.text("filter", default=""), _FILTERS)
    orders = search.parse_order_by(call.texts("order_by"), _ORDERS)
    if len({order.key for order in orders}) < len(orders):
        raise InvalidInput(f"`order_by` contains duplicate fields: {call.texts('order_by')}")
    models = search.filter_items(
        list(registry.list_in(services.db, call.workspace)),
        without_prompt_conditions(conditions),
        _attribute,
    )
    search.sort_items(models, orders, _attribute)
    size = call.count("max_results", 100, _PAGE_LIMIT)
    page, next_page_token = search.slice_page(models, call.text("page_token", default=""), size)
    items = _with_versions(call, services.db, page)
    return page_response("registered_models", items, next_page_token)


@router.api_route("/get-latest-versions", methods=["GET", "POST"])
@needs(Permission.READ)
def get_latest_versions(call: CallOf, services: ServicesOf) -> JSONResponse:
    versions = get_registered(services.db, call.workspace, _name(call)).versions
    stages = {parse_stage(stage) for stage in call.texts("stages")} or set(registry.STAGES)
    items = [
        load_version_json(services.db, model)
        for model in registry.newest_of_stages(versions)
        if (model.stage or registry.NO_STAGE) in stages
    ]
    return JSONResponse({"model_versions": items})


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


@router.post("/alias")
@needs(Permission.WRITE)
def set_alias(call: CallOf, services: ServicesOf) -> JSONResponse:
    alias = _alias(call)
    if _RESERVED_ALIAS.fullmatch(alias):
        raise InvalidInput(f"'{alias}' alias name (case insensitive) is reserved.")
    name, version = _name(call), parse_version(call.text("version"))
    get_version(services.db, call.workspace, name, str(version))
    _set_alias(call, services, name, alias, version)
    return JSONResponse({})


@router.delete("/alias")
@needs(Permission.WRITE)
def delete_alias(call: CallOf, services: ServicesOf) -> JSONResponse:
    name, alias = _name(call), _alias(call)
    try:
        _set_alias(call, services, name, alias, None)
    except NotFound as error:
        raise model_not_found(name) from error
    return JSONResponse({})


@router.get("/alias")
@needs(Permission.READ)
def get_version_by_alias(call: CallOf, services: ServicesOf) -> JSONResponse:
    name, alias = _name(call), _alias(call)
    model = get_registered(services.db, call.workspace, name)
    if alias.lower() == actions.LATEST:
        if not model.versions:
            raise NotFound(f"Latest version not found for model {name}.")
        return JSONResponse({"model_version": load_version_json(services.db, model.versions[0])})
    number = model.registered.aliases.get(alias)
    if number is None:
        raise InvalidInput(f"Registered model alias {alias} not found.")
    version = get_version(services.db, call.workspace, name, str(number))
    return JSONResponse({"model_version": load_version_json(services.db, version)})


def parse_stage(text: str) -> str:
    """
    Raises:
        InvalidInput: MLflow has no such stage.
    """
    for stage in registry.STAGES:
        if stage.lower() == text.lower():
            return stage
    raise InvalidInput(
        f"Invalid Model Version stage: {text[:50]}. "
        f"Value must be one of {', '.join(registry.STAGES)}."
    )


def without_prompt_conditions(conditions: Sequence[search.Condition]) -> list[search.Condition]:
    """The conditions without "is not a prompt", which holds for every model here.

    MLflow 3 searches for models only, or for prompts only, which torchyard does not store.
    """
    return [condition for condition in conditions if not _excludes_prompts(condition)]


def _excludes_prompts(condition: search.Condition) -> bool:
    if condition.kind != "tag" or condition.key != IS_PROMPT:
        return False
    return (condition.operator, condition.value) in (("=", "false"), ("!=", "true"))


def _name(call: Call) -> str:
    name = call.text("name")
    check_name(name)
    return name


def _alias(call: Call) -> str:
    alias = call.text("alias")
    if not alias:
        raise InvalidInput("Registered model alias name cannot be empty.")
    if not _ALIAS.fullmatch(alias):
        raise InvalidInput(
            f"Invalid alias name: '{alias[:300]}'. Names may only contain alphanumerics, "
            "underscores (_), and dashes (-)."
        )
    return alias


def _change(call: Call, services: RecordServices, **changes: Any) -> None:
    name = _name(call)
    try:
        registry.change(
            services.db,
            services.clock,
            call.workspace,
            name,
            user=call.identity.user,
            **changes,
        )
    except NotFound as error:
        raise model_not_found(name) from error


def _set_alias(
    call: Call, services: RecordServices, name: str, alias: str, version: int | None
) -> None:
    registry.set_alias(
        services.db,
        services.clock,
        call.workspace,
        name,
        alias,
        version,
        user=call.identity.user,
    )


def _model_response(call: Call, db: Database, name: str) -> JSONResponse:
    model = get_registered(db, call.workspace, name)
    return JSONResponse({"registered_model": registered_json(model.registered, model.versions)})


def _with_versions(call: Call, db: Database, page: Sequence[Registered]) -> list[dict[str, Any]]:
    versions: dict[str, list[Model]] = {registered.name: [] for registered in page}
    for model in registry.all_versions(db, call.workspace) if page else ():
        versions.get(model.name, []).append(model)
    return [registered_json(registered, versions[registered.name]) for registered in page]


def _attribute(registered: Registered, kind: str, key: str) -> Any:
    if kind == "tag":
        return registered.tags.get(key)
    if key == "name":
        return registered.name
    is_creation = key == "creation_timestamp"
    return to_milliseconds(registered.created_at if is_creation else registered.updated_at)
