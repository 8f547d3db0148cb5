"""Changes of runs through the run history.

Owns: names, tags, properties, archiving of any run; creating and ending runs that are not jobs.
Leaves: the routes to run_routes.py; a job's status to its scheduler.
Always: tags and properties are merged; clients can't set a job's status.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from torchyard.azureml.common.calls import Call, tags_at
from torchyard.azureml.sdk_v1.snapshots import Snapshots
from torchyard.base.clock import from_text
from torchyard.base.errors import InvalidInput
from torchyard.jobs import actions
from torchyard.jobs.attempts import failure_marks
from torchyard.jobs.records.types import Job, JobError, Status
from torchyard.jobs.requests import late_code, local_runs, runs
from torchyard.jobs.services import RecordServices, Services
from torchyard.jobs.spec import parts

_LONGEST_MESSAGE = 10_000
_EVENTS = {
    "start": Status.RUNNING,
    "end": Status.COMPLETED,
    "complete": Status.COMPLETED,
    "completed": Status.COMPLETED,
    "fail": Status.FAILED,
    "failed": Status.FAILED,
    "error": Status.FAILED,
    "cancel": Status.CANCELED,
    "canceled": Status.CANCELED,
    "cancelled": Status.CANCELED,
}


def put(services: Services, call: Call, name: str, experiment: str) -> Job:
    """Change a run as the call's body says; create it first if there is none of that name.

    Raises:
        NotFound: there is none, and the request does not name the experiment to create it in.
        InvalidInput: a value of the wrong form.
    """
    request, workspace = call.document, call.workspace.name
    job = actions.find_by_name(services.db, workspace, name)
    if job is None:
        if not experiment:
            return actions.get(services, workspace, name)  # raises NotFound
        job = _create(services, call, name, experiment)
    changes: dict[str, Any] = {}
    display_name = request.get("displayName") or (request.get("name") if job.is_run else None)
    if display_name and display_name != job.display_name:
        changes["display_name"] = display_name
    if request.get("description") is not None and request["description"] != job.description:
        changes["description"] = request["description"]
    tags = tags_at(request, "tags")
    if any(job.tags.get(key) != value for key, value in tags.items()):
        changes["tags"] = tags
    if changes:
        actions.update(services, workspace, name, changes)
    properties = tags_at(request, "properties")
    if properties:
        actions.add_properties(services, workspace, name, properties)
        snapshot_id = properties.get("ContentSnapshotId")
        # An owner of the workspace may change a run, and not what runs as another person.
        if snapshot_id and late_code.is_awaited(job) and job.owner == call.identity.user:
            snapshot = Snapshots(services.blobs, services.datastores).find(workspace, snapshot_id)
            late_code.add(services, job, snapshot.id)
    hidden = request.get("hidden")
    if isinstance(hidden, bool) and hidden != job.archived:
        actions.archive(services, workspace, name, hidden)
    if _is_set_by_client(job) and request.get("status"):
        status = actions.status_named(str(request["status"]))
        if status is not job.status:
            runs.change_run(
                services, workspace, name, status=status, ended_at=_time(request.get("endTimeUtc"))
            )
    return actions.get(services, workspace, name)


def change_tags(services: Services, call: Call, name: str) -> Job:
    """Delete tags and set others: a DELETE's body names the deleted ones, a PATCH's has both."""
    body = call.body
    removed = body if isinstance(body, list) else None
    if isinstance(body, Mapping):
        removed = body.get("deletes") or body.get("deletedTags") or body.get("values") or []
    if not isinstance(removed, list):
        raise InvalidInput("the request names no tags", "send a list of their names")
    changes: dict[str, str | None] = {str(key): None for key in removed}
    if isinstance(body, Mapping):
        changes.update(tags_at(body, "tags"))
    return actions.update(services, call.workspace.name, name, {"tags": changes})


def note_event(services: Services, call: Call, name: str) -> None:
    """A client reports that its own run started or ended; a job can only be canceled."""
    event = str(call.document.get("name") or "").rpartition(".")[2].lower()
    status = _EVENTS.get(event)
    job = actions.get(services, call.workspace.name, name)
    if _is_set_by_client(job) and (error := _error(call.document.get("data"))) is not None:
        runs.change_run(services, call.workspace.name, name, status=Status.FAILED, error=error)
    elif status is not None and _is_set_by_client(job) and status is not job.status:
        runs.change_run(services, call.workspace.name, name, status=status)
    elif status is Status.CANCELED and not job.status.ended:
        actions.cancel(services, call.workspace.name, name)
    elif status is Status.FAILED and not job.is_run:
        # A job's own script sends only the error: the job fails when the script has ended. A
        # client outside sends then that the run failed, which stops the job.
        error = _error(call.document.get("data"))
        failure_marks.mark(
            services, call.workspace.name, name, error, stop=event in ("fail", "failed")
        )


def _is_set_by_client(job: Job) -> bool:
    """Whether a client sets its status: that of a local run is set by its program."""
    return job.is_run and not local_runs.is_local(job)


def _create(services: RecordServices, call: Call, name: str, experiment: str) -> Job:
    with services.db.write() as connection:
        record = actions.ensure_experiment(
            connection, services.clock, call.workspace.name, experiment
        )
    request, subject = call.document, call.identity.subject
    if not parts.NAME.match(name):
        raise InvalidInput(
            f"`{name[:80]}` is not a valid name for a run",
            "use up to 255 letters, digits, `_` and `-`, starting with a letter or digit",
            at=["runId"],
        )
    return runs.create_run(
        services,
        runs.RunRequest(
            call.workspace.name,
            experiment_id=record.id,
            owner=call.identity.user,
            display_name=str(request.get("displayName") or request.get("name") or ""),
            started_at=_time(request.get("startTimeUtc")) or services.clock.now(),
            parent=str(request.get("parentRunId") or "") or subject.partition("/")[2],
            tags={},
            name=name,
        ),
    )


def _error(data: Any) -> JobError | None:
    """The error that a client reports, for example by `run.fail(error_details=…)`."""
    error: Any = data if isinstance(data, Mapping) else {}
    for name in ("errorresponse", "error"):
        error = next((value for key, value in error.items() if key.lower() == name), None)
        if not isinstance(error, Mapping):
            return None
    message = str(error.get("message") or "")
    if not message:
        return None
    return JobError(str(error.get("code") or "UserError")[:100], message[:_LONGEST_MESSAGE])


def _time(written: Any) -> datetime | None:
    if not written:
        return None
    try:
        return from_text(str(written))
    except ValueError as error:
        raise InvalidInput(
            f"`{str(written)[:40]}` is not a time", "write it as ISO 8601 with a time zone"
        ) from error
