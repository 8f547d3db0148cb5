"""MLflow's experiments."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.jobs.records.types import Experiment
from torchyard.jobs.requests import runs
from torchyard.jobs.requests.run_search import View
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call, CallOf, CallRoute, invalid_parameter, page_response
from torchyard.mlflow.errors import AlreadyExists
from torchyard.mlflow.lookups import (
    DEFAULT_ID,
    DEFAULT_NAME,
    client_experiment_id,
    default_experiment,
    get_experiment,
    read_deleted,
)
from torchyard.mlflow.translate import experiment_json, read_tag, read_tags
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_PAGE_LIMIT = 50_000
_NAME_LIMIT = 256

router = APIRouter(prefix="/api/2.0/mlflow/experiments", route_class=CallRoute)


@router.post("/create")
@needs(Permission.WRITE)
def create(call: CallOf, services: ServicesOf) -> JSONResponse:
    name, location = call.text("name"), call.text("artifact_location", default="")
    tags = read_tags(call)
    _check_name(name)
    try:
        experiment = runs.create_experiment(
            services, call.workspace, name, tags, _artifact_location(location)
        )
    except Conflict as error:
        raise AlreadyExists(f"Experiment(name={name}) already exists.") from error
    return JSONResponse(
        {"experiment_id": client_experiment_id(call, experiment.id, experiment.name)}
    )


@router.get("/get")
@needs(Permission.READ)
def get(call: CallOf, services: ServicesOf) -> JSONResponse:
    return JSONResponse({"experiment": _to_json(call, _experiment(call, services))})


@router.get("/get-by-name")
@needs(Permission.READ)
def get_by_name(call: CallOf, services: ServicesOf) -> JSONResponse:
    name = call.text("experiment_name")
    experiment = runs.experiment_named(services.db, call.workspace, name)
    if experiment is None and name == DEFAULT_NAME:
        experiment = default_experiment(services, call.workspace)
    if experiment is None:
        raise NotFound(f"Could not find experiment with name '{name}'")
    return JSONResponse({"experiment": _to_json(call, experiment)})


@router.get("/search")
@needs(Permission.READ)
def search_by_query(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _search(call, services)


@router.post("/search")
@needs(Permission.READ)
def search_by_body(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _search(call, services)


@router.get("/list")
@needs(Permission.READ)
def list_experiments(call: CallOf, services: ServicesOf) -> JSONResponse:
    return _search(call, services)


@router.post("/update")
@needs(Permission.SETTINGS)
def update(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = _experiment(call, services)
    name = call.text("new_name")
    _refuse_deleted(experiment)
    _check_name(name)
    try:
        runs.change_experiment(services, call.workspace, experiment.id, name=name)
    except Conflict as error:
        raise AlreadyExists(f"Experiment(name={name}) already exists.") from error
    return JSONResponse({})


@router.post("/delete")
@needs(Permission.SETTINGS)
def delete(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = _experiment(call, services)
    runs.change_experiment(services, call.workspace, experiment.id, deleted=True)
    return JSONResponse({})


@router.post("/restore")
@needs(Permission.SETTINGS)
def restore(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = _experiment(call, services)
    runs.change_experiment(services, call.workspace, experiment.id, deleted=False)
    return JSONResponse({})


@router.post("/set-experiment-tag")
@needs(Permission.WRITE)
def set_tag(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = _experiment(call, services)
    _refuse_deleted(experiment)
    tag = read_tag(call.fields)
    runs.change_experiment(services, call.workspace, experiment.id, tags={tag.key: tag.value})
    return JSONResponse({})


@router.post("/delete-experiment-tag")
@needs(Permission.WRITE)
def delete_tag(call: CallOf, services: ServicesOf) -> JSONResponse:
    experiment = _experiment(call, services)
    tags = {call.text("key"): None}
    runs.change_experiment(services, call.workspace, experiment.id, tags=tags)
    return JSONResponse({})


def _experiment(call: Call, services: RecordServices) -> Experiment:
    return get_experiment(services, call.workspace, call.text("experiment_id"))


def _to_json(call: Call, experiment: Experiment) -> dict[str, Any]:
    return experiment_json(experiment, client_experiment_id(call, experiment.id, experiment.name))


def _search(call: Call, services: RecordServices) -> JSONResponse:
    conditions = search.parse_filter(call.text("filter", default=""), search.EXPERIMENTS)
    orders = search.parse_order_by(call.texts("order_by"), search.EXPERIMENTS)
    # Clients expect the default experiment to exist.
    default = default_experiment(services, call.workspace)
    conditions = _with_default_id(conditions, default)
    page, next_page_token = search.find_page(
        call.text("page_token", default=""),
        call.count("max_results", 1000, _PAGE_LIMIT),
        lambda offset, limit: runs.find_experiments(
            services.db, call.workspace, View(conditions, orders, read_deleted(call), offset, limit)
        ),
    )
    experiments = [_to_json(call, experiment) for experiment in page]
    return page_response("experiments", experiments, next_page_token)


def _with_default_id(
    conditions: Sequence[search.Condition], default: Experiment
) -> list[search.Condition]:
    """The conditions with the default experiment's number where a client writes `0`."""

    def replace_default(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(replace_default(item) for item in value)
        return str(default.id) if value == DEFAULT_ID else value

    return [
        replace(condition, value=replace_default(condition.value))
        if condition.key == "experiment_id"
        else condition
        for condition in conditions
    ]


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _NAME_LIMIT:
        reason = f"an experiment name must have 1 to {_NAME_LIMIT} characters."
        raise invalid_parameter("name", name, reason)


def _refuse_deleted(experiment: Experiment) -> None:
    if experiment.deleted:
        raise InvalidInput(
            f"The experiment {experiment.id} must be in the 'active' state. "
            "Current state is deleted."
        )


def _artifact_location(text: str) -> str:
    """Where a client wants its artifacts; a local path is made absolute, as MLflow does.

    Raises:
        InvalidInput: it is not a URI, or has parts that no folder has.
    """
    if not text:
        return ""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise invalid_parameter("artifact_location", text, f"it is not a URI: {error}.") from error
    if parts.scheme and parts.fragment:
        raise InvalidInput("'artifact_location' URL can't include fragments or params.")
    if ".." in unquote(unquote(parts.path + "/" + parts.query)).split("/"):
        raise invalid_parameter("artifact_location", text, "it must name a folder.")
    return text if parts.scheme else str(Path(text).absolute())
