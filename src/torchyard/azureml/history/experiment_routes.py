"""The run history's routes of experiments.

Owns: an experiment's JSON, the routes that list, create and change experiments.
Leaves: experiments themselves to jobs/requests/runs.py, their runs to run_routes.py.
Always: an archived experiment is one that MLflow's clients call deleted; its runs are archived with
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse

from torchyard.azureml.arm.resources import timestamp
from torchyard.azureml.common.calls import AzureCall, Call, tags_at
from torchyard.azureml.common.errors import NotServed
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.history import run_filters
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs.records.types import Experiment
from torchyard.jobs.requests import runs
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission

_BY_NAME, _BY_ID = "/experiments/{experiment}", "/experimentids/{experiment}"
BY_EXPERIMENT = (_BY_NAME, _BY_ID)
# The values of `deleted` that a list shows.
_VIEWS = {"all": (True, False), "archivedonly": (True,)}
_ACTIVE = (False,)

routes = RouteTable("/history")


@routes.get(*BY_EXPERIMENT)
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    return JSONResponse(_json(call, find(services, call, experiment)))


@routes.route(["POST", "PUT"], _BY_NAME)
@needs(Permission.WRITE)
def create(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    workspace = call.workspace.name
    existing = runs.experiment_named(services.db, workspace, experiment)
    created = existing or runs.create_experiment(services, workspace, experiment, {})
    return JSONResponse(_json(call, created))


@routes.patch(_BY_ID)
@needs(Permission.WRITE)
def change(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    before, archive = find(services, call, experiment), call.document.get("archive")
    tags = tags_at(call.document, "tags")
    if archive is not None and not isinstance(archive, bool):
        raise InvalidInput("`archive` is neither true nor false", at=["archive"])
    changed = runs.change_experiment(
        services, call.workspace.name, before.id, deleted=archive, tags=tags
    )
    return JSONResponse(_json(call, changed))


@routes.delete(_BY_ID)
@needs(Permission.WRITE)
def delete(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    name = find(services, call, experiment).name
    raise NotServed(
        f"experiment `{name}` can't be deleted, only archived", "use `experiment.archive()`"
    )


@routes.post(f"{_BY_ID}/tags:delete")
@needs(Permission.WRITE)
def delete_tags(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    before, names = find(services, call, experiment), call.document.get("tags")
    if not isinstance(names, list):
        raise InvalidInput("the request names no tags", "send a list of their names")
    removed = {str(key): None for key in names}
    changed = runs.change_experiment(services, call.workspace.name, before.id, tags=removed)
    return JSONResponse(_json(call, changed))


@needs(Permission.READ)
def list_all(call: AzureCall, services: ServicesOf) -> JSONResponse:
    request = call.body if isinstance(call.body, Mapping) else {}
    matches = run_filters.read(str(request.get("filter") or call.query.get("$filter") or ""))
    view = str(call.query.get("viewType") or request.get("viewType") or "").lower()
    experiments = [
        _json(call, experiment)
        for experiment in runs.experiments(services.db, call.workspace.name)
        if experiment.deleted in _VIEWS.get(view, _ACTIVE)
    ]
    value = [experiment for experiment in experiments if matches(experiment)]
    return JSONResponse({"value": value, "continuationToken": None, "nextLink": None})


routes.add(["GET"], "/experiments", list_all)
routes.add(["POST"], "/experiments:query", list_all)


def find(services: RecordServices, call: Call, name_or_id: str) -> Experiment:
    """By its name, or by its id where the path has one.

    Raises:
        NotFound: there is none.
    """
    by_id = "/experimentids/" in call.path
    if by_id and name_or_id.isdecimal() and len(name_or_id) < 19:
        return runs.experiment(services, call.workspace.name, int(name_or_id))
    experiment = (
        None if by_id else runs.experiment_named(services.db, call.workspace.name, name_or_id)
    )
    if experiment is None:
        raise NotFound(
            f"experiment `{name_or_id}` does not exist in workspace `{call.workspace.name}`",
            "list what exists with `yard experiment list`",
        )
    return experiment


def name_of(services: RecordServices, call: Call, name_or_id: str) -> str:
    """Empty when the path has none; unchanged when no experiment has that name yet."""
    if "/experimentids/" in call.path and name_or_id:
        return find(services, call, name_or_id).name
    return name_or_id


def _json(call: Call, experiment: Experiment) -> dict[str, Any]:
    created = timestamp(experiment.created_at)
    return {
        "experimentId": str(experiment.id),
        "name": experiment.name,
        "description": None,
        "createdUtc": created,
        "tags": experiment.tags,
        # The time is not stored; clients only check whether there is one.
        "archivedTime": created if experiment.deleted else None,
        "retainForLifetimeOfWorkspace": False,
        "artifactLocation": None,
        "latestModifiedRunUtc": None,
    }
