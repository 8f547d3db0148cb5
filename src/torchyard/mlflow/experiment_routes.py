"""MLflow's experiments."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.base.errors import Conflict, InvalidInput, NotFound
from torchyard.jobs.types import Experiment
from torchyard.mlflow import search
from torchyard.mlflow.calls import Call
from torchyard.mlflow.errors import AlreadyExists, MlflowRoute
from torchyard.mlflow.runs import Runs
from torchyard.mlflow.translate import experiment_json, milliseconds, tag_record, tags_in

DEFAULT_NAME = "Default"
_PAGE_LIMIT = 50_000


def router(runs: Runs, caller: Callable[..., Any]) -> APIRouter:
    routes = APIRouter(prefix="/api/2.0/mlflow/experiments", route_class=MlflowRoute)
    the_call = Annotated[Call, Depends(caller)]

    @routes.post("/create")
    def create(call: the_call) -> JSONResponse:
        name = call.text("name")
        if not name.strip() or len(name) > 256:
            raise InvalidInput("an experiment's name has 1 to 256 characters")
        try:
            made = runs.create_experiment(call.workspace, name, tags_in(call))
        except Conflict as error:
            raise AlreadyExists(f"Experiment '{name}' already exists") from error
        return JSONResponse({"experiment_id": str(made.id)})

    @routes.get("/get")
    def get(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        return JSONResponse({"experiment": experiment_json(found)})

    @routes.get("/get-by-name")
    def get_by_name(call: the_call) -> JSONResponse:
        name = call.text("experiment_name")
        found = named(runs, call.workspace, name)
        if found is None and name == DEFAULT_NAME:
            found = default(runs, call.workspace)
        if found is None:
            raise NotFound(f"Could not find experiment with name '{name}'")
        return JSONResponse({"experiment": experiment_json(found)})

    def find(call: Call) -> JSONResponse:
        conditions = search.read_filter(call.text("filter", default=""), search.EXPERIMENTS)
        orders = search.read_orders(call.texts("order_by"), search.EXPERIMENTS)
        seen = [one for one in runs.experiments(call.workspace) if _in_view(call, one.deleted)]
        found = search.select(seen, conditions, _lookup)
        search.arrange(found, orders, _lookup)
        size = call.size("max_results", 1000, _PAGE_LIMIT)
        page, token = search.page(found, call.text("page_token", default=""), size)
        body: dict[str, Any] = {"experiments": [experiment_json(one) for one in page]}
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
        name = call.text("new_name")
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        try:
            runs.change_experiment(call.workspace, found.id, name=name)
        except Conflict as error:
            raise AlreadyExists(f"Experiment '{name}' already exists") from error
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
        tag = tag_record(call.fields)
        runs.change_experiment(call.workspace, found.id, tags={tag.key: tag.value})
        return JSONResponse({})

    @routes.post("/delete-experiment-tag")
    def delete_tag(call: the_call) -> JSONResponse:
        found = experiment(runs, call.workspace, call.text("experiment_id"))
        runs.change_experiment(call.workspace, found.id, tags={call.text("key"): None})
        return JSONResponse({})

    return routes


def experiment(runs: Runs, workspace: str, text: str) -> Experiment:
    """The experiment of an id; `0` is what a client asks for that was told none.

    Raises:
        NotFound: there is none.
    """
    if text == "0":
        return default(runs, workspace)
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise NotFound(f"No Experiment with id={text[:100]} exists")
    try:
        return runs.experiment(workspace, int(text))
    except NotFound as error:
        raise NotFound(f"No Experiment with id={text} exists") from error


def default(runs: Runs, workspace: str) -> Experiment:
    """The experiment of those who name none, made when first asked for."""
    found = named(runs, workspace, DEFAULT_NAME)
    if found is not None:
        return found
    try:
        return runs.create_experiment(workspace, DEFAULT_NAME, {})
    except Conflict:
        # Another request was faster.
        made = named(runs, workspace, DEFAULT_NAME)
        assert made is not None
        return made


def named(runs: Runs, workspace: str, name: str) -> Experiment | None:
    return next((one for one in runs.experiments(workspace) if one.name == name), None)


def _in_view(call: Call, deleted: bool) -> bool:
    view = call.text("view_type", default="ACTIVE_ONLY")
    return view == "ALL" or deleted == (view == "DELETED_ONLY")


def _lookup(one: Experiment, kind: str, key: str) -> Any:
    if kind == "tag":
        return one.tags.get(key)
    if key == "name":
        return one.name
    return str(one.id) if key == "experiment_id" else milliseconds(one.created_at)
