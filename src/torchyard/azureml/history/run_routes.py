"""The run history's routes of runs: used by SDK v1, by SDK v2's `stream` and `download`, and by the
plug-in.

Owns: the routes of runs and of queries over them.
Leaves: a run's JSON to runs.py, experiments to experiment_routes.py, artifacts to
blob/artifact_routes.py, changing jobs to jobs/actions.py.
Always: a run has the same routes below `runs/`, `experiments/<name>/runs/` and
`experimentids/<id>/runs/`.

Source: REST.md sections 4 to 6; the requests of azure-ai-ml 1.35, 1.20, 1.12 and azureml-core 1.61.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from torchyard.azureml.arm.assets import query_value
from torchyard.azureml.arm.resources import continuation_id, page_request, timestamp
from torchyard.azureml.blob.links import BlobLinks
from torchyard.azureml.common.calls import AzureCall, Call, object_at
from torchyard.azureml.common.context import Context, context_of
from torchyard.azureml.common.routing import RouteTable
from torchyard.azureml.history import (
    experiment_routes,
    pipeline_runs,
    run_changes,
    run_filters,
    runs,
)
from torchyard.azureml.history.experiment_routes import BY_EXPERIMENT
from torchyard.azureml.history.followers import Followers
from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import Conflict, Forbidden, InvalidInput, TorchyardError
from torchyard.batch_endpoints.actions import invocations
from torchyard.interactive.job_routes import JobServicesOf
from torchyard.jobs import actions, owners
from torchyard.jobs.records.types import Job, Status
from torchyard.jobs.requests import job_queries
from torchyard.jobs.services import RecordServices, ServicesOf
from torchyard.workspaces import jwts
from torchyard.workspaces.access import bearer_token
from torchyard.workspaces.guarded_routes import needs
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import TokenKind

_RUNS = tuple(f"{top}/runs/{{name}}" for top in ("", *BY_EXPERIMENT))
# This client requests a run's details only in order to follow it; see followers.py.
_STREAMING_AGENT = "azure-ai-ml"
_V1_AGENT = "azureml-sdk-core"
_JUST_ENDED_S = 60.0
_MAX_RUNS = 1000
_MAX_BATCH = 200
_PAGE = 100

routes = RouteTable("/history")


async def _followers(request: Request) -> Followers:
    return context_of(request).shared(Followers, Followers)


RunFollowers = Annotated[Followers, Depends(_followers)]


def _below(suffix: str = "") -> tuple[str, ...]:
    """The paths of one operation on a run."""
    return tuple(f"{run}{suffix}" for run in _RUNS)


@routes.get(*_below())
@needs(Permission.READ)
def get(call: AzureCall, services: ServicesOf, followers: RunFollowers, name: str) -> JSONResponse:
    job = _job(services, call, name)
    return JSONResponse(runs.with_trials(services.db, job, _json_for(followers, call, job)))


@routes.get(*_below("/serviceinstances/{node}"))
@needs(Permission.READ)
async def service_instances(
    call: AzureCall, services: ServicesOf, running: JobServicesOf, name: str, node: int
) -> JSONResponse:
    """Those of one node, each with a link for who may open it."""
    job = await run_in_threadpool(_job, services, call, name)
    states = await run_in_threadpool(running.states, job)
    instances = {}
    for state in states:
        if state.node == node:
            link = state.endpoint
            if call.identity.kind is not TokenKind.PERSON:
                continue  # a script gets no link to what its owner opens
            with suppress(Forbidden, Conflict):
                link = await running.link(job, state.name, node, call.identity)
            instances[state.name] = runs.service_instance(state, link)
    return JSONResponse({"instances": instances})


@routes.route(["PATCH", "PUT"], *_below())
@needs(Permission.JOB)
def put(
    call: AzureCall,
    services: ServicesOf,
    followers: RunFollowers,
    name: str,
    experiment: str = "",
) -> JSONResponse:
    _refuse_foreign(services.db, call, name)
    experiment_name = experiment_routes.name_of(services, call, experiment)
    job = run_changes.put(services, call, name, experiment_name)
    return JSONResponse(_json_for(followers, call, job))


@routes.get(*_below("/details"))
@needs(Permission.READ)
def get_details(
    call: AzureCall,
    services: ServicesOf,
    followers: RunFollowers,
    links: BlobLinks,
    request: Request,
    name: str,
) -> JSONResponse:
    job = _job(services, call, name)
    details = runs.details(services, call, job, partial(links.url, host_style=False))
    if not job.status.ended:
        return JSONResponse(details)
    agent, follower = request.headers.get("user-agent", ""), _follower(call, job)
    knew_end = followers.learn_end(*follower)
    if _STREAMING_AGENT in agent:
        if followers.starts(*follower):
            details["status"] = Status.FINALIZING.value
        else:
            followers.ends(*follower)
    elif _V1_AGENT in agent and not knew_end and _just_ended(services.clock, job):
        details["status"] = Status.FINALIZING.value
    return JSONResponse(details)


@routes.get(*_below("/token"))
@needs(Permission.READ)
def get_token(
    call: AzureCall, services: ServicesOf, context: Context, request: Request, name: str
) -> JSONResponse:
    """The caller's own token, which is good for the run's requests already.

    azureml-mlflow 1.48, the newest for Python 3.6, asks for a fresh one before its first request.
    """
    _job(services, call, name)
    token, now = bearer_token(request.scope), services.clock.now()
    if jwts.is_jwt(token):
        ends_at = context.signer.read(token, now).ends_at
    else:
        ends_at = min(now + jwts.LIFETIME, call.identity.expires_at or now + jwts.LIFETIME)
        token = context.signer.sign(token, call.identity.user, call.base, now, ends_at)
    body = {"token": token, "expiryTimeUtc": timestamp(ends_at)}
    return JSONResponse(body, headers={"cache-control": "no-store"})


@routes.get(*_below("/children"))
@needs(Permission.READ)
def list_children(
    call: AzureCall, services: ServicesOf, followers: RunFollowers, request: Request, name: str
) -> JSONResponse:
    page = page_request(call)
    # azure-ai-ml sends no limit, and from 1.35 on reads only the first page.
    limit = page.limit if query_value(call, "top") else _MAX_RUNS
    jobs = job_queries.list_in(
        services,
        call.workspace.name,
        parent=name,
        before=continuation_id(page.after),
        limit=limit + 1,
    )
    is_azure_ai_ml = _STREAMING_AGENT in request.headers.get("user-agent", "")
    if not jobs and not page.after and is_azure_ai_ml:
        jobs = _scoring_step(services.db, call, name)
    children = jobs[:limit]
    pipeline = actions.find_by_name(services.db, call.workspace.name, name)
    steps = pipeline_runs.steps_of(services, pipeline)
    found = [_json_for(followers, call, job) for job in children]
    body = _page(call, [pipeline_runs.as_child(run, name, steps) for run in found])
    if len(jobs) > limit:
        body["continuationToken"] = str(children[-1].id)
        if is_azure_ai_ml:
            # It follows only the link; SDK v1 would follow the link's path and find nothing.
            body["nextLink"] = _next_link(call, name, children[-1].id)
    return JSONResponse(body)


@routes.post(*_below("/cancel"))
@needs(Permission.JOB)
def cancel(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    _refuse_foreign(services.db, call, name)
    return JSONResponse(runs.to_json(call, actions.cancel(services, call.workspace.name, name)))


@routes.get(*_below("/services"))
@needs(Permission.READ)
def list_services(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    _job(services, call, name)
    return JSONResponse({})


@routes.get(*_below("/serviceinstances/{node}"))
@needs(Permission.READ)
def list_service_instances(
    call: AzureCall, services: ServicesOf, name: str, node: str
) -> JSONResponse:
    _job(services, call, name)
    return JSONResponse({"instances": {}})


@routes.route(["PATCH", "DELETE"], *_below("/tags"))
@needs(Permission.JOB)
def change_tags(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    _refuse_foreign(services.db, call, name)
    return JSONResponse(runs.to_json(call, run_changes.change_tags(services, call, name)))


@routes.post(*_below("/events"))
@needs(Permission.LOG)
def add_event(call: AzureCall, services: ServicesOf, name: str) -> JSONResponse:
    _refuse_foreign(services.db, call, name)
    run_changes.note_event(services, call, name)
    return JSONResponse({})


batch_routes = RouteTable("/history")
"""The routes of several runs at once."""


@batch_routes.post("/rundata")
@needs(Permission.READ)
def get_data(call: AzureCall, services: ServicesOf, request: Request) -> JSONResponse:
    job = _job(services, call, _run_id(call.document))
    return JSONResponse(_run_data(services, call, job, request.headers.get("user-agent", "")))


@batch_routes.post("/batchrundata")
@needs(Permission.READ)
def get_data_of_many(call: AzureCall, services: ServicesOf, request: Request) -> JSONResponse:
    agent = request.headers.get("user-agent", "")
    values, errors = {}, {}
    for name in map(str, _batch(call, "runIds")):
        try:
            values[name] = _run_data(services, call, _job(services, call, name), agent)
        except TorchyardError as error:
            errors[name] = {"error": runs.batch_error_json(error)}
    return JSONResponse({"runData": values, "errors": errors})


@batch_routes.patch("/experiments/{experiment}/batch/runs")
@needs(Permission.JOB)
def put_many(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    bodies = _batch(call, "runs")
    names = [_run_id(body if isinstance(body, Mapping) else {}) for body in bodies]
    _refuse_foreign(services.db, call, *names)
    jobs: dict[str, Job] = {}
    for name, body in zip(names, bodies, strict=True):
        jobs[name] = run_changes.put(services, replace(call, body=body), name, experiment)
    return JSONResponse(
        {"runs": {name: runs.to_json(call, job) for name, job in jobs.items()}, "errors": {}}
    )


@batch_routes.post("/experiments/{experiment}/batch/events")
@needs(Permission.LOG)
def add_events(call: AzureCall, services: ServicesOf, experiment: str) -> JSONResponse:
    events = _batch(call, "events")
    data = [object_at(event if isinstance(event, Mapping) else {}, "data") for event in events]
    names = [_run_id({"runId": fields.get("RunId")}) for fields in data]
    _refuse_foreign(services.db, call, *names)
    for name, event in zip(names, events, strict=True):
        run_changes.note_event(services, replace(call, body=event), name)
    return JSONResponse({"errors": []})


@needs(Permission.READ)
def query(
    call: AzureCall, services: ServicesOf, followers: RunFollowers, experiment: str = ""
) -> JSONResponse:
    experiment_name = experiment_routes.name_of(services, call, experiment)
    return JSONResponse(_query(services, call, experiment_name, followers))


for _top in ("", *BY_EXPERIMENT):
    batch_routes.add(["POST"], f"{_top}/runs:query", query)
for _top in BY_EXPERIMENT:
    batch_routes.add(["GET"], f"{_top}/runs", query)


def _batch(call: Call, key: str) -> list[Any]:
    """
    Raises:
        InvalidInput: the body has no list of at most `_MAX_BATCH` items there.
    """
    batch = call.document.get(key)
    if not isinstance(batch, list) or len(batch) > _MAX_BATCH:
        raise InvalidInput(f"`{key}` is not a list of up to {_MAX_BATCH} items", at=[key])
    return batch


def _query(
    services: RecordServices, call: Call, experiment: str, followers: Followers
) -> dict[str, Any]:
    request = call.body if isinstance(call.body, Mapping) else {}
    matches = run_filters.read(str(request.get("filter") or call.query.get("$filter") or ""))
    top = request.get("top") or page_request(call).limit
    if not isinstance(top, int) or not 0 < top <= _MAX_RUNS:
        raise InvalidInput(
            f"`top` is `{str(top)[:20]}`", f"it must be a number from 1 to {_MAX_RUNS}", at=["top"]
        )
    token = str(request.get("continuationToken") or call.query.get("$continuationToken") or "")
    jobs: list[Job] = []
    before = continuation_id(token)
    while len(jobs) < top:
        page = job_queries.list_in(
            services,
            call.workspace.name,
            experiment_name=experiment,
            having=matches.requires,
            before=before,
            limit=_PAGE,
        )
        jobs += [job for job in page if matches(runs.to_json(call, job))]
        if len(page) < _PAGE:
            break
        before = page[-1].id
    has_more = len(jobs) > top or (len(jobs) == top and before is not None)
    jobs = jobs[:top]
    order = request.get("orderby")
    if isinstance(order, str) and order.lower().startswith("runid"):
        jobs = sorted(jobs, key=lambda job: job.name)
    body = _page(call, [_json_for(followers, call, job) for job in jobs])
    if has_more and jobs:
        body["continuationToken"] = str(min(job.id for job in jobs))
    return body


def _run_data(services: RecordServices, call: Call, job: Job, agent: str) -> dict[str, Any]:
    metadata = runs.to_json(call, job)
    metadata["outputs"] = runs.outputs_for(services, job, agent)
    has_definition = call.document.get("selectJobSpecification")
    return {
        "runMetadata": metadata,
        "runDefinition": None,
        "jobSpecification": runs.definition(call, job) if has_definition else None,
    }


def _json_for(followers: Followers, call: Call, job: Job) -> dict[str, Any]:
    """A run's JSON, from which the person learns whether it has ended."""
    if job.status.ended:
        followers.learn_end(*_follower(call, job))
    return runs.to_json(call, job)


