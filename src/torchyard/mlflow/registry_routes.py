"""MLflow's registered models."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call, Caller
from torchyard.mlflow.registry import (
    IS_PROMPT,
    Registry,
    name_taken,
    no_such_model,
    registered_json,
    tags_of_model,
    version_number,
)
from torchyard.mlflow.translate import milliseconds, tag_record
from torchyard.models import actions, registry
from torchyard.models.documents import check_name
from torchyard.models.types import Model, Registered

_PAGE_LIMIT = 1000
_NAMES = search.Language(frozenset({"name"}), frozenset(), frozenset({"tag", "attribute"}))
_ORDERS = search.Language(
    frozenset({"name"}),
    frozenset({"timestamp", "last_updated_timestamp", "creation_timestamp"}),
    frozenset({"attribute"}),
)
_ALIAS = re.compile(r"[\w-]{1,255}")
_RESERVED_ALIAS = re.compile(r"latest|v\d+", re.IGNORECASE)


def router(services: Registry, caller: Caller) -> APIRouter:
    routes = APIRouter(prefix="/api/2.0/mlflow/registered-models", route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]

    def shown(call: Call, name: str) -> JSONResponse:
        found = services.registered(call.workspace, name)
        return JSONResponse({"registered_model": registered_json(found.registered, found.versions)})

    def change(call: Call, **changes: Any) -> None:
        name = _name(call)
        try:
            registry.change(services.db, services.clock, call.workspace, name, **changes)
        except NotFound as error:
            raise no_such_model(name) from error

    @routes.post("/create")
    def create(call: the_call) -> JSONResponse:
        name, tags = _name(call), tags_of_model(call)
        described = call.text("description", default="")
        try:
            registry.create(services.db, services.clock, call.workspace, name, described, tags)
        except Conflict as error:
            raise name_taken(name, error) from error
        return shown(call, name)

    @routes.get("/get")
    def get(call: the_call) -> JSONResponse:
        return shown(call, _name(call))

    @routes.patch("/update")
    def update(call: the_call) -> JSONResponse:
        change(call, description=call.text("description", default=""))
        return shown(call, _name(call))

    @routes.post("/rename")
    def rename(call: the_call) -> JSONResponse:
        name, new = _name(call), call.text("new_name")
        if not new.strip():
            raise InvalidInput("Missing value for required parameter 'new_name'.")
        try:
            registry.rename(services.db, services.clock, call.workspace, name, new)
        except NotFound as error:
            raise no_such_model(name) from error
        except Conflict as error:
            raise name_taken(new, error) from error
        return shown(call, new)

    @routes.delete("/delete")
    def delete(call: the_call) -> JSONResponse:
        name = _name(call)
        try:
            actions.delete_all(services.db, services.datastores, call.workspace, name)
        except NotFound as error:
            raise no_such_model(name) from error
        return JSONResponse({})

    @routes.get("/search")
    def find(call: the_call) -> JSONResponse:
        conditions = search.read_filter(call.text("filter", default=""), _NAMES)
        orders = search.read_orders(call.texts("order_by"), _ORDERS)
        named = [order.key for order in orders]
        if len(set(named)) < len(named):
            raise InvalidInput(f"`order_by` contains duplicate fields: {call.texts('order_by')}")
        known = list(registry.list_in(services.db, call.workspace))
        found = search.select(known, without_prompts(conditions), _value)
        search.arrange(found, orders, _value)
        size = call.size("max_results", 100, _PAGE_LIMIT)
        page, token = search.page(found, call.text("page_token", default=""), size)
        body: dict[str, Any] = {"registered_models": _with_versions(services, call, page)}
        if token:
            body["next_page_token"] = token
        return JSONResponse(body)

    @routes.api_route("/get-latest-versions", methods=["GET", "POST"])
    def latest(call: the_call) -> JSONResponse:
        found = services.registered(call.workspace, _name(call))
        wanted = {stage_named(stage) for stage in call.texts("stages")} or set(registry.STAGES)
        newest = [
            model
            for model in registry.newest_of_stages(found.versions)
            if (model.stage or registry.NO_STAGE) in wanted
        ]
        return JSONResponse({"model_versions": [services.shown(model) for model in newest]})

    @routes.post("/set-tag")
    def set_tag(call: the_call) -> JSONResponse:
        tag = tag_record(call.fields)
        change(call, tags={tag.key: tag.value})
        return JSONResponse({})

    @routes.delete("/delete-tag")
    def delete_tag(call: the_call) -> JSONResponse:
        change(call, tags={call.text("key"): None})
        return JSONResponse({})

    @routes.post("/alias")
    def set_alias(call: the_call) -> JSONResponse:
        alias = _alias(call)
        if _RESERVED_ALIAS.fullmatch(alias):
            raise InvalidInput(f"'{alias}' alias name (case insensitive) is reserved.")
        name, version = _name(call), version_number(call.text("version"))
        services.version(call.workspace, name, str(version))
        registry.set_alias(services.db, services.clock, call.workspace, name, alias, version)
        return JSONResponse({})

    @routes.delete("/alias")
    def delete_alias(call: the_call) -> JSONResponse:
        name, alias = _name(call), _alias(call)
        try:
            registry.set_alias(services.db, services.clock, call.workspace, name, alias, None)
        except NotFound as error:
            raise no_such_model(name) from error
        return JSONResponse({})

    @routes.get("/alias")
    def by_alias(call: the_call) -> JSONResponse:
        name, alias = _name(call), _alias(call)
        found = services.registered(call.workspace, name)
        if alias.lower() == actions.LATEST:
            if not found.versions:
                raise NotFound(f"Latest version not found for model {name}.")
            return JSONResponse({"model_version": services.shown(found.versions[0])})
        version = found.registered.aliases.get(alias)
        if version is None:
            raise InvalidInput(f"Registered model alias {alias} not found.")
        model = services.version(call.workspace, name, str(version))
        return JSONResponse({"model_version": services.shown(model)})

    return routes


def stage_named(text: str) -> str:
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


def without_prompts(conditions: Sequence[search.Condition]) -> list[search.Condition]:
    """MLflow 3 asks for models only, or for prompts only; there are none of these."""
    asked = []
    for one in conditions:
        is_prompt = one.kind == "tag" and one.key == IS_PROMPT
        if is_prompt and (one.operator, one.value) in (("=", "false"), ("!=", "true")):
            continue
        asked.append(one)
    return asked


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


def _with_versions(
    services: Registry, call: Call, page: Sequence[Registered]
) -> list[dict[str, Any]]:
    versions: dict[str, list[Model]] = {one.name: [] for one in page}
    for model in registry.all_versions(services.db, call.workspace) if page else ():
        versions.get(model.name, []).append(model)
    return [registered_json(one, versions[one.name]) for one in page]


def _value(one: Registered, kind: str, key: str) -> Any:
    if kind == "tag":
        return one.tags.get(key)
    if key == "name":
        return one.name
    return milliseconds(one.created_at if key == "creation_timestamp" else one.updated_at)
