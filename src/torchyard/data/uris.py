"""URIs of data in documents.

Owns: the forms of datastore URIs, data assets' ids and job outputs, and their one short form.
Leaves: what exists at a URI to actions.py.
Always: a text of another form is None; a long form is valid only in the workspace it names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchyard.base.errors import InvalidInput, NotFound

_SCOPE = (
    r"azureml:/{0,2}/?subscriptions/[^/]+/resource[gG]roups/[^/]+"
    r"(?:/providers/Microsoft\.MachineLearningServices)?/workspaces/(?P<workspace>[^/]+)"
)
_DATASTORE = re.compile(
    rf"^(?:azureml://|(?:{_SCOPE})/)datastores/(?P<store>[^/]+)(?:/paths/?(?P<path>.*))?$",
    re.DOTALL,
)
_ASSET_ID = re.compile(
    rf"^(?:{_SCOPE})/data/(?P<name>[^/]+)/(?:versions|labels)/(?P<version>[^/]+)$"
)
_JOB = re.compile(
    r"^azureml://jobs/(?P<job>[^/]+)/outputs/(?P<output>[^/]+)(?:/paths/?(?P<path>.*))?\Z",
    re.DOTALL,
)
_RUN = re.compile(r"^runs:/(?P<job>[^/]+)/(?P<path>.+)\Z", re.DOTALL)


@dataclass(frozen=True)
class DatastoreUri:
    """`path` is relative to the datastore; empty for all of it."""

    store: str
    path: str

    def __str__(self) -> str:
        return f"azureml://datastores/{self.store}/paths/{self.path}"


@dataclass(frozen=True)
class JobUri:
    """A path below an output of a job; `output` is `artifacts` for the run's artifacts."""

    job: str
    output: str
    path: str


def datastore(text: str, workspace: str) -> DatastoreUri | None:
    """
    Raises:
        NotFound: it names another workspace.
        InvalidInput: its path climbs out of the datastore.
    """
    match = _DATASTORE.match(text)
    if match is None:
        return None
    _same_workspace(text, match["workspace"], workspace)
    path = (match["path"] or "").lstrip("/")
    if ".." in path.split("/") or "\0" in path:
        raise InvalidInput(f"`{text}` leads out of its datastore", "write it without `..`")
    return DatastoreUri(match["store"], path)


def asset_id(text: str, workspace: str) -> tuple[str, str] | None:
    """(name, version) of a data asset's long id.

    Raises:
        NotFound: it names another workspace.
    """
    match = _ASSET_ID.match(text)
    if match is None:
        return None
    _same_workspace(text, match["workspace"], workspace)
    return match["name"], match["version"]


def job_output(text: str) -> JobUri | None:
    """Parse `azureml://jobs/<job>/outputs/<output>/paths/<p>` and `runs:/<job>/<p>`."""
    match = _JOB.match(text)
    if match is not None:
        return JobUri(match["job"], match["output"], (match["path"] or "").strip("/"))
    match = _RUN.match(text)
    return None if match is None else JobUri(match["job"], "artifacts", match["path"].strip("/"))


def protocol_of(text: str) -> str:
    """The word before `://` in lower case, empty when there is none."""
    head, separator, _ = text.partition("://")
    return head.lower() if separator and re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*", head) else ""


def _same_workspace(text: str, other: str | None, workspace: str) -> None:
    if other is not None and other.lower() != workspace.lower():
        raise NotFound(
            f"`{text}` is in workspace `{other}`, and this is workspace `{workspace}`",
            "write it as `azureml://datastores/<name>/paths/<path>`, or choose the workspace "
            f"with `-w {other}`",
        )
