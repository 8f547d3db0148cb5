"""What the native API answers, for its OpenAPI document, from which the page's types are made.

Owns: the types of the responses that the page reads, which route answers which.
Leaves: making the responses to the routes; requests, which FastAPI describes by itself.
Always: it is imported for the document alone, and costs no request anything; a test checks real
responses against these types, key by key.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A value of a metric, as JSON can write it."""
Json = dict[str, Any]


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class JobFailure(_Answer):
    code: str
    message: str
    hint: str
    details: Json | None = None


class JobRow(_Answer):
    """A job in a list; the last four are there where the request names such columns."""

    name: str
    display_name: str
    experiment_name: str
    type: str
    status: Literal[
        "NotStarted", "Queued", "Preparing", "Provisioning", "Starting", "Running", "Finalizing",
        "CancelRequested", "NotResponding", "Completed", "Failed", "Canceled",
    ]  # fmt: skip
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
    waiting: str | None = None
    metrics: dict[str, Number] | None = None
    params: dict[str, str] | None = None
    inputs: Json | None = None


class JobPage(_Answer):
    """`next` is what `before` of the next request is; null on the last page."""

    value: list[JobRow]
    next: int | str | None


class Stage(_Answer):
    name: str
    start: str
    end: str | None
    waited_for: str
    duration_s: float | None


class JobAttempt(_Answer):
    number: int
    node_count: int
    created_at: str
    ended_at: str | None
    exit_code: int | None
    error: JobFailure | None


class ModelName(_Answer):
    name: str
    version: int


class Job(JobRow):
    """One job with all that is known of it."""

    spec: Json
    environment_hash: str
    waiting: str
    stages: list[Stage]
    attempts: list[JobAttempt]
    notices: list[str]
    metrics: dict[str, Number]
    newest_metrics: list[str] | None = None
    tables: dict[str, int] | None = None
    params: dict[str, str]
    models: list[ModelName]


class JobFile(_Answer):
    path: str
    size_bytes: int


class JobFiles(_Answer):
    value: list[JobFile]


class OutputFile(JobFile):
    output: str


class OutputFiles(_Answer):
    value: list[OutputFile]


class LogIndex(_Answer):
    size_bytes: int
    read_bytes: int
    lines: int
    every: int
    from_line: int
    offsets: list[int]


class LogHits(_Answer):
    lines: list[int]
    offsets: list[int]
    more: bool
    from_line: int
    from_byte: int


class Preview(_Answer):
    path: str
    size_bytes: int
    kind: Literal["text", "table", "image", "binary"]
    truncated: bool
    media_type: str | None = None
    text: str | None = None
    columns: list[str] | None = None
    rows: list[list[str]] | None = None


class MetricSummary(_Answer):
    key: str
    count: int
    step: int
    timestamp: int
    value: Number
    min: Number | None
    max: Number | None


class MetricTable(_Answer):
    """The first rows of a table that SDK v1 logged, each a value by column."""

    key: str
    count: int
    columns: list[str]
    rows: list[Json]


class MetricSummaries(_Answer):
    value: list[MetricSummary]
    tables: list[MetricTable] | None = None


class Chart(_Answer):
    """Points where `exact`, else the least and the largest value of each column."""

    job: str | None = None
    key: str
    x: Literal["step", "timestamp"]
    exact: bool
    count: int
    points: list[tuple[int, Number]] | None = None
    columns: list[tuple[int, Number, Number]] | None = None
    model_config = ConfigDict(extra="allow")


class Charts(_Answer):
    value: list[Chart]


class Experiment(_Answer):
    id: str
    name: str
    created_at: str
    tags: dict[str, str]
    job_count: int
    last_job_at: str | None


class Experiments(_Answer):
    value: list[Experiment]


class SnapshotFile(_Answer):
    path: str
    sha256: str
    size: int
    mode: str


class Snapshot(_Answer):
    id: str
    files: list[SnapshotFile]


class CodeFile(_Answer):
    path: str
    size_bytes: int
    sha256: str


class CodeFiles(_Answer):
    value: list[CodeFile]


class CodeChange(_Answer):
    path: str
    change: Literal["added", "removed", "changed"]


class CodeChanges(_Answer):
    value: list[CodeChange]


class Hunk(_Answer):
    """Each line has its sign before its text."""

    old_start: int
    new_start: int
    lines: list[tuple[Literal[" ", "+", "-"], str]]


class FileDiff(_Answer):
    """`whole` is false where only the beginnings were compared."""

    hunks: list[Hunk]
    whole: bool


