"""Jobs as Azure Resource Manager resources.

Owns: creating, changing, listing, canceling and deleting jobs by Azure's JSON.
Leaves: reading a body to job_documents.py and what other types have, a job's JSON to job_views.py.
Always: a repeated create returns the existing job; a PUT of an existing job changes only its
description, tags and the like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torchyard.azureml.arm import assets, job_resources, job_views
from torchyard.azureml.arm.job_documents import NOT_SERVED, Reader
from torchyard.azureml.arm.job_views import KINDS
from torchyard.azureml.arm.resources import (
    Action,
    Page,
    PageRequest,
    Permissions,
    PutResult,
    Resource,
    continuation_id,
)
from torchyard.azureml.common.calls import Call
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions, owners
from torchyard.jobs.cleanup import deletion, removal
from torchyard.jobs.records.types import COMMAND, Job
from torchyard.jobs.requests import job_queries, job_types
from torchyard.jobs.services import Services
from torchyard.workspaces.permissions import Permission
from torchyard.workspaces.types import Role

_VIEWS: dict[str, bool | None] = {"activeonly": False, "archivedonly": True, "all": None}
_FIELDS = {"displayName": "display_name", "description": "description"}


@dataclass(frozen=True)
class Jobs:
    """The `Kind` of jobs.

    Args:
        snapshot_of: the snapshot that a `codeId` stands for.
    """

    services: Services
    snapshot_of: Callable[[Call, str], str]
    permissions: ClassVar = Permissions(
        patch=Permission.JOB, delete=Permission.JOB, actions={"cancel": Permission.JOB}
    )

    @property
    def actions(self) -> Mapping[str, Action]:
        return {"cancel": self._cancel}

    def list(self, call: Call, request: PageRequest) -> Page:
        kind = assets.query_value(call, "jobtype").lower()
        if kind in NOT_SERVED and kind not in KINDS:
            return Page([])
        tag = assets.query_value(call, "tag")
        jobs = job_queries.list_in(
            self.services,
            call.workspace.name,
            archived=_view(call),
            tags=[tag] if tag else (),
            before=continuation_id(request.after),
            limit=request.limit,
            types=[kind] if kind in KINDS else tuple(KINDS),
            with_trials=False,
        )
        has_more = len(jobs) == request.limit and not assets.query_value(call, "top")
        following = str(jobs[-1].id) if has_more else ""
        return Page([self._resource(call, job) for job in jobs], following)

    def get(self, call: Call, name: str) -> Resource:
        job = actions.get(self.services, call.workspace.name, name)
        if job.deleted:
            raise NotFound(
                f"job `{name}` of workspace `{call.workspace.name}` was deleted",
                "list what exists with `yard job list`",
            )
        return self._resource(call, job, self.services.history.params(job.id))

    def put(self, call: Call, name: str) -> PutResult:
        if call.method == "PATCH":
            return self._patch(call, name)
        _matches(call, name)
        existing = actions.find_by_name(self.services.db, call.workspace.name, name)
        return self._create(call, name) if existing is None else self._again(call, existing)

    def _patch(self, call: Call, name: str) -> PutResult:
        job = actions.get(self.services, call.workspace.name, name)
        return PutResult(self._resource(call, self._change(call, job)), new=False)

    def _create(self, call: Call, name: str) -> PutResult:
        document = self._document(call, name, None)
        workspace = call.workspace.name
        job, is_new = job_types.create(self.services, workspace, document, call.identity)
        return PutResult(self._resource(call, job)) if is_new else self._again(call, job)

    def _again(self, call: Call, job: Job) -> PutResult:
        """A job that is there, sent again: it must be the same but for what may be changed."""
        self._require_same(job, self._document(call, job.name, job))
        return PutResult(self._resource(call, self._change(call, job)), new=False)

    def _document(self, call: Call, name: str, job: Job | None) -> dict[str, Any]:
        """What the body of a request means.

        Args:
            job: the one of that name, if it is there.
        """
        reader = Reader(call.workspace.name, lambda code_id: self._snapshot(call, job, code_id))
        kind = KINDS.get(str(call.properties.get("jobType") or "").lower(), KINDS[COMMAND])
        return kind.read(reader, name, call.properties)

    def delete(self, call: Call, name: str) -> None:
        owners.refuse_foreign_names(self.services.db, call.identity, call.workspace.name, name)
        choice = deletion.Choice(names=[name])
        deleted = deletion.delete_by(self.services, call.workspace.name, choice, call.identity)
        removal.work_now(self.services, deleted.jobs)
        self.services.wakeup.set()

    def _cancel(self, call: Call, name: str) -> None:
        owners.get_own(self.services, call.workspace.name, name, call.identity)
        actions.cancel(self.services, call.workspace.name, name)

    def _change(self, call: Call, job: Job) -> Job:
        """The job, changed as the call's body says; a PUT has all tags, a PATCH some."""
        # Permission to submit does not include others' jobs.
        identity = replace(call.identity, own_only=call.identity.role is Role.DATA_SCIENTIST)
        owners.refuse_foreign(identity, job)
        properties = call.properties
        if job.type not in KINDS:
            raise InvalidInput(f"`{job.name}` is a run that was started outside any job")
        fields: dict[str, Any] = {
            field: properties[key]
            for key, field in _FIELDS.items()
            if properties.get(key) is not None
        }
        tags = properties.get("tags")
        if isinstance(tags, Mapping):
            removed = {} if call.method == "PATCH" else {key: None for key in job.tags}
            fields["tags"] = {**removed, **tags}
        elif tags is not None:
            raise InvalidInput("`tags` of the job is not a JSON object", at=["properties", "tags"])
        changes = replace(actions.read_changes(fields), archived=assets.requested_archived(call))
        if isinstance(properties.get("properties"), Mapping):
            new_properties = actions.read_properties(properties["properties"])
            changes = replace(changes, properties=new_properties)
        return actions.change(self.services, job, changes)

    def _require_same(self, job: Job, document: dict[str, Any]) -> None:
        """
        Raises:
            Conflict: the document is another job's.
        """
        trial = document.get("trial") or document
        if self._is_anonymous_environment(job, trial.get("environment")):
            trial["environment"] = _trial_of(job)["environment"]
        KINDS.get(job.type, KINDS[COMMAND]).require_same(self.services, job, document)

    def _snapshot(self, call: Call, job: Job | None, code_id: str) -> str:
        """The snapshot of a code; clients see a job's own snapshot as the name of its code."""
        if job is not None and job.type in KINDS:
            snapshot = str(_trial_of(job).get("code") or "").removeprefix(SNAPSHOT_PREFIX)
            if snapshot and code_id.endswith(f"/codes/{snapshot}/versions/1"):
                return snapshot
        return self.snapshot_of(call, code_id)

    def _is_anonymous_environment(self, job: Job, reference: Any) -> bool:
        """Whether it is the name that clients see for the job's environment without a name."""
        prefix = job_resources.anonymous("")
        if not isinstance(reference, str) or not reference.startswith(prefix):
            return False
        return reference == prefix + actions.environment_hash(self.services.db, job)

    def _resource(self, call: Call, job: Job, params: Mapping[str, str] | None = None) -> Resource:
        environment = _trial_of(job).get("environment")
        environment_hash = ""
        if job.type in KINDS and not isinstance(environment, str):
            environment_hash = actions.environment_hash(self.services.db, job)
        return job_views.to_resource(call, job, environment_hash, params)


def _trial_of(job: Job) -> Mapping[str, Any]:
    """The part of a job's file that names code and environment."""
    trial = job.document.get("trial")
    return trial if isinstance(trial, Mapping) else job.document


def _view(call: Call) -> bool | None:
    """
    Raises:
        InvalidInput: `listViewType` is not one of Azure's.
    """
    view = assets.query_value(call, "listviewtype") or "ActiveOnly"
    if view.lower() not in _VIEWS:
        raise InvalidInput(
            f"`listViewType` is `{view[:40]}`", "use ActiveOnly, ArchivedOnly or All"
        )
    return _VIEWS[view.lower()]


def _matches(call: Call, name: str) -> None:
    written = call.document.get("name")
    if written not in (None, "", name):
        raise InvalidInput(
            f"the body names job `{str(written)[:80]}`, and the URL `{name}`", at=["name"]
        )
