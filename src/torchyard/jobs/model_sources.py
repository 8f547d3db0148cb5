"""Where a model's files come from: a job's outputs, or a snapshot that was uploaded."""

from __future__ import annotations

import re
from pathlib import Path

from torchyard.base.errors import InvalidSpec, NotFound
from torchyard.jobs import actions, artifacts
from torchyard.jobs.room import Room
from torchyard.models.types import Source

_JOB = re.compile(
    r"^azureml://jobs/(?P<job>[^/]+)/outputs/(?P<output>[^/]+)(?:/paths/?(?P<path>.*))?$"
)
_RUN = re.compile(r"^runs:/(?P<job>[^/]+)/(?P<path>.+)$")
_SNAPSHOT = "snapshot:"


def find(room: Room, workspace: str, path: str) -> Source:
    """The files that `path` names: one file, or all below a folder.

    Raises:
        InvalidSpec: the path has a form that is not served.
        NotFound: there is nothing there.
    """
    if path.startswith(_SNAPSHOT):
        snapshot = room.blobs.snapshot(path.removeprefix(_SNAPSHOT))
        return Source(tuple((file.path, room.blobs.path(file.sha256)) for file in snapshot.files))
    match = _JOB.match(path) or _RUN.match(path)
    if match is None:
        raise InvalidSpec(
            f"`{path}` is no path of a model",
            "name a local file or folder, "
            "`azureml://jobs/<job>/outputs/artifacts/paths/<path>` or `runs:/<job>/<path>`",
            at=["path"],
        )
    parts = match.groupdict()
    return _of_job(room, workspace, parts["job"], parts.get("output") or "artifacts",
                   (parts["path"] or "").strip("/"))  # fmt: skip


def _of_job(room: Room, workspace: str, name: str, output: str, wanted: str) -> Source:
    job = actions.get(room, workspace, name)
    found: list[tuple[str, Path]] = []
    if output == "artifacts":
        paths = [artifact.path for artifact in artifacts.list_of(room, job)]
        found = [(path, artifacts.file(room, job, path)) for path in paths if _below(path, wanted)]
    else:
        found = [
            (artifact.path, artifacts.output_file(room, job, output, artifact.path))
            for owner, artifact in artifacts.list_outputs(room, job)
            if owner == output and _below(artifact.path, wanted)
        ]
    if not found:
        raise NotFound(
            f"job `{name}` has nothing at `{wanted or output}`",
            f"see what it left: `yard job download -n {name} --all`",
            at=["path"],
        )
    return Source(tuple((_in_model(path, wanted), file) for path, file in found), job.name)


def _below(path: str, wanted: str) -> bool:
    return not wanted or path == wanted or path.startswith(wanted + "/")


def _in_model(path: str, wanted: str) -> str:
    """A file keeps its own name, files of a folder their path below it."""
    if path == wanted:
        return path.rpartition("/")[2]
    return path[len(wanted) + 1 :] if wanted else path
