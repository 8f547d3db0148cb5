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
        if call.method == "PATCH":
            job = actions.get(self.services, workspace, name)
            return Made(self._resource(call, self._changed(call, job)), new=False)
        _matches(call, name)
        job_if_any = actions.named(self.services, workspace, name)
        reader = Reader(workspace, lambda code_id: self._snapshot(call, job_if_any, code_id))
        document = reader.read(name, call.properties)
        if job_if_any is None:
            job, is_new = submission.create_new(self.services, workspace, document, call.identity)
            if is_new:
                return Made(self._resource(call, job))
        else:
            job = job_if_any
        if self._is_anonymous_environment(job, document.get("environment")):
            document["environment"] = job.spec.environment
        resubmission.require_same(self.services, job, document)
        return Made(self._resource(call, self._changed(call, job)), new=False)

    def delete(self, call: Call, name: str) -> None:
        choice = deletion.Choice(names=[name])
        found = deletion.delete_by(self.services, call.workspace.name, choice, call.identity)
        removal.work_now(self.services, found.jobs)
        self.services.wakeup.set()

    def _cancel(self, call: Call, name: str) -> None:
        actions.cancel(self.services, call.workspace.name, name)

    def _changed(self, call: Call, job: Job) -> Job:
        """The job with the words of the call's body; a PUT says all tags, a PATCH some."""
        # The permission to submit says nothing of others' jobs.
        identity = replace(call.identity, own_only=call.identity.role is Role.DATA_SCIENTIST)
        refuse_foreign(identity, job.owner, f"job `{job.name}`")
        properties = call.properties
        if job.type != _COMMAND:
            raise InvalidInput(f"`{job.name}` is a run that was started outside any job")
        words: dict[str, Any] = {
            field: properties[key]
            for key, field in _WORDS.items()
            if properties.get(key) is not None
        }
        tags = properties.get("tags")
        if isinstance(tags, Mapping):
            removed = {} if call.method == "PATCH" else {key: None for key in job.tags}
            words["tags"] = {**removed, **tags}
        elif tags is not None:
            raise InvalidInput("`tags` of the job is no JSON object", at=["properties", "tags"])
        changes = replace(actions.read_changes(words), archived=assets.archived_asked(call))
        if isinstance(properties.get("properties"), Mapping):
            new_properties = actions.read_properties(properties["properties"])
            changes = replace(changes, properties=new_properties)
        return actions.change(self.services, job, changes)

    def _snapshot(self, call: Call, job: Job | None, code_id: str) -> str:
        """A job's own code is known by its snapshot, which clients are told as the code's name."""
        if job is not None and job.type == _COMMAND:
            snapshot = job.spec.code.removeprefix(SNAPSHOT_PREFIX)
            if snapshot and code_id.endswith(f"/codes/{snapshot}/versions/1"):
                return snapshot
        return self.snapshot_of(call, code_id)

    def _is_anonymous_environment(self, job: Job, reference: Any) -> bool:
        """Whether it is the name that clients are shown for the job's environment without one."""
        prefix = job_resources.anonymous("")
        if not isinstance(reference, str) or not reference.startswith(prefix):
            return False
        return reference == prefix + self._environment_hash(job)

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