class ClusterNode(_Answer):
    name: str
    state: str
    since: str
    made_at: str
    job: str
    owner: str
    rank: int | None
    devices: list[Json]


class WaitingJob(_Answer):
    job: str
    owner: str
    node_count: int
    since: str
    why: str


class ClusterNodes(_Answer):
    value: list[ClusterNode]
    waiting: list[WaitingJob]
    waiting_count: int
    machines: list[Json]


class NodeCount(_Answer):
    at: str
    current: int
    running: int
    target: int
    reason: str
    machines: int | None


class NodeHours(_Answer):
    day: str
    node_hours: float
    busy_hours: float


class ClusterHistory(_Answer):
    counts: list[NodeCount]
    usage: list[NodeHours]


class PersonHours(_Answer):
    owner: str
    job_count: int
    node_hours: float
    gpu_hours: float


class PeopleHours(_Answer):
    since: str
    until: str
    value: list[PersonHours]


class WhoAmI(_Answer):
    user: str
    workspace: str
    role: Literal["reader", "data scientist", "contributor", "owner"] | None
    job: str | None
    token: str | None
    expires_at: str | None
    jobs_as_server_user: bool


class SignInLink(_Answer):
    path: str
    code: str
    expires_at: str


class PageSession(_Answer):
    user: str
    name: str
    expires_at: str


class Provider(_Answer):
    issuer: str


class SignInMethods(_Answer):
    oidc: Provider | None


class User(_Answer):
    """`roles` by workspace; `*` is every workspace."""

    name: str
    roles: dict[str, str]
    created_at: str


class Users(_Answer):
    value: list[User]


class Token(_Answer):
    name: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class Tokens(_Answer):
    value: list[Token]


_W = "/v1/workspaces/{workspace}"
_JOB = f"{_W}/jobs/{{name}}"
BY_ROUTE: dict[tuple[str, str], type[BaseModel]] = {
    ("get", f"{_W}/jobs"): JobPage,
    ("get", _JOB): Job,
    ("patch", _JOB): Job,
    ("post", f"{_JOB}/cancel"): Job,
    ("post", f"{_JOB}/archive"): Job,
    ("post", f"{_JOB}/restore"): Job,
    ("get", f"{_JOB}/files"): JobFiles,
    ("get", f"{_JOB}/outputs"): OutputFiles,
    ("get", f"{_JOB}/logs/index"): LogIndex,
    ("get", f"{_JOB}/logs/search"): LogHits,
    ("get", f"{_JOB}/preview"): Preview,
    ("get", f"{_JOB}/code"): CodeFiles,
    ("get", f"{_JOB}/code/file"): Preview,
    ("get", f"{_JOB}/code/diff"): CodeChanges,
    ("get", f"{_JOB}/code/diff/file"): FileDiff,
    ("get", f"{_JOB}/metrics"): MetricSummaries,
    ("get", f"{_JOB}/metrics/chart"): Chart,
    ("get", f"{_W}/metrics/chart"): Charts,
    ("get", f"{_W}/experiments"): Experiments,
    ("get", f"{_W}/snapshots/{{snapshot_id}}"): Snapshot,
    ("get", f"{_W}/computes/{{name}}/nodes"): ClusterNodes,
    ("get", f"{_W}/computes/{{name}}/history"): ClusterHistory,
    ("get", f"{_W}/computes/{{name}}/people"): PeopleHours,
    ("get", "/v1/whoami"): WhoAmI,
    ("get", "/v1/sign-in"): SignInMethods,
    ("post", "/v1/sign-in/links"): SignInLink,
    ("post", "/v1/sign-in/session"): PageSession,
    ("get", "/v1/users"): Users,
    ("get", "/v1/users/{name}"): User,
    ("get", "/v1/users/{name}/tokens"): Tokens,
}


def describe(document: MutableMapping[str, Any]) -> None:
    """Put the types into an OpenAPI document, at the routes that answer them."""
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for (method, path), answer in BY_ROUTE.items():
        schema = TypeAdapter(answer).json_schema(
            ref_template="#/components/schemas/{model}",
            mode="serialization",
        )
        schemas |= schema.pop("$defs", {})
        schemas[answer.__name__] = schema
        responses = document["paths"][path][method]["responses"]
        status = "200" if "200" in responses else "201"
        reference = {"$ref": f"#/components/schemas/{answer.__name__}"}
        responses[status]["content"] = {"application/json": {"schema": reference}}
