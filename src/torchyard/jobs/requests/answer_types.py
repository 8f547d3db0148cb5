"""What the native API answers of jobs: in a list, compared, and of one with all that is known."""

from __future__ import annotations

from typing import Any, Literal

from typing_extensions import NotRequired, TypedDict

from torchyard.jobs.records.types import Status
from torchyard.shared.record_rules import JsonNumber


class JobFailure(TypedDict):
    code: str
    message: str
    hint: str
    details: NotRequired[dict[str, Any]]


class JobSummary(TypedDict):
    """What the job's own row says."""

    name: str
    display_name: str
    experiment_name: str
    type: str
    status: Status
    description: str
    archived: bool
    tags: dict[str, str]
    properties: dict[str, str]
    parent: str
    compute: str
    node_count: int
    processes_per_node: int
    priority: str
    job_tier: Literal["standard", "spot"]
    created_at: str
    started_at: str | None
    ended_at: str | None
    duration_s: float | None
    owner: str
    attempt: int
    rehearsal: str
    exit_code: int | None
    error: JobFailure | None


class ListColumns(TypedDict, total=False):
    """What a list says of a job beside its summary."""

    waiting: str
    metrics: dict[str, JsonNumber]
    params: dict[str, str]
    inputs: dict[str, Any]


class JobRow(JobSummary, ListColumns):
    """A job in a list; `waiting`, `metrics`, `params` and `inputs` are there on request."""


class JobPage(TypedDict):
    """`next` is what `before` of the next request is; null on the last page."""

    value: list[JobRow]
    next: int | str | None


class Stage(TypedDict):
    name: str
    start: str
    end: str | None
    waited_for: str
    duration_s: float | None


class JobAttempt(TypedDict):
    number: int
    node_count: int
    created_at: str
    ended_at: str | None
    exit_code: int | None
    error: JobFailure | None


class ModelName(TypedDict):
    name: str
    version: int


class JobDetails(TypedDict):
    """What the tables around the job's row say."""

    environment_hash: str
    waiting: str
    stages: list[Stage]
    attempts: list[JobAttempt]
    notices: list[str]
    metrics: dict[str, JsonNumber]
    tables: dict[str, int]
    newest_metrics: list[str]
    params: dict[str, str]
    models: list[ModelName]


class Job(JobSummary, JobDetails):
    """One job with all that is known of it."""

    spec: dict[str, Any]


class ComparedJob(JobSummary):
    """A job beside others; `values` are the last ones of the metrics that it logged."""

    environment_hash: str
    params: dict[str, str]
    values: dict[str, JsonNumber]
    spec: dict[str, Any]


class Comparison(TypedDict):
    """Jobs in the order of the request."""

    value: list[ComparedJob]


class SubmittedJob(Job):
    """`submitted` is false where the same job was there already."""

    submitted: bool
