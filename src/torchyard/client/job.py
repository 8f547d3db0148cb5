"""A job, as the SDK shows it, with what can be done with it.

Owns: `Job`, its parts, waiting for its end, leaving it with Ctrl-C.
Leaves: requests to job_reader.py, many jobs to jobs.py.
Always: a job never changes; every verb that changes it returns a new one. Anyone who stops waiting
leaves the job running.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal

from torchyard.base.errors import TorchyardError, Unreachable
from torchyard.client import resources as read
from torchyard.client.resources import Json, Listing, Resource
from torchyard.client.times import Deadline

if TYPE_CHECKING:
    from torchyard.client.job_history import DataFrame, MetricPoint
    from torchyard.client.job_reader import JobReader, RemoteFile
    from torchyard.client.trials.trials import SweepTrials

JobStatus = Literal[
    "NotStarted", "Queued", "Preparing", "Provisioning", "Starting", "Running", "Finalizing",
    "CancelRequested", "NotResponding", "Completed", "Failed", "Canceled",
]  # fmt: skip
"""Azure ML's names. A job ends as `Completed`, `Failed` or `Canceled`."""

_ENDED = ("Completed", "Failed", "Canceled")
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
# As long as a stream is patient; see streams.py.
_PATIENCE_S = 600.0


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JobError(Resource):
    """Why a job failed.

    Args:
        code: stable, as in docs/reference/failure-codes.md.
        rank: the rank that failed first; None where none did, and in a list of jobs.
        node: its node.
        log_lines: the last lines that it wrote; empty in a list of jobs.
    """

    code: str
    message: str
    hint: str
    rank: int | None
    node: int | None
    log_lines: tuple[str, ...]

    _shown = ("code", "message")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Stage(Resource):
    """One of Preparing, Scaling, Running, Post-Processing; `ended_at` is None until it is over."""

    name: str
    started_at: datetime
    ended_at: datetime | None
    duration_s: float | None
    waited_for: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class JobSummary(Resource):
    """A job as a list shows it. All times are aware, in UTC.

    Args:
        name: unique in the workspace.
        type: `command`, or another kind of run.
        parent: the name of its parent; None for most.
        ranks_per_node: processes on each of `node_count` nodes.
        job_tier: `standard`, or `spot` for a job that may be preempted.
        owner: who submitted it.
        attempt: the number of the newest try, from 1; 0 before the first.
        duration_s: how long its command ran, as its nodes measured it; None before its end.
        exit_code: negative for a signal; None where no rank has ended.
        error: None unless it failed.
        columns: what `client.jobs.list(columns=…)` asked for and the job has, by name: a metric's
            last value as a number, a parameter as text, an input as it was written. Empty where
            no columns were asked for.
    """

    _making: ClassVar[str] = (
        """write `client.jobs.create(command(command="python train.py", environment="python"))`"""
    )

    name: str
    display_name: str
    experiment_name: str
    type: str
    status: JobStatus
    description: str
    tags: Mapping[str, str]
    properties: Mapping[str, str]
    parent: str | None
    compute: str
    node_count: int
    ranks_per_node: int
    priority: str
    job_tier: str
    owner: str
    attempt: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    duration_s: float | None
    exit_code: int | None
    error: JobError | None
    archived: bool
    columns: Mapping[str, Any]

    _reader: JobReader = field(repr=False)

    _shown: ClassVar[tuple[str, ...]] = ("name", "display_name", "status")

    def _repr_html_(self) -> str:
        from torchyard.client.html.job_tables import job_table

        return job_table(self.raw, self._reader.page(self.name))

    @classmethod
    def _html_of_list(cls, items: Sequence[Resource], columns: Sequence[str]) -> str:
        from torchyard.client.html.job_tables import jobs_table

        jobs = [item for item in items if isinstance(item, JobSummary)]
        return jobs_table([(job.raw, job._reader.page(job.name)) for job in jobs])

    @property
    def has_ended(self) -> bool:
        """Whether the status is `Completed`, `Failed` or `Canceled`."""
        return self.status in _ENDED

    def refresh(self) -> Job:
        """The job as it is now.

        Raises:
            NotFound: it was deleted.
        """
        return job_from_json(self._reader.document(self.name), self._reader)

    def wait(self, timeout_s: float | None = None, *, check: bool = False) -> Job:
        """Wait until the job has ended; returns it then, however it ended.

        A server that is unreachable is waited for, up to ten minutes. Ctrl-C leaves the job
        running.

        Args:
            timeout_s: how long to wait; None for as long as it takes.
            check: raise an error unless the job has completed.

        Raises:
            Timeout: it has not ended in time; it goes on.
            JobFailed: `check` is True, and it failed or was canceled.

        Example::

            job = client.jobs.create(command(command="python train.py", environment="python"))
            job = job.wait(timeout_s=3600, check=True)
        """
        deadline = _deadline(self.name, timeout_s)
        with leaving(self.name):
            job = _wait(self, deadline)
        if check and job.status != "Completed":
            raise JobFailed(job)
        return job

    def stream(
        self,
        rank: int | None = None,
        *,
        timeout_s: float | None = None,
        out: BinaryIO | None = None,
    ) -> Job:
        """Print the job's output from its first byte on, until it has ended; returns it then.

        Ctrl-C leaves the job running.

        Args:
            rank: only this rank's output.
            timeout_s: how long to follow; None for as long as it takes.
            out: where the ranks' bytes go; standard output, or the notebook's cell, when None.

        Raises:
            Timeout: it has not ended in time; it goes on.
        """
        from torchyard.client.printing import Printer, bytes_of, print_frames, say

        # What is said of the job meets its bytes only on standard output.
        end_line = (lambda: say("")) if out is None else None
        if out is None:
            out = bytes_of(sys.stdout)
        printer = Printer(out, say, rank, end_line)
        frames = self._reader.follow(
            self.name, on_lost=printer.lost, deadline=_deadline(self.name, timeout_s)
        )
        with leaving(self.name):
            document = print_frames(frames, printer)
        return job_from_json(document, self._reader)

    def cancel(self, now: bool = False) -> Job:
        """Ask for the job's end, and return at once; a job that has ended stays as it is.

        Args:
            now: kill its ranks at once, without the grace period in which they may save their
                work; also for a job that is being canceled already.
        """
        query = {"now": "true"} if now else None
        body = self._reader.request("POST", self.name, "cancel", query=query)
        return job_from_json(body, self._reader)

    def logs(self, rank: int | None = None) -> str:
        """What the ranks have written so far, in the newest attempt.

        Args:
            rank: only this rank's output, as it is. None for all: of a job with several ranks
                they follow each other, every line behind its rank, `[3] `, and of a progress
                bar its last state.

        Raises:
            NotFound: the rank has written nothing.
        """
        return self._reader.logs(self.name, rank)

    def trials(self) -> SweepTrials:
        """The trials of a sweep, with its best one.

        Raises:
            InvalidInput: the job is not a sweep.

        Example::

            job.trials().to_pandas().sort_values("val_loss")
        """
        return self._reader.trials(self.name)

    def metrics(self, keys: Iterable[str] | None = None) -> DataFrame:
        """Metrics, side by side: a pandas DataFrame, or a list of `MetricPoint` without pandas.

        The DataFrame has a row a step, its index, and a column a key; see `metrics_frame` of
        `client.jobs`. The list is that of `points`.

        Args:
            keys: only these; all when None.

        Raises:
            NotFound: no such key.

        Example::

            job.metrics()["loss"].plot()
        """
        return self._reader.metrics(self.name, keys)

    def points(self, keys: Iterable[str] | None = None) -> list[MetricPoint]:
        """Every point of its metrics, in order of arrival by key.

        Args:
            keys: only these; all when None.

        Raises:
            NotFound: no such key.
        """
        return self._reader.points(self.name, keys)

    def files(self) -> Listing[RemoteFile]:
        """Its artifacts and logs: `outputs/…`, `user_logs/…`, `logs/…`."""
        return self._reader.files(self.name)

    def outputs(self) -> Listing[RemoteFile]:
        """The files of its named outputs."""
        return self._reader.outputs(self.name)

    def download(
        self,
        path: Path | str = ".",
        *,
        output_name: str = "",
        everything: bool = False,
        timeout_s: float | None = None,
    ) -> list[Path]:
        """Download its artifacts to `path`/artifacts; returns the files written.

        Args:
            path: a folder; made where it is not there.
            output_name: this named output instead, to `path`/named-outputs/<output>.
            everything: the artifacts and all named outputs.
            timeout_s: how long it may take; None for as long as it takes.

        Raises:
            NotFound: the job has no such output.
            Timeout: it took longer than `timeout_s`; files that are there are whole.
        """
        return self._reader.download(
            self.name, path, output_name=output_name, everything=everything, timeout_s=timeout_s
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Job(JobSummary):
    """A job, by itself. All times are aware, in UTC.

    Beside the fields of `JobSummary`:

    Args:
        waiting: why a queued job waits; empty for others.
        stages: its timeline.
        notices: what the server changed or ignored, in sentences.
        last_metrics: the last value of each metric; `metrics()` reads all values.
        params: what the script logged as parameters.
        models: the registered models made of it, as `digits:1`.
        was_submitted: False where `create` found the same job under its name.

    Example::

        job = client.jobs.create(command(command="python train.py", environment="python"))
        job.stream()
        job = job.wait(timeout_s=3600)
        job.status, job.last_metrics["loss"]
    """

    waiting: str
    stages: tuple[Stage, ...]
    notices: tuple[str, ...]
    last_metrics: Mapping[str, float]
    params: Mapping[str, str]
    models: tuple[str, ...]
    was_submitted: bool


class JobFailed(TorchyardError):
    """A job that was waited for with `check=True` failed or was canceled; `job` is that job."""

    code = "job_failed"
    exit_code = 1

    def __init__(self, job: Job) -> None:
        self.job = job
        ending = "was canceled" if job.status == "Canceled" else "failed"
        reason = f": {job.error.message}" if job.error else ""
        hint = (job.error.hint if job.error else "") or "see `job.logs()`"
        super().__init__(f"job `{job.name}` {ending}{reason}", hint)


@contextmanager
def leaving(name: str) -> Iterator[None]:
    """Say with Ctrl-C that the job goes on, and how to come back to it."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"job `{name}` keeps running; follow it again with `job.stream()` or `yard job stream "
            f"{name}`, end it with `job.cancel()`"
        ) from None


def summary_from_json(raw: Json, reader: JobReader) -> JobSummary:
    """A row of a list of jobs."""
    return JobSummary(**_summary_fields(raw, reader), columns=_columns(raw))


def _columns(raw: Json) -> dict[str, Any]:
    metrics: Mapping[str, Any] = raw.get("metrics") or {}
    columns: dict[str, Any] = {
        f"metrics.{key}": read.number(value) for key, value in metrics.items()
    }
    for group in ("params", "inputs"):
        values: Mapping[str, Any] = raw.get(group) or {}
        columns |= {f"{group}.{key}": value for key, value in values.items()}
    if raw.get("waiting"):
        columns["waiting"] = raw["waiting"]
    return columns


def job_from_json(raw: Json, reader: JobReader) -> Job:
    """What the server answers of one job."""
    raw = {**raw}
    # Of the request, not of the job.
    was_submitted = raw.pop("submitted", True) is not False
    metrics: Mapping[str, Any] = raw.get("metrics") or {}
    return Job(
        **_summary_fields(raw, reader),
        columns={},
        was_submitted=was_submitted,
        waiting=read.text(raw, "waiting"),
        stages=tuple(_stage(row) for row in raw.get("stages") or ()),
        notices=read.texts(raw, "notices"),
        last_metrics={key: read.number(value) for key, value in metrics.items()},
        params=read.mapping(raw, "params"),
        models=tuple(f"{row['name']}:{row['version']}" for row in raw.get("models") or ()),
    )


def _summary_fields(raw: Json, reader: JobReader) -> dict[str, Any]:
    error = raw.get("error")
    return {
        "raw": raw,
        "_reader": reader,
        "name": raw["name"],
        "display_name": read.text(raw, "display_name"),
        "experiment_name": read.text(raw, "experiment_name"),
        "type": read.text(raw, "type"),
        "status": raw["status"],
        "description": read.text(raw, "description"),
        "tags": read.mapping(raw, "tags"),
        "properties": read.mapping(raw, "properties"),
        "parent": raw.get("parent") or None,
        "compute": read.text(raw, "compute"),
        "node_count": read.integer_at(raw, "node_count"),
        "ranks_per_node": read.integer_at(raw, "processes_per_node"),
        "priority": read.text(raw, "priority"),
        "job_tier": read.text(raw, "job_tier"),
        "owner": read.text(raw, "owner"),
        "attempt": read.integer_at(raw, "attempt"),
        "created_at": read.moment(raw, "created_at"),
        "started_at": read.optional_moment(raw, "started_at"),
        "ended_at": read.optional_moment(raw, "ended_at"),
        "duration_s": read.optional_number(raw, "duration_s"),
        "exit_code": read.optional_whole(raw, "exit_code"),
        "error": _error(error) if error else None,
        "archived": bool(raw.get("archived")),
    }


def _error(raw: Json) -> JobError:
    details = raw.get("details") or {}
    return JobError(
        raw=raw,
        code=read.text(raw, "code"),
        message=read.text(raw, "message"),
        hint=read.text(raw, "hint"),
        rank=read.optional_whole(details, "rank"),
        node=read.optional_whole(details, "node"),
        log_lines=read.texts(details, "log_lines"),
    )


def _stage(raw: Json) -> Stage:
    return Stage(
        raw=raw,
        name=raw["name"],
        started_at=read.moment(raw, "start"),
        ended_at=read.optional_moment(raw, "end"),
        duration_s=read.optional_number(raw, "duration_s"),
        waited_for=read.text(raw, "waited_for"),
    )


def _deadline(name: str, timeout_s: float | None) -> Deadline:
    hint = f"it goes on; wait longer, or end it with `job.cancel()` or `yard job cancel {name}`"
    return Deadline(timeout_s, f"job `{name}` has not ended", hint)


def _wait(job: JobSummary, deadline: Deadline) -> Job:
    fresh = job.refresh()
    pause_s = _FIRST_PAUSE_S
    answered_at = time.monotonic()
    while not fresh.has_ended:
        deadline.check()
        time.sleep(deadline.within(pause_s))
        pause_s = min(1.5 * pause_s, _LONGEST_PAUSE_S)
        try:
            fresh = job.refresh()
            answered_at = time.monotonic()
        except Unreachable:
            if time.monotonic() - answered_at > _PATIENCE_S:
                raise
    return fresh
