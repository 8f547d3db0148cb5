"""Compare an existing pipeline with a document that is submitted again.

Owns: whether the document is that pipeline's.
Leaves: changing labels to jobs/actions.py; what a pipeline's content is to pipeline_resources.py.
Always: what Azure's interface can't carry, such as own settings of torchyard, does not count;
secrets count as equal where a client only saw a placeholder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torchyard.azureml.arm.pipeline_documents import KIND
from torchyard.azureml.arm.pipeline_resources import content
from torchyard.base.documents import secret_variables
from torchyard.data import uris
from torchyard.jobs.records.types import Job
from torchyard.jobs.requests import resubmission
from torchyard.jobs.services import FileServices
from torchyard.jobs.spec.inputs import Input

_VARIABLES = "environment_variables"
_KEYS = {"computeId": "compute", "componentId": "component"}
# What is meant where a pipeline's file says nothing.
_DEFAULTS = {"continue_on_step_failure": True, "force_rerun": False}


@dataclass(frozen=True)
class _Plain:
    """References in their shortest form, so that those that mean the same are equal."""

    workspace: str

    def name(self, type: str, reference: str) -> str:
        return reference.removeprefix("azureml:")

    def component(self, reference: str) -> str:
        return reference.removeprefix("azureml:")

    def data(self, type: str, path: str) -> str:
        return self.uri(path)

    def uri(self, path: str) -> str:
        place = uris.datastore(path, self.workspace)
        return path if place is None else str(place)


def require_same(services: FileServices, job: Job, document: dict[str, Any]) -> None:
    """
    Raises:
        Conflict: the document differs from the job's; the message names the keys.
    """
    if document.get("type") != KIND:
        raise resubmission.conflict(job, ["type"])
    ids = _Plain(job.workspace)
    before = _content(job.document, ids)
    after = _content(_with_secrets(job.document, document), ids)
    _pin(services, job, before, after)
    names = [_KEYS.get(key, key) for key in before if before[key] != after[key]]
    if names:
        raise resubmission.conflict(job, names)


def _content(document: Mapping[str, Any], ids: _Plain) -> dict[str, Any]:
    found = content(document, ids)
    found["settings"] = {**_DEFAULTS, **found["settings"]}
    return found


def _with_secrets(stored: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with the job's own values where clients only see placeholders."""
    before = stored.get("jobs") or {}
    steps = {}
    for name, node in (document.get("jobs") or {}).items():
        known = (before.get(name) or {}).get(_VARIABLES) or {}
        variables = {
            key: known.get(key, value) if value == secret_variables.HIDDEN else value
            for key, value in (node.get(_VARIABLES) or {}).items()
        }
        steps[name] = {**node, _VARIABLES: variables} if variables else node
    return {**document, "jobs": steps}


def _pin(services: FileServices, job: Job, before: Any, after: Any) -> None:
    """Pin what the request names by a label, as it was pinned in the job."""
    parts = [(before, after)]
    parts += [(before["jobs"].get(name) or {}, node) for name, node in after["jobs"].items()]
    for stored, request in parts:
        for name, port in request["inputs"].items():
            known = (stored.get("inputs") or {}).get(name) or {}
            if known.get("uri") and port.get("uri") and known["uri"] != port["uri"]:
                port["uri"] = _pinned(services, job, port["uri"], known["uri"])


def _pinned(services: FileServices, job: Job, path: str, known: str) -> str:
    inputs = (Input("uri_folder", path=each) for each in (path, known))
    return resubmission.pinned(services, job, *inputs).path
