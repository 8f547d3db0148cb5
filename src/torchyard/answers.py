"""What the server answers, as types of plain dicts.

Owns: the shapes of a job, a file, a list, as the native API writes them.
Leaves: asking to client.py.
Always: types only; at run time an answer is the dict that came.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict


class Stage(TypedDict):
    """One of Preparing, Scaling, Running, Post-Processing; times in ISO 8601."""

    name: str
    start: str | None
    end: str | None
    waited_for: str


class JobError(TypedDict):
    code: str
    message: str
    hint: str


class JobSummary(TypedDict):
    """A job as a list shows it."""

    name: str
    display_name: str
    experiment_name: str
    type: str
    status: str
    tags: dict[str, str]
    properties: dict[str, str]
    compute: str
    node_count: int
    processes_per_node: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    owner: str
    attempt: int
    exit_code: int | None
    error: JobError | None


class Job(JobSummary):
    """A job by itself. `metrics` holds the last value of each key."""

    spec: dict[str, Any]
    waiting: str
    stages: list[Stage]
    notices: list[str]
    metrics: dict[str, Any]
    params: dict[str, str]
    models: list[dict[str, Any]]


class RemoteFile(TypedDict):
    """A file of a job or a model; `path` has forward slashes."""

    path: str
    size_bytes: int


class OutputFile(RemoteFile):
    """A file of a named output."""

    output: str


Rows = list[dict[str, Any]]
RemoteFiles = list[RemoteFile]
OutputFiles = list[OutputFile]
Paths = list[Path]
