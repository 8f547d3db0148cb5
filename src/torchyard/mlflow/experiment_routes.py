"""MLflow's experiments."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.jobs.records.types import Experiment
from torchyard.jobs.requests.run_search import View
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call, Caller, invalid
from torchyard.mlflow.errors import AlreadyExists
from torchyard.mlflow.runs import Runs
from torchyard.mlflow.translate import experiment_json, tag_record, tags_in
from torchyard.workspaces.types import TokenKind

DEFAULT_NAME = "Default"
_DEFAULT_ID = "0"
_PAGE_LIMIT = 50_000
_NAME_LIMIT = 256
_VIEWS = {"ACTIVE_ONLY": False, "DELETED_ONLY": True, "ALL": None}


def router(runs: Runs, caller: Caller) -> APIRouter:
    routes = APIRouter(prefix="/api/2.0/mlflow/experiments", route_class=caller.route_class)
    the_call = Annotated[Call, Depends(caller)]

    def told(call: Call, found: Experiment) -> dict[str, Any]:
        return experiment_json(found, told_id(call, found.id, found.name))

    def shown(call: Call, found: Experiment) -> JSONResponse:
        return JSONResponse({"experiment": told(call, found)})

    @routes.post("/create")
    def create(call: the_call) -> JSONResponse:
        name, location = call.text("name"), call.text("artifact_location", default="")
        tags = tags_in(call)
        _check_name(name)
        try:
            made = runs.create_experiment(call.workspace, name, tags, _location(location))
        except Conflict as error:
            raise AlreadyExists(f"Experiment(name={name}) already exists.") from error
        return JSONResponse({"experiment_id": told_id(call, made.id, made.name)})

    @routes.get("/get")
    def get(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        return shown(call, found)

    @routes.get("/get-by-name")
    def get_by_name(call: the_call) -> JSONResponse:
        name = call.text("experiment_name")
        found = runs.experiment_named(call.workspace, name)
        if found is None and name == DEFAULT_NAME:
            found = default(runs, call.workspace)
        if found is None:
            raise NotFound(f"Could not find experiment with name '{name}'")
        return shown(call, found)

    def find(call: Call) -> JSONResponse:
        conditions = search.read_filter(call.text("filter", default=""), search.EXPERIMENTS)
        orders = search.read_orders(call.texts("order_by"), search.EXPERIMENTS)
        # A client takes it for granted that the first experiment is there.
        conditions = _with_numbers(conditions, default(runs, call.workspace))
        page, token = search.paged(
            call.text("page_token", default=""),
            call.size("max_results", 1000, _PAGE_LIMIT),
            lambda offset, limit: runs.find_experiments(
                call.workspace, View(conditions, orders, deleted_in(call), offset, limit)
            ),
        )
        body: dict[str, Any] = {"experiments": [told(call, one) for one in page]}
        if token:
            body["next_page_token"] = token
        return JSONResponse(body)

    @routes.get("/search")
    def search_by_query(call: the_call) -> JSONResponse:
        return find(call)

    @routes.post("/search")
    def search_by_body(call: the_call) -> JSONResponse:
        return find(call)

    @routes.get("/list")
    def list_experiments(call: the_call) -> JSONResponse:
        return find(call)

    @routes.post("/update")
    def update(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        name = call.text("new_name")
        _refuse_deleted(found)
        _check_name(name)
        try:
            runs.change_experiment(call.workspace, found.id, name=name)
        except Conflict as error:
            raise AlreadyExists(f"Experiment(name={name}) already exists.") from error
        return JSONResponse({})

    @routes.post("/delete")
    def delete(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        runs.change_experiment(call.workspace, found.id, deleted=True)
        return JSONResponse({})

    @routes.post("/restore")
    def restore(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        runs.change_experiment(call.workspace, found.id, deleted=False)
        return JSONResponse({})

    @routes.post("/set-experiment-tag")
    def set_tag(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        _refuse_deleted(found)
        tag = tag_record(call.fields)
        runs.change_experiment(call.workspace, found.id, tags={tag.key: tag.value})
        return JSONResponse({})

    @routes.post("/delete-experiment-tag")
    def delete_tag(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        runs.change_experiment(call.workspace, found.id, tags={call.text("key"): None})
        return JSONResponse({})

    return routes


def told_id(call: Call, number: int, name: str) -> str:
    """What a client is told of an experiment: as in every MLflow, `Default` is `0`.

    A job's script is told the number: that is what its environment names, and clients compare.
    """
    inside = call.identity.kind is TokenKind.RUN
    return _DEFAULT_ID if name == DEFAULT_NAME and not inside else str(number)


def told_ids(runs: Runs, call: Call) -> Callable[[int], str]:
    """`told_id` of experiments of which only the number is at hand."""
    found = runs.experiment_named(call.workspace, DEFAULT_NAME)
    number = None if found is None else found.id
    return lambda one: told_id(call, one, DEFAULT_NAME if one == number else "")


def experiment(runs: Runs, workspace: str, text: str) -> Experiment:
    """The experiment of an id as `told_id` writes it, or of its number.

    Raises:
        NotFound: there is none.
    """
    if text == _DEFAULT_ID:
        return default(runs, workspace)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise NotFound(f"No Experiment with id={text[:100]} exists")
    try:
        return runs.experiment(workspace, int(text))
    except NotFound as error:
        raise NotFound(f"No Experiment with id={text} exists") from error


def experiment_ids(runs: Runs, call: Call) -> list[int]:
    """Those of the field `experiment_ids` that are there; MLflow finds nothing in the others."""
    found = []
    for text in call.texts("experiment_ids"):
        try:
            found.append(experiment(runs, call.workspace, text).id)
        except NotFound:
            continue
    return found


def default(runs: Runs, workspace: str) -> Experiment:
    """The experiment of those who name none, made when first asked for."""
    found = runs.experiment_named(workspace, DEFAULT_NAME)
    if found is not None:
        return found
    try:
        return runs.create_experiment(workspace, DEFAULT_NAME, {})
    except Conflict:
        # Another request was faster.
        made = runs.experiment_named(workspace, DEFAULT_NAME)
        assert made is not None
        return made


def deleted_in(call: Call, field: str = "view_type") -> bool | None:
    """What a request wants of deleted ones: none, only them, or, None, both."""
    view = call.text(field, default="ACTIVE_ONLY")
    if view not in _VIEWS:
        raise invalid(field, view, f"it is one of {', '.join(_VIEWS)}.")
    return _VIEWS[view]


def _with_numbers(
    conditions: Sequence[search.Condition], known_as_zero: Experiment
) -> list[search.Condition]:
    """The conditions with an experiment's number where a client says `0`."""

    def number(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(number(one) for one in value)
        return str(known_as_zero.id) if value == _DEFAULT_ID else value

    return [
        replace(one, value=number(one.value)) if one.key == "experiment_id" else one
        for one in conditions
    ]


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > _NAME_LIMIT:
        raise invalid("name", name, f"an experiment's name has 1 to {_NAME_LIMIT} characters.")


def _refuse_deleted(found: Experiment) -> None:
    if found.deleted:
        raise InvalidInput(
            f"The experiment {found.id} must be in the 'active' state. Current state is deleted."
        )


def _location(text: str) -> str:
    """Where a client wants artifacts, a path on its machine made absolute as MLflow does.

    Raises:
        InvalidInput: it climbs, or has parts that no folder has.
    """
    if not text:
        return ""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise invalid("artifact_location", text, f"it is no URI: {error}.") from error
    if parts.scheme and parts.fragment:
        raise InvalidInput("'artifact_location' URL can't include fragments or params.")
    if ".." in unquote(unquote(parts.path + "/" + parts.query)).split("/"):
        raise invalid("artifact_location", text, "it names no folder.")
    return text if parts.scheme else str(Path(text).absolute())
