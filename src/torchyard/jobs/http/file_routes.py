"""HTTP: what a page shows of a job's files: parts of logs, heads of outputs, code, environment.

Owns: the requests and their limits.
Leaves: lines to files/text_lines.py, heads and headers to assets/served_files.py, code to
files/job_code.py, whole files to routes.py.
Always: the size of a response is bounded by its request; nothing of a file is served as a page.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from typing_extensions import TypedDict

from torchyard.assets import served_files
from torchyard.assets.served_files import Preview
from torchyard.base.bodies.file_responses import OpenFileResponse
from torchyard.base.errors import InvalidInput
from torchyard.base.files import Readable
from torchyard.jobs import actions
from torchyard.jobs.files import artifacts, job_code, job_environments, text_lines
from torchyard.jobs.files.job_code import CodeChange, FileDiff
from torchyard.jobs.services import FileServices, ServicesOf
from torchyard.workspaces.guarded_routes import GuardedRoute, needs
from torchyard.workspaces.permissions import Permission

_MOST_HITS = 10_000
_LONGEST_TEXT = 1000

Every = Annotated[int, Query(ge=100, le=100_000)]
Offset = Annotated[int, Query(ge=0, le=2**62)]
Hits = Annotated[int, Query(ge=1, le=_MOST_HITS)]

router = APIRouter(
    prefix="/v1/workspaces/{workspace}/jobs/{name}", tags=["jobs"], route_class=GuardedRoute
)


class LogIndex(TypedDict):
    size_bytes: int
    read_bytes: int
    lines: int
    every: int
    from_line: int
    offsets: list[int]


class LogHits(TypedDict):
    lines: list[int]
    offsets: list[int]
    more: bool
    from_line: int
    from_byte: int


class CodeFile(TypedDict):
    path: str
    size_bytes: int
    sha256: str


class CodeFiles(TypedDict):
    value: list[CodeFile]


class CodeChanges(TypedDict):
    value: list[CodeChange]


@router.get("/logs/index")
@needs(Permission.READ)
def log_index(
    services: ServicesOf,
    workspace: str,
    name: str,
    path: str,
    every: Every = 500,
    from_line: Offset = 0,
    from_byte: Offset = 0,
) -> LogIndex:
    """How many lines a file has, and where every so manieth begins.

    Args:
        path: as `files` lists it.
        from_line, from_byte: a line and its first byte, as an answer before this one gave them.
    """
    file = _file(services, workspace, name, path, "")
    index = text_lines.index(file, every, from_line, from_byte)
    return {
        "size_bytes": index.size_bytes,
        "read_bytes": index.read_bytes,
        "lines": index.line_count,
        "every": index.every,
        "from_line": index.first,
        "offsets": index.offsets,
    }


@router.get("/logs/search")
@needs(Permission.READ)
def search_log(
    services: ServicesOf,
    workspace: str,
    name: str,
    path: str,
    text: str,
    case: bool = False,
    limit: Hits = 1000,
    from_line: Offset = 0,
    from_byte: Offset = 0,
) -> LogHits:
    """The numbers of the lines that hold a text, and their first bytes."""
    if not 0 < len(text) <= _LONGEST_TEXT or "\n" in text:
        raise InvalidInput(
            "`text` can't be searched for", f"use 1 to {_LONGEST_TEXT} characters of one line"
        )
    file = _file(services, workspace, name, path, "")
    hits = text_lines.search(file, text, case, limit, from_line, from_byte)
    return {
        "lines": hits.lines,
        "offsets": hits.offsets,
        "more": hits.more,
        "from_line": hits.next_line,
        "from_byte": hits.next_byte,
    }


@router.get("/preview")
@needs(Permission.READ)
def preview(
    services: ServicesOf, workspace: str, name: str, path: str, output: str = ""
) -> Preview:
    """The head of a file: text, a table's first rows, or that it is an image or binary."""
    return served_files.preview(_file(services, workspace, name, path, output), path)


@router.get("/image")
@needs(Permission.READ)
def image(
    services: ServicesOf, workspace: str, name: str, path: str, output: str = ""
) -> OpenFileResponse:
    return served_files.image(_file(services, workspace, name, path, output))


@router.get("/code")
@needs(Permission.READ)
def code(services: ServicesOf, workspace: str, name: str) -> CodeFiles:
    """The files of the snapshot that the job runs with."""
    snapshot_files = job_code.files_of(
        services.blobs.of(workspace), actions.get(services, workspace, name)
    )
    return {
        "value": [
            {"path": file.path, "size_bytes": file.size, "sha256": file.sha256}
            for file in snapshot_files
        ]
    }


@router.get("/code/file")
@needs(Permission.READ)
def code_file(services: ServicesOf, workspace: str, name: str, path: str) -> Preview:
    """The head of a file of the snapshot, as `preview` gives it of an output."""
    return job_code.preview(
        services.blobs.of(workspace), actions.get(services, workspace, name), path
    )


@router.get("/code/diff")
@needs(Permission.READ)
def code_diff(services: ServicesOf, workspace: str, name: str, other: str) -> CodeChanges:
    """Which files differ from those of another job, of which `name` is taken to be the newer."""
    new, old = (actions.get(services, workspace, each) for each in (name, other))
    return {"value": job_code.changes(services.blobs.of(workspace), old, new)}


@router.get("/code/diff/file")
@needs(Permission.READ)
def code_file_diff(
    services: ServicesOf, workspace: str, name: str, other: str, path: str
) -> FileDiff:
    """The changed lines of one file; none for a binary one."""
    new, old = (actions.get(services, workspace, each) for each in (name, other))
    return job_code.file_diff(services.blobs.of(workspace), old, new, path)


@router.get("/environment")
@needs(Permission.READ)
def environment(services: ServicesOf, workspace: str, name: str) -> dict[str, Any]:
    """What the job's environment holds: as it was pinned, and as it was built."""
    return job_environments.to_json(services, actions.get(services, workspace, name))


@router.get("/environment/export")
@needs(Permission.READ)
def environment_file(
    services: ServicesOf, workspace: str, name: str, format: str
) -> dict[str, Any]:
    """The job's environment as a Dockerfile, requirements.txt or conda.yml."""
    return job_environments.export(services, actions.get(services, workspace, name), format)


def _file(services: FileServices, workspace: str, name: str, path: str, output: str) -> Readable:
    job = actions.get(services, workspace, name)
    if output:
        return artifacts.output_file(services, job, output, path)
    return artifacts.file(services, job, path)
