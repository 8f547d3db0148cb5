"""Experiments as the run history tells them.

Owns: an experiment's JSON, the routes that list, make and change experiments.
Leaves: experiments themselves to jobs/requests/runs.py, their runs to routes.py.
Always: an archived experiment is one that MLflow's clients call deleted; its runs go with it.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import Call, Caller
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.history import run_filters
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.records.types import Experiment
from torchyard.jobs.requests import runs
from torchyard.jobs.services import Services

BY_EXPERIMENT = ("/experiments/{experiment}", "/experimentids/{experiment}")
# Which of them a list shows: whether archived, and whether not.
_VIEWS = {"all": (True, False), "archivedonly": (True,)}
_ACTIVE = (False,)


def add(routes: APIRouter, caller: Caller, services: Services) -> None:
    """Put the routes of experiments beside those of runs."""
    the_call = Annotated[Call, Depends(caller)]

    def get(call: the_call, experiment: str) -> JSONResponse:
        return JSONResponse(_json(call, find(services, call, experiment)))

    def create(call: the_call, experiment: str) -> JSONResponse:
        known = runs.experiment_named(services, call.workspace.name, experiment)
        made = known or runs.create_experiment(services, call.workspace.name, experiment, {})
        return JSONResponse(_json(call, made))

    def change(call: the_call, experiment: str) -> JSONResponse:
        there, asked = find(services, call, experiment), call.document
        archive, tags = asked.get("archive"), asked.get("tags")
        if tags is not None and not isinstance(tags, Mapping):
            raise InvalidInput("`tags` is no JSON object", at=["tags"])
        if archive is not None and not isinstance(archive, bool):
            raise InvalidInput("`archive` is neither true nor false", at=["archive"])
        changed = runs.change_experiment(
            services,
            call.workspace.name,
            there.id,
            deleted=archive,
            tags={
                str(key): "" if value is None else str(value) for key, value in (tags or {}).items()
            },
        )
        return JSONResponse(_json(call, changed))

    def drop_tags(call: the_call, experiment: str) -> JSONResponse:
        there, named = find(services, call, experiment), call.document.get("tags")
        if not isinstance(named, list):
            raise InvalidInput("the request names no tags", "send a list of their names")
        gone = {str(key): None for key in named}
        changed = runs.change_experiment(services, call.workspace.name, there.id, tags=gone)
        return JSONResponse(_json(call, changed))

    def delete(call: the_call, experiment: str) -> JSONResponse:
        there = find(services, call, experiment)
        raise NotServed(
            f"experiment `{there.name}` can't be deleted, only archived", "`experiment.archive()`"
        )

    def every(call: the_call) -> JSONResponse:
        asked = call.body if isinstance(call.body, Mapping) else {}
        fits = run_filters.read(str(asked.get("filter") or call.query.get("$filter") or ""))
        view = str(call.query.get("viewType") or asked.get("viewType") or "").lower()
        shown = [
            _json(call, one)
            for one in runs.experiments(services, call.workspace.name)
            if one.deleted in _VIEWS.get(view, _ACTIVE)
        ]
        value = [one for one in shown if fits(one)]
        return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})

    for top in BY_EXPERIMENT:
        routes.add_api_route(top, get, methods=["GET"])
    routes.add_api_route(BY_EXPERIMENT[0], create, methods=["POST", "PUT"])
    routes.add_api_route(BY_EXPERIMENT[1], change, methods=["PATCH"])
    routes.add_api_route(BY_EXPERIMENT[1], delete, methods=["DELETE"])
    routes.add_api_route(f"{BY_EXPERIMENT[1]}/tags:delete", drop_tags, methods=["POST"])
    routes.add_api_route("/experiments", every, methods=["GET"])
    routes.add_api_route("/experiments:query", every, methods=["POST"])


def find(services: Services, call: Call, wanted: str) -> Experiment:
    """By its name, or by its id where the path has one.

    Raises:
        NotFound: there is none.
    """
    by_id = "/experimentids/" in call.path
    if by_id and wanted.isdecimal() and len(wanted) < 19:
        return runs.experiment(services, call.workspace.name, int(wanted))
    found = None if by_id else runs.experiment_named(services, call.workspace.name, wanted)
    if found is None:
        raise NotFound(
            f"experiment `{wanted}` does not exist in workspace `{call.workspace.name}`",
            "list what exists with `yard experiment list`",
        )
    return found


def name_of(services: Services, call: Call, wanted: str) -> str:
    """Empty when the path has none, as written where there is none of that name yet."""
    if "/experimentids/" in call.path and wanted:
        return find(services, call, wanted).name
    return wanted


def _json(call: Call, experiment: Experiment) -> dict[str, Any]:
    created = timestamp(experiment.created_at)
    return {
        "experimentId": str(experiment.id),
        "name": experiment.name,
        "description": None,
        "createdUtc": created,
        "tags": experiment.tags,
        # When it was, is not kept; clients ask whether there is a time.
        "archivedTime": created if experiment.deleted else None,
        "retainForLifetimeOfWorkspace": False,
        "artifactLocation": None,
        "latestModifiedRunUtc": None,
    }
