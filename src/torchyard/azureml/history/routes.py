"""The run history: runs as SDK v1, SDK v2's `stream` and `download`, and the plug-in ask for them.

Owns: the routes of runs and of queries over them.
Leaves: a run's JSON to runs.py, experiments to experiment_routes.py, artifacts to
blob/artifact_routes.py, changing jobs to jobs/actions.py.
Always: each question about a run is answered alike below `runs/`, `experiments/<name>/runs/` and
`experimentids/<id>/runs/`.

Source: REST.md sections 4 to 6; the requests of azure-ai-ml 1.35, 1.20, 1.12 and azureml-core 1.61.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.assets import asked_of
from torchyard.azureml.arm.resources import ask_of, mark_of
from torchyard.azureml.common.calls import Call, Caller, part
from torchyard.azureml.common.errors import AzureRoute
from torchyard.azureml.history import experiment_routes, run_changes, run_filters, runs
from torchyard.azureml.history.experiment_routes import BY_EXPERIMENT
from torchyard.azureml.history.followers import Followers
from torchyard.azureml.history.runs import Link
from torchyard.base.errors import InvalidInput, TorchyardError
from torchyard.jobs import actions
from torchyard.jobs.files import owners
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.services import Services
from torchyard.workspaces.access import refuse_foreign

_RUNS = tuple(f"{top}/runs/{{name}}" for top in ("", *BY_EXPERIMENT))
# Whose only use of a run's details is to follow it; see followers.py.
_STREAMS = "azure-ai-ml"
_V1 = "azureml-sdk-core"
_JUST_S = 60.0
_MOST = 1000
_MOST_IN_BATCH = 200
_PAGE = 100


def service(services: Services, link: Link) -> Callable[[Caller], APIRouter]:
    """What app.py mounts.

    Args:
        link: makes a signed link to a file of a datastore, for any program that opens URLs.
    """

    def routes(caller: Caller) -> APIRouter:
        made = APIRouter(prefix="/history", route_class=AzureRoute)
        followers = Followers()
        _of_one_run(made, caller, services, link, followers)
        experiment_routes.add(made, caller, services)
        _of_many_runs(made, caller, services, followers)
        return made

    return routes


def _of_one_run(
    routes: APIRouter, caller: Caller, services: Services, link: Link, followers: Followers
) -> None:
    the_call = Annotated[Call, Depends(caller)]

    def get(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(_told(followers, call, _job(services, call, name)))

    def change(call: the_call, name: str, experiment: str = "") -> JSONResponse:
        changed = run_changes.put(
            services, call, name, experiment_routes.name_of(services, call, experiment)
        )
        return JSONResponse(_told(followers, call, changed))

    def details(call: the_call, request: Request, name: str) -> JSONResponse:
        job = _job(services, call, name)
        told = runs.details(services, call, job, link)
        if not job.status.ended:
            return JSONResponse(told)
        agent, who = request.headers.get("user-agent", ""), _who(call, job)
        knew = followers.knew_end(*who)
        if _STREAMS in agent:
            if followers.begins(*who):
                told["status"] = Status.FINALIZING.value
            else:
                followers.ends(*who)
        elif _V1 in agent and not knew and _just_ended(services, job):
            told["status"] = Status.FINALIZING.value
        return JSONResponse(told)

    def children(call: the_call, request: Request, name: str) -> JSONResponse:
        ask = ask_of(call)
        # azure-ai-ml says no number, and from 1.35 on reads the first page alone.
        most = ask.most if asked_of(call, "top") else _MOST
        found = actions.list_in(
            services,
            call.workspace.name,
            parent=name,
            before=mark_of(ask.after),
            limit=most + 1,
        )
        some = found[:most]
        answer = _page(call, [_told(followers, call, job) for job in some])
        if len(found) > len(some):
            answer["continuationToken"] = str(some[-1].id)
            if _STREAMS in request.headers.get("user-agent", ""):
                # It follows the link alone; SDK v1 would go by the link's words and find none.
                answer["nextLink"] = _link_behind(call, name, some[-1].id)
        return JSONResponse(answer)

    def cancel(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(runs.to_json(call, actions.cancel(services, call.workspace.name, name)))

    def service_list(call: the_call, name: str) -> JSONResponse:
        _job(services, call, name)
        return JSONResponse({})

    def instances(call: the_call, name: str, node: str) -> JSONResponse:
        _job(services, call, name)
        return JSONResponse({"instances": {}})

    def tags(call: the_call, name: str) -> JSONResponse:
        return JSONResponse(runs.to_json(call, run_changes.change_tags(services, call, name)))

    def event(call: the_call, name: str) -> JSONResponse:
        run_changes.note_event(services, call, name)
        return JSONResponse({})

    for top in _RUNS:
        routes.add_api_route(top, get, methods=["GET"])
        routes.add_api_route(top, change, methods=["PATCH", "PUT"])
        routes.add_api_route(f"{top}/details", details, methods=["GET"])
        routes.add_api_route(f"{top}/children", children, methods=["GET"])
        routes.add_api_route(f"{top}/cancel", cancel, methods=["POST"])
        routes.add_api_route(f"{top}/services", service_list, methods=["GET"])
        routes.add_api_route(f"{top}/serviceinstances/{{node}}", instances, methods=["GET"])
        routes.add_api_route(f"{top}/tags", tags, methods=["PATCH", "DELETE"])
        routes.add_api_route(f"{top}/events", event, methods=["POST"])


def _of_many_runs(
    routes: APIRouter, caller: Caller, services: Services, followers: Followers
) -> None:
    the_call = Annotated[Call, Depends(caller)]

    @routes.post("/rundata")
    def data(call: the_call, request: Request) -> JSONResponse:
        job = _job(services, call, _run_id(call.document))
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
                values[name] = _run_data(call, _job(services, call, name), agent)
            except TorchyardError as error:
                errors[name] = {"error": runs.refused(error)}
        return JSONResponse({"runData": values, "errors": errors})

    @routes.patch("/experiments/{experiment}/batch/runs")
    def put_many(call: the_call, experiment: str) -> JSONResponse:
        asked = call.document.get("runs")
        if not isinstance(asked, list) or len(asked) > _MOST_IN_BATCH:
            raise InvalidInput(f"`runs` is no list of up to {_MOST_IN_BATCH} runs", at=["runs"])
        made: dict[str, Any] = {}
        named = [(_run_id(one if isinstance(one, Mapping) else {}), one) for one in asked]
        _refuse_foreign(services, call, [name for name, _ in named])
        for name, one in named:
            made[name] = run_changes.put(services, replace(call, body=one), name, experiment)
        return JSONResponse(
            {"runs": {name: runs.to_json(call, job) for name, job in made.items()}, "errors": {}}
        )

    @routes.post("/experiments/{experiment}/batch/events")
    def note_many(call: the_call, experiment: str) -> JSONResponse:
        asked = call.document.get("events")
        if not isinstance(asked, list) or len(asked) > _MOST_IN_BATCH:
            raise InvalidInput(f"`events` is no list of up to {_MOST_IN_BATCH}", at=["events"])
        told = [part(one if isinstance(one, Mapping) else {}, "data") for one in asked]
        names = [_run_id({"runId": one.get("RunId")}) for one in told]
        _refuse_foreign(services, call, names)
        for name, one in zip(names, asked, strict=True):
            run_changes.note_event(services, replace(call, body=one), name)
        return JSONResponse({"errors": []})

    def query(call: the_call, experiment: str = "") -> JSONResponse:
        wanted = experiment_routes.name_of(services, call, experiment)
        return JSONResponse(_queried(services, call, wanted, followers))

    for top in ("", *BY_EXPERIMENT):
        routes.add_api_route(f"{top}/runs:query", query, methods=["POST"])
    for top in BY_EXPERIMENT:
        routes.add_api_route(f"{top}/runs", query, methods=["GET"])


def _queried(
    services: Services, call: Call, experiment: str, followers: Followers
) -> dict[str, Any]:
    asked = call.body if isinstance(call.body, Mapping) else {}
    fits = run_filters.read(str(asked.get("filter") or call.query.get("$filter") or ""))
    top = asked.get("top") or ask_of(call).most
    if not isinstance(top, int) or not 0 < top <= _MOST:
        raise InvalidInput(f"`top` is `{str(top)[:20]}`", f"a number from 1 to {_MOST}", at=["top"])
    token = str(asked.get("continuationToken") or call.query.get("$continuationToken") or "")
    found: list[Job] = []
    before = mark_of(token)
    while len(found) < top:
        page = actions.list_in(
            services, call.workspace.name, experiment_name=experiment, before=before, limit=_PAGE
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
    answer = _page(call, [_told(followers, call, job) for job in shown])
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


def _told(followers: Followers, call: Call, job: Job) -> dict[str, Any]:
    if job.status.ended:
        followers.knew_end(*_who(call, job))
    return runs.to_json(call, job)


def _who(call: Call, job: Job) -> tuple[str, str, str]:
    return call.workspace.name, job.name, call.identity.user


def _just_ended(services: Services, job: Job) -> bool:
    """By itself: who has canceled a run waits for nothing more."""
    ended_at = job.ended_at
    if ended_at is None or job.status is Status.CANCELED:
        return False
    return (services.clock.now() - ended_at).total_seconds() < _JUST_S


def _run_id(document: Mapping[str, Any]) -> str:
    found = document.get("runId")
    if not isinstance(found, str) or not found:
        raise InvalidInput("the request names no run", "give its `runId`", at=["runId"])
    return found


def _refuse_foreign(services: Services, call: Call, names: Sequence[str]) -> None:
    """What access.py does where the path names the run.

    Raises:
        Forbidden: one of them is another's, and who asks reaches their own alone.
    """
    for name in names:
        owner = owners.of_name(services, call.workspace.name, name)
        refuse_foreign(call.identity, owner, f"run `{name}`")


def _link_behind(call: Call, name: str, last: int) -> str:
    kept = {key: value for key, value in call.query.items() if "token" not in key.lower()}
    query = urlencode({**kept, "$continuationToken": str(last)})
    return f"{call.base}/history/v1.0{call.workspace_id}/runs/{quote(name)}/children?{query}"


def _job(services: Services, call: Call, name: str) -> Job:
    return actions.get(services, call.workspace.name, name)


def _page(call: Call, value: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"value": list(value), "continuationToken": None, "nextLink": None}
