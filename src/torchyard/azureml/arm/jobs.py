"""Jobs as Azure Resource Manager tells them.

Owns: creating, changing, listing, cancelling and deleting jobs in Azure's words.
Leaves: what a body means to job_documents.py, how a job is shown to job_resources.py.
Always: a create that is repeated is the job it made; a PUT on a job that exists changes words
about it and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from torchyard.azureml.arm import assets, job_resources
from torchyard.azureml.arm.job_documents import NOT_SERVED, Reader
from torchyard.azureml.arm.resources import Ask, Made, Page, Resource, Verb, mark_of
from torchyard.azureml.common.calls import Call
from torchyard.base.blobs import SNAPSHOT_PREFIX
from torchyard.base.errors import InvalidInput, NotFound
from torchyard.jobs import actions
from torchyard.jobs.cleanup import deletion, removal
from torchyard.jobs.records import store
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import resubmission, submission
from torchyard.jobs.services import Services
from torchyard.workspaces.access import refuse_foreign
from torchyard.workspaces.types import Role

_COMMAND = "command"
_VIEWS: dict[str, bool | None] = {"activeonly": False, "archivedonly": True, "all": None}
_WORDS = {"displayName": "display_name", "description": "description"}


@dataclass(frozen=True)
class Jobs:
    """The `Kind` of jobs.

    Args:
        snapshot_of: the snapshot that a `codeId` stands for.
    """

    services: Services
    snapshot_of: Callable[[Call, str], str]
    type: str = "jobs"
    verbs: Mapping[str, Verb] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "verbs", {"cancel": self._cancel})

    def list(self, call: Call, ask: Ask) -> Page:
        kind = assets.asked_of(call, "jobtype").lower()
        if kind in NOT_SERVED:
            return Page([])
        tag = assets.asked_of(call, "tag")
        found = actions.list_in(
            self.services,
            call.workspace.name,
            archived=_view(call),
            tags=[tag] if tag else (),
            before=mark_of(ask.after),
            limit=ask.most,
            type=_COMMAND,
        )
        more = len(found) == ask.most and not assets.asked_of(call, "top")
        following = str(found[-1].id) if more else ""
        return Page([self._resource(call, job) for job in found], following)

    def get(self, call: Call, name: str) -> Resource:
        job = actions.get(self.services, call.workspace.name, name)
        if job.deleted:
            raise NotFound(
                f"job `{name}` of workspace `{call.workspace.name}` was deleted",
                "list what exists with `yard job list`",
            )
        return self._resource(call, job, self.services.history.params(job.id))

    def put(self, call: Call, name: str) -> Made:
        workspace = call.workspace.name
        job = actions.named(self.services, workspace, name)
        if call.method == "PATCH":
            return Made(self._resource(call, self._changed(call, self._own(call, name))), new=False)
        properties = call.properties
        _matches(call, name)
        reader = Reader(workspace, lambda code_id: self._snapshot(call, job, code_id))
        document = reader.read(name, properties)
        if job is None:
            job, new = submission.create(self.services, workspace, document, call.identity)
            if new:
                return Made(self._resource(call, job))
        if document.get("environment") == job_resources.anonymous(self._environment_hash(job)):
            document["environment"] = job.spec.environment
        resubmission.require_same(self.services, job, document)
        return Made(self._resource(call, self._changed(call, self._own(call, name))), new=False)

    def delete(self, call: Call, name: str) -> None:
        choice = deletion.Choice(names=[name])
        found = deletion.delete_by(self.services, call.workspace.name, choice, call.identity)
        removal.work_now(self.services, found.jobs)
        self.services.bell.set()

    def _cancel(self, call: Call, name: str) -> None:
        actions.cancel(self.services, call.workspace.name, name)

    def _own(self, call: Call, name: str) -> Job:
        """The job, if who asks may change it; the right to submit says nothing of others' jobs."""
        job = actions.get(self.services, call.workspace.name, name)
        who = replace(call.identity, own_only=call.identity.role is Role.DATA_SCIENTIST)
        refuse_foreign(who, job.owner, f"job `{name}`")
        return job

    def _changed(self, call: Call, job: Job) -> Job:
        """The job with the words of the call's body; a PUT says all tags, a PATCH some."""
        asked, workspace = call.properties, call.workspace.name
        if job.type != _COMMAND:
            raise InvalidInput(f"`{job.name}` is a run that was started outside any job")
        changes: dict[str, Any] = {
            ours: asked[key]
            for key, ours in _WORDS.items()
            if asked.get(key) is not None and asked[key] != getattr(job, ours)
        }
        tags = asked.get("tags")
        if isinstance(tags, Mapping):
            gone = {} if call.method == "PATCH" else {key: None for key in job.tags}
            changes["tags"] = {**gone, **tags}
        elif tags is not None:
            raise InvalidInput("`tags` of the job is no JSON object", at=["properties", "tags"])
        archived = assets.archived_asked(call)
        if archived is not None and archived != job.archived:
            actions.archive(self.services, workspace, job.name, archived)
        if isinstance(asked.get("properties"), Mapping):
            actions.add_properties(self.services, workspace, job.name, asked["properties"])
        if changes and changes != {"tags": job.tags}:
            actions.update(self.services, workspace, job.name, changes)
        return actions.get(self.services, workspace, job.name)

    def _snapshot(self, call: Call, job: Job | None, code_id: str) -> str:
        """A job's own code is known by its snapshot, which clients are told as the code's name."""
        if job is not None and job.type == _COMMAND:
            snapshot = job.spec.code.removeprefix(SNAPSHOT_PREFIX)
            if snapshot and code_id.endswith(f"/codes/{snapshot}/versions/1"):
                return snapshot
        return self.snapshot_of(call, code_id)

    def _environment_hash(self, job: Job) -> str:
        with self.services.db.read() as connection:
            return store.environment_hash_of(connection, job.id)

    def _resource(self, call: Call, job: Job, params: Mapping[str, str] | None = None) -> Resource:
        is_nameless = job.type == _COMMAND and not isinstance(job.spec.environment, str)
        environment_hash = self._environment_hash(job) if is_nameless else ""
        return job_resources.to_resource(call, job, environment_hash, params)


def _view(call: Call) -> bool | None:
    """
    Raises:
        InvalidInput: `listViewType` is none of Azure's.
    """
    asked = assets.asked_of(call, "listviewtype") or "ActiveOnly"
    if asked.lower() not in _VIEWS:
        raise InvalidInput(
            f"`listViewType` is `{asked[:40]}`", "use ActiveOnly, ArchivedOnly or All"
        )
    return _VIEWS[asked.lower()]


def _matches(call: Call, name: str) -> None:
    written = call.document.get("name")
    if written not in (None, "", name):
        raise InvalidInput(
            f"the body names job `{str(written)[:80]}`, and the address `{name}`", at=["name"]
        )