def _follower(call: Call, job: Job) -> tuple[str, str, str]:
    return call.workspace.name, job.name, call.identity.user


def _just_ended(clock: Clock, job: Job) -> bool:
    """By itself: a person who has canceled a run waits for nothing more."""
    ended_at = job.ended_at
    if ended_at is None or job.status is Status.CANCELED:
        return False
    return (clock.now() - ended_at).total_seconds() < _JUST_ENDED_S


def _run_id(document: Mapping[str, Any]) -> str:
    run_id = document.get("runId")
    if not isinstance(run_id, str) or not run_id:
        raise InvalidInput("the request names no run", "add its `runId`", at=["runId"])
    return run_id


def _refuse_foreign(db: Database, call: Call, *names: str) -> None:
    """
    Raises:
        Forbidden: a run belongs to somebody else, and the caller may change only their own.
    """
    owners.refuse_foreign_names(db, call.identity, call.workspace.name, *names, noun="run")


def _next_link(call: Call, name: str, last: int) -> str:
    query = {key: value for key, value in call.query.items() if "token" not in key.lower()}
    text = urlencode({**query, "$continuationToken": str(last)})
    return f"{call.base}/history/v1.0{call.workspace_id}/runs/{quote(name)}/children?{text}"


def _scoring_step(db: Database, call: Call, name: str) -> list[Job]:
    """A batch endpoint's job is a pipeline in Azure, whose step people's code looks up for the
    output; here it is the step itself.
    """
    job = actions.find_by_name(db, call.workspace.name, name)
    return [job] if job is not None and invocations.is_invocation(db, job) else []


def _job(services: RecordServices, call: Call, name: str) -> Job:
    return actions.get(services, call.workspace.name, name)


def _page(call: Call, value: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"value": list(value), "continuationToken": None, "nextLink": None}
