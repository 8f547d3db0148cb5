"""The tools that read: lists, one job, its logs, its metrics, why it failed.

Owns: what each of them takes and answers.
Leaves: requests to the SDK, shortening to bounds.py, the protocol to protocol.py.
Always: nothing is changed; what a job printed stands below `untrusted_output` and nowhere else.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from anyio import from_thread
from pydantic import Field
from typing_extensions import TypedDict

from torchyard.base import clock
from torchyard.base.errors import NotFound
from torchyard.cli.mcp import bounds
from torchyard.cli.mcp.arguments import Arguments
from torchyard.cli.parsing import amounts
from torchyard.client.client import Client
from torchyard.client.job import Job, JobError, JobSummary
from torchyard.client.job_history import ChartLine, MetricSummary
from torchyard.client.job_reader import RemoteFile
from torchyard.client.printing import rank_of_log

_BUILD_LOG = "azureml-logs/20_image_build_log.txt"
_MOST_LOGS, _MOST_FRAMES = 8, 10
_LAST_LINES = 30
_JOBS_CHARACTERS, _VALUES_CHARACTERS = 50_000, 2_000
_MOST_KEYS, _KEYS_CHARACTERS = 200, 30_000
_WAIT_PAUSE_S = 0.5

JobName = Annotated[str, Field(min_length=1, description="The job's name.")]


class ListJobs(Arguments):
    experiment_name: str = Field("", description="Only jobs of this experiment.")
    status: str = Field(
        "",
        description="Only jobs with this status: NotStarted, Queued, Preparing, Provisioning, "
        "Starting, Running, Finalizing, CancelRequested, NotResponding, Completed, Failed or "
        "Canceled.",
    )
    parent_job_name: str = Field(
        "", description="Only the children of this job: steps of a pipeline, trials of a sweep."
    )
    type: str = Field("", description="Only jobs of this type: command, sweep, pipeline or run.")
    tags: dict[str, str | None] = Field(
        {}, description="Only jobs with these tags; null stands for any value."
    )
    owner: str = Field("", description="Only this person's jobs.")
    text: str = Field(
        "", description="Only jobs with this in their name, display name or description."
    )
    since: str = Field("", description="Only jobs submitted since: `2d` or `2026-12-31`.")
    until: str = Field("", description="Only jobs submitted before.")
    sort: str = Field(
        "",
        description="Sort by metrics.NAME (its last value), params.NAME, inputs.NAME, tags.NAME, "
        "name, display_name, owner, created_at or duration_s. Without it: newest first.",
    )
    descending: bool = Field(False, description="Sort the largest first.")
    columns: list[str] = Field(
        [], description="Values to add: metrics.NAME, params.NAME or inputs.NAME.", max_length=20
    )
    archived: Literal["no", "too", "only"] = Field("no", description="Whether to list archived.")
    max_results: int = Field(20, ge=1, le=100, description="List at most so many.")


class Failure(TypedDict, total=False):
    code: str
    message: str
    hint: str | None
    rank: int | None
    node: int | None
    exit_code: int | None
    signal: str | None


class ListedJob(TypedDict):
    name: str
    display_name: str | None
    type: str
    status: str
    experiment_name: str
    parent: str | None
    owner: str
    compute: str
    created_at: str
    duration_s: float | None
    error: Failure | None
    waiting_for: str | None
    tags: dict[str, str]
    columns: dict[str, str | float]
    left_out: list[str] | None


class JobsAnswer(TypedDict):
    workspace: str
    jobs: list[ListedJob]
    left_out: list[str]


def list_jobs(client: Client, arguments: ListJobs) -> JobsAnswer:
    conditions = arguments.model_dump(
        exclude={"since", "until", "archived", "columns", "max_results"}
    )
    jobs = client.jobs.list(
        **conditions,
        created_after=_moment(arguments.since),
        created_before=_moment(arguments.until),
        columns=[*arguments.columns, "waiting"],
        archived=arguments.archived == "too",
        only_archived=arguments.archived == "only",
        max_results=arguments.max_results + 1,
    )
    rows = [_listed(job) for job in jobs[: arguments.max_results]]
    left_out: list[str] = []
    shown = bounds.first(rows, "jobs", left_out, len(rows), _JOBS_CHARACTERS)
    if len(jobs) > arguments.max_results:
        left_out.append("further jobs: add conditions, or raise `max_results`")
    return {"workspace": client.workspace, "jobs": shown, "left_out": left_out}


def _moment(text: str) -> Any:
    return clock.from_text(amounts.earlier(text)) if text else None


def _listed(job: JobSummary) -> ListedJob:
    columns = dict(job.columns)
    waiting_for = columns.pop("waiting", None)
    left_out: list[str] = []
    tags = bounds.first_entries(job.tags, "tags", left_out, _VALUES_CHARACTERS)
    shown = {
        name: value if isinstance(value, float) else str(value) for name, value in columns.items()
    }
    return {
        "name": job.name,
        "display_name": _other_name(job),
        "type": job.type,
        "status": job.status,
        "experiment_name": job.experiment_name,
        "parent": job.parent,
        "owner": job.owner,
        "compute": job.compute,
        "created_at": clock.to_text(job.created_at),
        "duration_s": job.duration_s,
        "error": _failure(job.error, bounds.VALUE_CHARACTERS) if job.error else None,
        "waiting_for": waiting_for,
        "tags": tags,
        "columns": bounds.first_entries(shown, "columns", left_out, _VALUES_CHARACTERS),
        "left_out": left_out or None,
    }


def _other_name(job: JobSummary) -> str | None:
    return bounds.shortened(job.display_name) if job.display_name not in ("", job.name) else None


def _failure(error: JobError, characters: int = bounds.MESSAGE_CHARACTERS) -> Failure:
    details = error.raw.get("details") or {}
    return {
        "code": error.code,
        "message": bounds.shortened(error.message, characters),
        "hint": bounds.shortened(error.hint, characters) or None,
        "rank": error.rank,
        "node": error.node,
        "exit_code": details.get("exit_code"),
        "signal": details.get("signal"),
    }


class ShowJob(Arguments):
    name: JobName
    wait_s: float = Field(
        0, ge=0, le=50, description="Wait up to so many seconds until the job has ended."
    )


class StageAnswer(TypedDict):
    name: str
    started_at: str
    ended_at: str | None
    duration_s: float | None
    waited_for: str | None


class FileAnswer(TypedDict):
    path: str
    size_bytes: int
    output: str | None


class JobAnswer(TypedDict):
    name: str
    display_name: str | None
    description: str | None
    type: str
    status: str
    has_ended: bool
    experiment_name: str
    parent: str | None
    owner: str
    compute: str
    node_count: int
    ranks_per_node: int
    attempt: int
    created_at: str
    started_at: str | None
    ended_at: str | None
    duration_s: float | None
    exit_code: int | None
    waiting_for: str | None
    error: Failure | None
    stages: list[StageAnswer]
    notices: list[str]
    metrics: dict[str, float]
    params: dict[str, str]
    tags: dict[str, str]
    files: list[FileAnswer]
    models: list[str]
    job_file: str
    page: str
    left_out: list[str]


def show_job(client: Client, arguments: ShowJob) -> JobAnswer:
    job = client.jobs.get(arguments.name)
    until = time.monotonic() + arguments.wait_s
    while not job.has_ended and (left_s := until - time.monotonic()) > 0:
        time.sleep(min(_WAIT_PAUSE_S, left_s))
        from_thread.check_cancelled()  # as it is when the agent's program has left
        job = job.refresh()
    return job_answer(client, job)


def job_answer(client: Client, job: Job) -> JobAnswer:
    """A job with all that its page shows."""
    left_out: list[str] = []
    files: list[FileAnswer] = [
        {"path": file.path, "size_bytes": file.size_bytes, "output": file.output or None}
        for file in (*client.jobs.files(job.name), *client.jobs.outputs(job.name))
    ]
    keys = bounds.first(list(job.last_metrics), "metrics (`read_metrics` has them)", left_out)
    return {
        "name": job.name,
        "display_name": _other_name(job),
        "description": bounds.shortened(job.description) or None,
        "type": job.type,
        "status": job.status,
        "has_ended": job.has_ended,
        "experiment_name": job.experiment_name,
        "parent": job.parent,
        "owner": job.owner,
        "compute": job.compute,
        "node_count": job.node_count,
        "ranks_per_node": job.ranks_per_node,
        "attempt": job.attempt,
        "created_at": clock.to_text(job.created_at),
        "started_at": clock.to_text(job.started_at) if job.started_at else None,
        "ended_at": clock.to_text(job.ended_at) if job.ended_at else None,
        "duration_s": job.duration_s,
        "exit_code": job.exit_code,
        "waiting_for": job.waiting or None,
        "error": _failure(job.error) if job.error else None,
        "stages": [
            {
                "name": stage.name,
                "started_at": clock.to_text(stage.started_at),
                "ended_at": clock.to_text(stage.ended_at) if stage.ended_at else None,
                "duration_s": stage.duration_s,
                "waited_for": stage.waited_for or None,
            }
            for stage in job.stages
        ],
        "notices": bounds.first(job.notices, "notices", left_out),
        "metrics": {key: job.last_metrics[key] for key in keys},
        "params": bounds.first_entries(job.params, "params", left_out),
        "tags": bounds.first_entries(job.tags, "tags", left_out),
        "files": bounds.first(files, "files", left_out),
        "models": bounds.first(job.models, "models", left_out),
        "job_file": _job_file(job, left_out),
        "page": client.jobs.page(job.name),
        "left_out": left_out,
    }


def _job_file(job: Job, left_out: list[str]) -> str:
    """The document that was submitted, as the server has pinned it, in YAML."""
    import yaml

    text: str = yaml.safe_dump(job.raw.get("spec") or {}, sort_keys=False, allow_unicode=True)
    if len(text) > bounds.DOCUMENT_CHARACTERS:
        left_out.append("the end of `job_file`")
    return bounds.shortened(text, bounds.DOCUMENT_CHARACTERS)


class ReadLogs(Arguments):
    name: JobName
    rank: int | None = Field(None, ge=0, description="Only this rank's log.")
    node: int | None = Field(None, ge=0, description="Only the logs of this node's ranks.")
    path: str = Field(
        "",
        description="Another text file of the job instead, as `files` of `show_job` and "
        "`other_logs` name them: the log of an earlier attempt (attempt-1/…), stacks, build log.",
    )
    lines: int = Field(100, ge=1, le=1000, description="At most so many lines of each log.")


class Log(TypedDict):
    path: str
    rank: int | None
    node: int | None
    size_bytes: int
    untrusted_output: str


class LogsAnswer(TypedDict):
    job: str
    status: str
    attempt: int
    logs: list[Log]
    other_logs: list[str]
    left_out: list[str]


def read_logs(client: Client, arguments: ReadLogs) -> LogsAnswer:
    job = client.jobs.get(arguments.name)
    files = list(client.jobs.files(job.name))
    left_out: list[str] = []
    chosen = bounds.first(_chosen(job, files, arguments), "logs", left_out, _MOST_LOGS)
    shown = [file.path for file in chosen]
    others = [file.path for file in files if _is_log(file.path) and file.path not in shown]
    return {
        "job": job.name,
        "status": job.status,
        "attempt": job.attempt,
        "logs": _ends(client, job, chosen, arguments.lines, left_out),
        "other_logs": bounds.first(others, "names of other logs", left_out),
        "left_out": left_out,
    }


def _is_log(path: str) -> bool:
    folders = path.split("/")[:-1]
    return any(name in ("user_logs", "system_logs", "azureml-logs", "logs") for name in folders)


def _chosen(job: Job, files: Sequence[RemoteFile], arguments: ReadLogs) -> list[RemoteFile]:
    """The files to read.

    Raises:
        NotFound: there is none of this path, rank or node.
    """
    if arguments.path:
        at_path = [file for file in files if file.path == arguments.path]
        if not at_path:
            raise NotFound(
                f"job `{job.name}` has no file `{arguments.path}`",
                "`show_job` lists its files, `read_logs` without `path` its logs",
            )
        return at_path
    logs = _logs_by_rank(files)
    wanted = [
        rank
        for rank in logs
        if arguments.rank in (None, rank) and arguments.node in (None, _node_of(job, rank))
    ]
    if wanted or (arguments.rank is None and arguments.node is None):
        return [logs[rank] for rank in wanted]
    ranks = ", ".join(map(str, list(logs)[: bounds.MOST_ENTRIES])) or "none"
    raise NotFound(
        f"no such rank or node of job `{job.name}` has written anything",
        f"ranks that have: {ranks}",
    )


def _logs_by_rank(files: Sequence[RemoteFile]) -> dict[int, RemoteFile]:
    """Of the newest attempt, in the order of ranks."""
    logs = {rank: file for file in files if (rank := rank_of_log(file.path)) is not None}
    return dict(sorted(logs.items()))


def _node_of(job: Job, rank: int) -> int:
    return rank // max(job.ranks_per_node, 1)


def _ends(
    client: Client, job: Job, files: Sequence[RemoteFile], lines: int, left_out: list[str]
) -> list[Log]:
    """The ends of these files, which share the characters of one answer."""
    characters = bounds.LOG_CHARACTERS // max(len(files), 1)
    logs: list[Log] = []
    for file in files:
        rank = rank_of_log(file.path)
        # A range of an empty file is refused.
        content = (
            client.jobs.read_end(job.name, file.path, bounds.LOG_BYTES) if file.size_bytes else b""
        )
        is_whole = file.size_bytes <= len(content)
        text, is_all = bounds.last_lines(content, lines, characters, is_whole)
        if not is_all:
            left_out.append(
                f"earlier lines of `{file.path}`, or the middle of lines longer than "
                f"{bounds.LINE_CHARACTERS} characters"
            )
        logs.append(
            {
                "path": file.path,
                "rank": rank,
                "node": None if rank is None else _node_of(job, rank),
                "size_bytes": file.size_bytes,
                "untrusted_output": text,
            }
        )
    return logs


class ReadMetrics(Arguments):
    name: JobName
    keys: list[str] = Field(
        [], max_length=10, description="The series to read. Without: a list of all keys."
    )
    x: Literal["step", "time"] = Field(
        "step", description="What the points lie at: steps, or milliseconds since 1970."
    )
    start: int | None = Field(None, description="Only points from this x on.")
    end: int | None = Field(None, description="Only points up to this x.")
    max_points: int = Field(
        200,
        ge=2,
        le=1000,
        description="Of all series together; a longer one comes as ranges instead of points.",
    )
    system: bool = Field(
        False, description="List what nodes and ranks use (CPU, memory, GPU) instead."
    )


class KeyAnswer(TypedDict):
    key: str
    count: int
    min: float | None
    max: float | None
    last_step: int
    last_value: float


class Series(TypedDict):
    """`points` are (x, value); of a longer series `ranges` are (x, smallest, largest value)."""

    key: str
    count: int
    points: list[tuple[int, float]] | None
    ranges: list[tuple[int, float, float]] | None


class MetricsAnswer(TypedDict):
    job: str
    status: str
    keys: list[KeyAnswer] | None
    series: list[Series] | None
    left_out: list[str]


def read_metrics(client: Client, arguments: ReadMetrics) -> MetricsAnswer:
    job = client.jobs.get(arguments.name)
    left_out: list[str] = []
    if not arguments.keys:
        found = client.jobs.metric_keys(job.name, system="only" if arguments.system else "hidden")
        keys = bounds.first(
            [_key(row) for row in found], "keys", left_out, _MOST_KEYS, _KEYS_CHARACTERS
        )
        return {"job": job.name, "status": job.status, "keys": keys, "series": None,
                "left_out": left_out}  # fmt: skip
    lines = client.jobs.chart(
        job.name,
        arguments.keys,
        # Up to twice as many points come as they are.
        width=max(arguments.max_points // len(arguments.keys) // 2, 1),
        x=arguments.x,
        start=arguments.start,
        end=arguments.end,
    )
    missing = [key for key in arguments.keys if key not in {line.key for line in lines}]
    if missing:
        raise NotFound(
            f"job `{job.name}` has no metric `{missing[0]}`",
            "`read_metrics` without `keys` lists them",
        )
    left_out += [
        f"single points of `{line.key}`: `ranges` cover {line.count} points"
        for line in lines
        if line.columns
    ]
    return {"job": job.name, "status": job.status, "keys": None,
            "series": [_series(line) for line in lines], "left_out": left_out}  # fmt: skip


def _key(row: MetricSummary) -> KeyAnswer:
    return {
        "key": row.key,
        "count": row.count,
        "min": row.min,
        "max": row.max,
        "last_step": row.step,
        "last_value": row.value,
    }


def _series(line: ChartLine) -> Series:
    return {
        "key": line.key,
        "count": line.count,
        "points": None if line.columns else list(line.points),
        "ranges": list(line.columns) or None,
    }


class ExplainFailure(Arguments):
    name: JobName


class FailedChild(TypedDict):
    name: str
    error: Failure | None


class CauseOutput(TypedDict):
    """What the job itself printed or raised: not torchyard's words."""

    exception: str | None
    stack: list[str]
    log: str | None
    last_lines: str


