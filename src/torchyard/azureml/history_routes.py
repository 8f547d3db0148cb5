"""The run history: runs as SDK v1, SDK v2's `stream` and `download`, and the plug-in ask for them.

Owns: the routes of runs, experiments and queries over them.
Leaves: a run's JSON to runs.py, artifacts to artifact_routes.py, changing jobs to jobs/actions.py.
Always: each question about a run is answered alike below `runs/`, `experiments/<name>/runs/` and
`experimentids/<id>/runs/`.

Source: REST.md sections 4 to 6; the requests of azure-ai-ml 1.35, 1.20, 1.12 and azureml-core 1.61.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from torchyard.azureml import run_changes, run_filters, runs
from torchyard.azureml.calls import Call, Caller
from torchyard.azureml.errors import AzureRoute
from torchyard.azureml.followers import Followers
from torchyard.azureml.resources import ask_of, timestamp
from torchyard.azureml.runs import Link
from torchyard.base.errors import InvalidInput, NotFound, TorchyardError
from torchyard.jobs import actions
from torchyard.jobs import runs as histories
from torchyard.jobs.room import Room
from torchyard.jobs.types import Experiment, Job, Status

_BY_EXPERIMENT = ("/experiments/{experiment}", "/experimentids/{experiment}")
_RUNS = tuple(f"{top}/runs/{{name}}" for top in ("", *_BY_EXPERIMENT))
# Whose only use of a run's details is to follow it; see followers.py.
_STREAMS = "azure-ai-ml"
_MOST = 1000
_MOST_IN_BATCH = 200
_PAGE = 100


def service(room: Room, link: Link) -> Callable[[Caller], APIRouter]:
    """What app.py mounts.

    Args:
        link: makes a signed link to a file of a datastore.
    """

    def routes(caller: Caller) -> APIRouter:
        made = APIRouter(prefix="/history", route_class=AzureRoute)
        _of_one_run(made, caller, room, link)
        _of_experiments(made, caller, room)
        _of_many_runs(made, caller, room)
        return made

    return routes


def _of_one_run(routes: APIRouter, caller: Caller, room: Room, link: Link) -> None:
    the_call = Annotated[Call, Depends(caller)]
    followers = Followers()

    def get(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(runs.to_json(call, _job(room, call, name)))

    def change(call: the_call, name: str, experiment: str = "") -> JSONResponse:
        changed = run_changes.put(room, call, name, _experiment_name(room, call, experiment))
        return JSONResponse(runs.to_json(call, changed))

    def details(call: the_call, request: Request, name: str) -> JSONResponse:
        job = _job(room, call, name)
        told = runs.details(room, call, job, link)
        if job.status.ended and _STREAMS in request.headers.get("user-agent", ""):
            who = (call.workspace.name, job.name, call.identity.user)
            if followers.begins(*who):
                told["status"] = Status.FINALIZING.value
            else:
                followers.ends(*who)
        return JSONResponse(told)

    def children(call: the_call, name: str) -> JSONResponse:
        ask = ask_of(call)
        found = actions.list_in(
            room,
            call.workspace.name,
            parent=name,
            before=int(ask.after) if ask.after.isdecimal() else None,
            limit=ask.most,
        )
        return JSONResponse(_page(call, [runs.to_json(call, job) for job in found]))

    def cancel(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(runs.to_json(call, actions.cancel(room, call.workspace.name, name)))

    def services(call: the_call, name: str) -> JSONResponse:
        _job(room, call, name)
        return JSONResponse({})

    def instances(call: the_call, name: str, node: str) -> JSONResponse:
        _job(room, call, name)
        return JSONResponse({"instances": {}})

    def tags(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(runs.to_json(call, run_changes.change_tags(room, call, name)))

    def event(call: the_call, name: str) -> JSONResponse:
        run_changes.note_event(room, call, name)
        return JSONResponse({})

    for top in _RUNS:
        routes.add_api_route(top, get, methods=["GET"])
        routes.add_api_route(top, change, methods=["PATCH", "PUT"])
        routes.add_api_route(f"{top}/details", details, methods=["GET"])
        routes.add_api_route(f"{top}/children", children, methods=["GET"])
        routes.add_api_route(f"{top}/cancel", cancel, methods=["POST"])
        routes.add_api_route(f"{top}/services", services, methods=["GET"])
        routes.add_api_route(f"{top}/serviceinstances/{{node}}", instances, methods=["GET"])
        routes.add_api_route(f"{top}/tags", tags, methods=["PATCH", "DELETE"])
        routes.add_api_route(f"{top}/events", event, methods=["POST"])


def _of_experiments(routes: APIRouter, caller: Caller, room: Room) -> None:
    the_call = Annotated[Call, Depends(caller)]

    def get(call: the_call, experiment: str) -> JSONResponse:
        return JSONResponse(_experiment_json(call, _experiment(room, call, experiment)))

    def create(call: the_call, experiment: str) -> JSONResponse:
        known = histories.experiment_named(room, call.workspace.name, experiment)
        made = known or histories.create_experiment(room, call.workspace.name, experiment, {})
        return JSONResponse(_experiment_json(call, made))

    def every(call: the_call) -> JSONResponse:
        found = histories.experiments(room, call.workspace.name)
        return JSONResponse(
            _page(call, [_experiment_json(call, one) for one in found if not one.deleted])
        )

    for top in _BY_EXPERIMENT:
        routes.add_api_route(top, get, methods=["GET"])
    routes.add_api_route(_BY_EXPERIMENT[0], create, methods=["POST", "PUT"])
    routes.add_api_route("/experiments", every, methods=["GET"])
    routes.add_api_route("/experiments:query", every, methods=["POST"])


def _of_many_runs(routes: APIRouter, caller: Caller, room: Room) -> None:
    the_call = Annotated[Call, Depends(caller)]

    @routes.post("/rundata")
    def data(call: the_call, request: Request) -> JSONResponse:
        job = _job(room, call, _run_id(call.document))
        return JSONResponse(_run_data(call, job, request.headers.get("user-agent", "")))

    @routes.post("/batchrundata")
    def batch(call: the_call, request: Request) -> JSONResponse:
        asked = call.document.get("runIds")
        if not isinstance(asked, list) or len(asked) > _MOST_IN_BATCH:
            raise InvalidInput(f"`runIds` is no list of up to {_MOST_IN_BATCH} runs", at=["runIds"])
        agent = request.headers.get("user-agent", "")
        values, errors = {}, {}
        for name in map(str, asked):
            try:
                values[name] = _run_data(call, _job(room, call, name), agent)
            except TorchyardError as error:
                errors[name] = {"error": runs.refused(error)}
        return JSONResponse({"runData": values, "errors": errors})

    def query(call: the_call, experiment: str = "") -> JSONResponse:
        return JSONResponse(_queried(room, call, _experiment_name(room, call, experiment)))

    for top in ("", *_BY_EXPERIMENT):
        routes.add_api_route(f"{top}/runs:query", query, methods=["POST"])
    for top in _BY_EXPERIMENT:
        routes.add_api_route(f"{top}/runs", query, methods=["GET"])


def _queried(room: Room, call: Call, experiment: str) -> dict[str, Any]:
    asked = call.body if isinstance(call.body, Mapping) else {}
    fits = run_filters.read(str(asked.get("filter") or call.query.get("$filter") or ""))
    top = asked.get("top") or ask_of(call).most
    if not isinstance(top, int) or not 0 < top <= _MOST:
        raise InvalidInput(f"`top` is `{str(top)[:20]}`", f"a number from 1 to {_MOST}", at=["top"])
    token = str(asked.get("continuationToken") or call.query.get("$continuationToken") or "")
    found: list[Job] = []
    before = int(token) if token.isdecimal() else None
    while len(found) < top:
        page = actions.list_in(
            room, call.workspace.name, experiment_name=experiment, before=before, limit=_PAGE
        )
        found += [job for job in page if fits(runs.to_json(call, job))]
        if len(page) < _PAGE:
            break
        before = page[-1].id
    more = len(found) > top or (len(found) == top and before is not None)
    shown = found[:top]
    order = asked.get("orderby")
    if isinstance(order, str) and order.lower().startswith("runid"):
        shown = sorted(shown, key=lambda job: job.name)
    answer = _page(call, [runs.to_json(call, job) for job in shown])
    if more and shown:
        answer["continuationToken"] = str(min(job.id for job in shown))
    return answer


def _run_data(call: Call, job: Job, agent: str) -> dict[str, Any]:
    metadata = runs.to_json(call, job)
    metadata["outputs"] = runs.outputs(job, agent)
    wanted = call.document.get("selectJobSpecification")
    return {
        "runMetadata": metadata,
        "runDefinition": None,
        "jobSpecification": runs.definition(call, job) if wanted else None,
    }


def _run_id(document: Mapping[str, Any]) -> str:
    found = document.get("runId")
    if not isinstance(found, str) or not found:
        raise InvalidInput("the request names no run", "give its `runId`", at=["runId"])
    return found


def _job(room: Room, call: Call, name: str) -> Job:
    return actions.get(room, call.workspace.name, name)


def _experiment(room: Room, call: Call, wanted: str) -> Experiment:
    """By its name, or by its id where the path has one."""
    by_id = "/experimentids/" in call.path
    if by_id and wanted.isdecimal() and len(wanted) < 19:
        return histories.experiment(room, call.workspace.name, int(wanted))
    found = None if by_id else histories.experiment_named(room, call.workspace.name, wanted)
    if found is None:
        raise NotFound(
            f"experiment `{wanted}` does not exist in workspace `{call.workspace.name}`",
            "list what exists with `yard experiment list`",
        )
    return found


def _experiment_name(room: Room, call: Call, wanted: str) -> str:
    """Empty when the path has none, as written where there is none of that name yet."""
    if "/experimentids/" in call.path and wanted:
        return _experiment(room, call, wanted).name
    return wanted


def _experiment_json(call: Call, experiment: Experiment) -> dict[str, Any]:
    return {
        "experimentId": str(experiment.id),
        "name": experiment.name,
        "description": None,
        "createdUtc": timestamp(experiment.created_at),
        "tags": experiment.tags,
        "archivedTime": None,
        "retainForLifetimeOfWorkspace": False,
        "artifactLocation": None,
        "latestModifiedRunUtc": None,
    }


def _page(call: Call, value: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"value": list(value), "continuationToken": None, "nextLink": None}
