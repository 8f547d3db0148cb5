"""Writes that arrive most often, done for many requests in one transaction.

Owns: logging metrics, parameters and tags, and creating runs, as base/group_commit.py gathers them.
Leaves: the same for one request, and every refusal, to run_routes.py.
Always: what is written and answered is what the route does by itself; whatever is out of the
ordinary, such as a run that does not exist, is left to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import NamedTuple

from fastapi import Response
from fastapi.responses import JSONResponse
from sqlalchemy import Connection

from torchyard.base.group_commit import Plan
from torchyard.jobs.actions import job_key_of
from torchyard.jobs.files import owners
from torchyard.jobs.history import history
from torchyard.jobs.history.history import RunData
from torchyard.jobs.history.history_records import Record
from torchyard.jobs.records import run_rows
from torchyard.jobs.records.run_rows import LoggedRun
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import runs
from torchyard.jobs.requests.runs import RunRequest
from torchyard.jobs.services import Services
from torchyard.mlflow import lookups, translate
from torchyard.mlflow.calls import Call, JointWrite
from torchyard.workspaces.types import TokenKind

_MAX_REQUEST_ID_LENGTH = 64
# Made once for all requests: nobody changes it.
_LOGGED = JSONResponse({})
ReadRecords = Callable[[Call], Sequence[Record]]


class _Log(NamedTuple):
    services: Services
    call: Call
    run_id: str
    records: Sequence[Record]


def _joint_log(read: ReadRecords) -> JointWrite:
    """The joint write of a route that logs what `read` finds in a call."""

    def begin(services: Services, call: Call) -> _Log:
        run_id = call.text("run_id", "run_uuid")
        return _Log(services, call, run_id, read(call))

    return JointWrite(begin, _plan_logs, _logged)


def _plan_logs(connection: Connection, logs: Sequence[_Log]) -> Plan:
    names: dict[str, set[str]] = {}
    for log in logs:
        names.setdefault(log.call.workspace, set()).add(log.run_id)
    rows = {
        workspace: run_rows.runs_to_log_to(connection, workspace, some)
        for workspace, some in names.items()
    }
    targets = [_target(log, rows[log.call.workspace].get(log.run_id)) for log in logs]
    additions = [(job_id, log.records) for log, job_id in zip(logs, targets, strict=True) if job_id]
    parts: set[str] | None = set()
    for job_id, records in additions:
        needed = history.parts_of(job_id, records)
        parts = None if parts is None or needed is None else parts.union(needed)

    def apply() -> list[int | None]:
        if additions:
            logs[0].services.history.append_all(connection, additions)
        return targets

    return Plan(None if parts is None else sorted(parts), apply)


def _target(log: _Log, run: LoggedRun | None) -> int | None:
    """The job to log to; None where the route has something to refuse."""
    if run is None or run.deleted:
        return None
    identity = log.call.identity
    owner = run.properties.get(owners.MADE_BY, run.owner)
    return None if identity.own_only and owner and owner != identity.user else run.id


def _logged(log: _Log, job_id: int) -> Response:
    log.services.signals.notify(job_key_of(job_id))
    return _LOGGED


@dataclass(frozen=True)
class _Creation:
    """`experiment` is the id that the client sent; the number in `wanted` is not known yet."""

    services: Services
    call: Call
    experiment: str
    wanted: RunRequest


def _begin_creation(services: Services, call: Call) -> _Creation:
    experiment = call.text("experiment_id", default="0")
    return _Creation(services, call, experiment, new_run(call, experiment_id=0))


def new_run(call: Call, experiment_id: int) -> RunRequest:
    """The run that a call of `runs/create` wants."""
    tags = translate.read_tags(call)
    is_script = call.identity.kind is TokenKind.RUN
    script_run = call.identity.subject.rpartition("/")[2] if is_script else ""
    return RunRequest(
        call.workspace,
        experiment_id,
        owner=call.text("user_id", default="") or call.identity.user,
        display_name=call.text("run_name", default="") or tags.get(translate.RUN_NAME, ""),
        started_at=call.time("start_time") or datetime.now(timezone.utc),
        parent=tags.get(translate.PARENT, script_run),
        tags=tags,
        request=call.request_id[:_MAX_REQUEST_ID_LENGTH],
        made_by=call.identity.user,
    )


def _plan_creations(connection: Connection, creations: Sequence[_Creation]) -> Plan:
    def apply() -> list[Job | None]:
        places = {
            place: lookups.experiment_if_any(connection, *place)
            for place in {(creation.call.workspace, creation.experiment) for creation in creations}
        }
        wanted = [places[creation.call.workspace, creation.experiment] for creation in creations]
        requests = [
            (creation.wanted, place)
            for creation, place in zip(creations, wanted, strict=True)
            if place is not None
        ]
        jobs = iter(runs.create_new_runs(connection, creations[0].services, requests))
        return [None if place is None else next(jobs) for place in wanted]

    return Plan(None, apply)


def _created(creation: _Creation, job: Job) -> Response:
    call = creation.call
    experiment_id = lookups.client_experiment_id(call, job.experiment_id, job.experiment_name)
    # Nothing was logged to it yet.
    return JSONResponse({"run": translate.run_json(job, experiment_id, RunData())})


CREATION = JointWrite(_begin_creation, _plan_creations, _created)
LOG_METRIC = _joint_log(lambda call: [translate.read_metric(call.fields)])
LOG_PARAMETER = _joint_log(lambda call: [translate.read_param(call.fields)])
LOG_BATCH = _joint_log(translate.read_batch)