class FailureAnswer(TypedDict):
    job: str
    status: str
    has_failed: bool
    attempt: int
    exit_code: int | None
    waiting_for: str | None
    error: Failure | None
    failed_children: list[FailedChild]
    notices: list[str]
    untrusted_output: CauseOutput | None
    left_out: list[str]


def explain_failure(client: Client, arguments: ExplainFailure) -> FailureAnswer:
    job = client.jobs.get(arguments.name)
    left_out: list[str] = []
    children: list[JobSummary] = []
    if job.error is not None and job.type in ("pipeline", "sweep"):
        children = list(client.jobs.list(parent_job_name=job.name, status="Failed", max_results=10))
    return {
        "job": job.name,
        "status": job.status,
        "has_failed": job.status == "Failed",
        "attempt": job.attempt,
        "exit_code": job.exit_code,
        "waiting_for": job.waiting or None,
        "error": _failure(job.error) if job.error else None,
        "failed_children": [
            {"name": child.name, "error": _failure(child.error) if child.error else None}
            for child in children
        ],
        "notices": bounds.first(job.notices, "notices", left_out),
        "untrusted_output": _cause_output(client, job, job.error, left_out) if job.error else None,
        "left_out": left_out,
    }


def _cause_output(client: Client, job: Job, error: JobError, left_out: list[str]) -> CauseOutput:
    details = error.raw.get("details") or {}
    log, lines = _blamed_log(client, job, error, left_out)
    exception = str(details.get("exception") or "")
    return {
        "exception": bounds.shortened(exception, bounds.MESSAGE_CHARACTERS) or None,
        "stack": [_frame(frame) for frame in details.get("frames") or []][-_MOST_FRAMES:],
        "log": log,
        "last_lines": lines,
    }


def _blamed_log(
    client: Client, job: Job, error: JobError, left_out: list[str]
) -> tuple[str | None, str]:
    """The log of the rank that failed first, of a job that never ran that of its build; its end."""
    files = list(client.jobs.files(job.name))
    logs = _logs_by_rank(files)
    file = logs.get(error.rank if error.rank is not None else min(logs, default=0))
    if file is None and not logs:
        file = next((file for file in files if file.path == _BUILD_LOG), None)
    if file is None:
        return None, "\n".join(error.log_lines)
    (log,) = _ends(client, job, [file], _LAST_LINES, left_out)
    return log["path"], log["untrusted_output"]


def _frame(frame: dict[str, Any]) -> str:
    inner = f" in {frame['function']}" if frame.get("function") else ""
    code = f": {frame['code']}" if frame.get("code") else ""
    return bounds.shortened(f"{frame['file']} line {frame['line']}{inner}{code}")
