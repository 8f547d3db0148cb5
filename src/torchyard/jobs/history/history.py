"""The metrics, parameters and tags that runs log.

Owns: that a parameter keeps its value, repeats from workers, writing and reading them.
Leaves: what a valid record is to history_records.py; tables to history_store.py; a job's tags
to records/store.py, its properties and what it measures of models to logged_properties.py and
logged_metrics.py.
Always: the records of one call are stored in one transaction; equal points are stored once; a bad
record from a worker never holds up the others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from torchyard.base.clock import Clock
from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput
from torchyard.base.threads import Threads
from torchyard.jobs.history import history_store as store
from torchyard.jobs.history import (
    logged_metrics,
    logged_properties,
    metric_rows,
    metric_types,
    rewinds,
    shared_keys,
)
from torchyard.jobs.history.history_records import (
    Metric,
    ModelMetric,
    Param,
    Property,
    Record,
    RunLogMetric,
    SampledMetric,
    read,
)
from torchyard.jobs.history.metric_blocks import Point
from torchyard.jobs.history.metric_rows import Row
from torchyard.jobs.records import store as job_store
from torchyard.jobs.records.job_events import Notice, notices_of
from torchyard.shared.record_rules import is_storable


@dataclass(frozen=True)
class RunData:
    """The last of every metric and all parameters of one run, both sorted by key."""

    metrics: tuple[Metric, ...] = ()
    params: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """What became of a worker's records.

    Attributes:
        next: the number expected next.
        rejected: {"seq", "message"} of each that is wrong.
        resumed: the step from which a run goes on, and how many points it will log again.
    """

    next: int
    rejected: list[dict[str, Any]] = field(default_factory=list)
    resumed: list[tuple[int, int]] = field(default_factory=list)


@dataclass
class _Batch:
    """The records of one job, on their way into the database."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    run_log_points: dict[str, list[Point]] = field(default_factory=dict)
    sampled_points: dict[str, list[Point]] = field(default_factory=dict)
    params: list[tuple[int, Param]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    properties: dict[str, tuple[int, str]] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    model_metrics: list[ModelMetric] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)

    def add(self, index: int, record: Record) -> None:
        points = self.points
        if isinstance(record, ModelMetric):
            self.model_metrics.append(record)
            record = record.metric
        elif isinstance(record, SampledMetric):
            points = self.sampled_points
            record = record.metric
        elif isinstance(record, RunLogMetric):
            points = self.run_log_points
            if record.type is not None:
                self.types.setdefault(record.metric.key, record.type)
            record = record.metric
        if isinstance(record, Metric):
            # `metric()` has made the value the one NaN, if it is one.
            point = Point(record.timestamp, record.step, record.value)
            points.setdefault(record.key, []).append(point)
        elif isinstance(record, Param):
            self.params.append((index, record))
        elif isinstance(record, Row):
            self.rows.append(record)
        elif isinstance(record, Property):
            self.properties.setdefault(record.key, (index, record.value))
        else:
            self.tags[record.key] = record.value


class History:
    """The run history of one server.

    Attributes:
        threads: for requests that log. A database has few writers, and a thread that waits for
            them slows those that it waits for; so the others wait before they get one, and the
            first to come is the first.
    """

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self.threads = Threads("log", db.writers)

    def append(self, job_id: int, records: Sequence[Record]) -> None:
        """Store all of the records, made by `metric`, `param` and `tag`, or none.

        Raises:
            InvalidInput: a parameter has another value already (code `param_changed`).
        """
        batch = _Batch()
        for index, record in enumerate(records):
            batch.add(index, record)
        with self._db.write(*_alone([job_id], bool(batch.model_metrics))) as connection:
            refused = self._store(connection, job_id, batch)
            if refused:
                raise InvalidInput(refused[0][1], "log it under another key", code="param_changed")

    def receive(
        self,
        job_id_of: Callable[[str], int | None],
        attempt_id: str,
        node: int,
        seq: int,
        records: Sequence[Any],
        first: int | None = None,
        is_over: bool = False,
    ) -> Received:
        """Store what a worker sends; what came before is dropped, what is wrong is named.

        What would leave a gap is not stored but asked for, unless the worker has it no more.

        Args:
            job_id_of: from a run's id to its job; None when the workspace has no such run.
            seq: the number of the first of `records`, counted per node of an attempt.
            first: the oldest number that the worker can still send; None for `seq`.
            is_over: the attempt has ended, and a later one may have been resumed since.
        """
        jobs = _jobs_of(job_id_of, records)
        of_models = any(isinstance(body, dict) and body.get("model_id") for body in records)
        alone = _alone([job_id for job_id in jobs.values() if job_id is not None], of_models)
        with self._db.write(*alone, *([f"attempt/{attempt_id}"] if alone else [])) as connection:
            before = store.cursor(connection, attempt_id, node)
            expected = before or 0
            if seq > expected and first is not None and seq > first:
                return Received(expected)
            stored_count = max(0, expected - seq)
            batches, rejected = _sorted(jobs, records, stored_count)
            resumed: list[tuple[int, int]] = []
            for job_id, batch in batches.items():
                if is_over:
                    batch.points = rewinds.late(connection, job_id, batch.points)
                    batch.run_log_points = rewinds.late(connection, job_id, batch.run_log_points)
                resumed += _rewound(connection, job_id, batch, rejected)
                rejected += self._store(connection, job_id, batch, counted=True)
            if seq > expected:
                rejected.append((0, f"{seq - expected:,} records of node {node} are lost"))
            following = max(expected, seq + len(records))
            if following > expected:
                store.set_cursor(connection, attempt_id, node, before, following)
        return Received(
            following,
            [{"seq": seq + index, "message": message} for index, message in sorted(rejected)],
            resumed,
        )

    def _store(
        self, connection: Connection, job_id: int, batch: _Batch, counted: bool = False
    ) -> list[tuple[int, str]]:
        refused = []
        if batch.params:
            stored = {key: value for _, key, value in store.params_of(connection, [job_id])}
            added: dict[str, str] = {}
            for index, record in batch.params:
                old = stored.get(record.key, added.get(record.key))
                if old is None:
                    added[record.key] = record.value
                elif old != record.value:
                    refused.append((index, param_changed(record.key, old, record.value)))
            store.add_params(connection, job_id, added)
        is_shared = False
        for points, by_run_log in ((batch.points, False), (batch.run_log_points, True)):
            if points:
                is_shared |= store.add_points(connection, job_id, points, counted, by_run_log)
        if batch.sampled_points:
            store.add_sampled(connection, job_id, batch.sampled_points, counted)
        if is_shared:
            self._tell_shared(connection, job_id)
        if batch.types:
            metric_types.add(connection, job_id, batch.types)
        if batch.rows:
            metric_rows.add(connection, job_id, batch.rows)
        if batch.tags:
            job_store.merge_tags(connection, job_id, batch.tags)
        if batch.properties:
            properties = {key: value for key, (_, value) in batch.properties.items()}
            for key, why in logged_properties.add(connection, job_id, properties).items():
                refused.append((batch.properties[key][0], why))
        if batch.model_metrics:
            logged_metrics.add(connection, job_id, batch.model_metrics)
        return refused

    def _tell_shared(self, connection: Connection, job_id: int) -> None:
        if shared_keys.NOTICE not in notices_of(job_store.events_after(connection, job_id, 0)):
            notice = Notice(shared_keys.NOTICE)
            job_store.add_event(connection, job_id, self._clock.now(), notice)

    def keys(self, job_id: int, sampled: bool = False) -> list[str]:
        """The keys of the job's metrics, sorted; with those that workers sample only on request."""
        return [metric.key for metric in self.data_of([job_id], sampled)[job_id].metrics]

    def series(
        self, job_id: int, key: str, offset: int = 0, limit: int | None = None
    ) -> list[Point]:
        """The points of one key in order of arrival."""
        with self._db.read() as connection:
            return store.points_of(connection, job_id, key, offset, limit)

    def counts(self, job_ids: Collection[int], key: str) -> dict[int, int]:
        """How many points of one key each job has; without those that have none."""
        with self._db.read() as connection:
            return store.counts_of(connection, list(job_ids), key)

    def extremes(self, job_id: int, key: str) -> tuple[float, float] | None:
        """The lowest and the highest value of one key; None without any number."""
        with self._db.read() as connection:
            return store.extremes_of(connection, job_id, key)

    def types(self, job_id: int) -> dict[str, str]:
        """By key, of metrics that were logged as another type than floats."""
        with self._db.read() as connection:
            types = metric_types.of_job(connection, job_id)
        return {**types, **{shared_keys.of_run_log(key): type for key, type in types.items()}}

    def latest(self, job_id: int) -> list[Metric]:
        """The latest point of every logged key, by step, then timestamp, then value; by key."""
        return list(self.data_of([job_id])[job_id].metrics)

    def params(self, job_id: int) -> dict[str, str]:
        return self.data_of([job_id])[job_id].params

    def data_of(self, job_ids: Collection[int], sampled: bool = False) -> dict[int, RunData]:
        """What a list of runs shows of each.

        Args:
            sampled: with the metrics that workers sample.
        """
        latest: dict[int, list[Metric]] = {job_id: [] for job_id in job_ids}
        values: dict[int, dict[str, str]] = {job_id: {} for job_id in job_ids}
        with self._db.read() as connection:
            for some in _in_pieces(list(job_ids)):
                for metric in store.latest_of(connection, some, sampled=sampled):
                    latest[metric.job_id].append(
                        Metric(metric.key, metric.timestamp, metric.step, metric.value)
                    )
                for job_id, key, value in store.params_of(connection, some):
                    values[job_id][key] = value
        return {job_id: RunData(tuple(latest[job_id]), values[job_id]) for job_id in job_ids}

    def settle_ended(self) -> None:
        """Bring back what resumed runs had put aside and did not log again, of jobs that ended."""
        with self._db.read() as connection:
            job_ids = rewinds.unsettled(connection)
            ended = [each for each in job_ids if job_store.job_by_id(connection, each).status.ended]
        for job_id in ended:
            with self._db.write(*_alone([job_id], False)) as connection:
                rewinds.settle(connection, job_id)

    def delete(self, job_id: int) -> None:
        """Forget the job's metrics and parameters."""
        with self._db.write() as connection:
            store.drop(connection, job_id)


def param_changed(key: str, old: str, new: str) -> str:
    """Why a parameter is refused."""
    return (
        f"Changing param values is not allowed. Param with key='{key}' was already logged "
        f"with value='{old[:200]}'. Attempted logging new value '{new[:200]}'"
    )


def _alone(job_ids: Sequence[int], of_models: bool) -> list[str]:
    """What a writer of these jobs' history holds; everything, when logged models are touched."""
    return [] if of_models else [f"job/{job_id}" for job_id in job_ids]


def _jobs_of(
    job_id_of: Callable[[str], int | None], records: Sequence[Any]
) -> dict[str, int | None]:
    # Looked up before the write transaction, which should be short.
    runs = {
        record["run"]
        for record in records
        if isinstance(record, dict) and isinstance(record.get("run"), str)
    }
    return {run: job_id_of(run) for run in runs if is_storable(run)}


def _sorted(
    jobs: Mapping[str, int | None], records: Sequence[Any], stored_count: int
) -> tuple[dict[int, _Batch], list[tuple[int, str]]]:
    """The records by job, and what is wrong with some.

    The first `known` of them are stored already. They are judged again, because the answer that
    named the wrong ones may have been lost; only parameters need the database for that.
    """
    batches: dict[int, _Batch] = {}
    rejected: list[tuple[int, str]] = []
    for index, body in enumerate(records):
        try:
            run, record = read(body)
        except InvalidInput as error:
            rejected.append((index, error.message))
            continue
        job_id = jobs.get(run)
        if job_id is None:
            rejected.append((index, f"run `{run[:100]}` does not exist"))
        elif index >= stored_count or isinstance(record, Param):
            batches.setdefault(job_id, _Batch()).add(index, record)
    return batches, rejected


def _rewound(
    connection: Connection, job_id: int, batch: _Batch, rejected: list[tuple[int, str]]
) -> list[tuple[int, int]]:
    """Put aside what a run that goes on from a checkpoint will log again."""
    if rewinds.TAG not in batch.tags:
        return []
    try:
        rewind = rewinds.read(batch.tags[rewinds.TAG])
    except InvalidInput as error:
        rejected.append((0, f"{error.message}; {error.hint}"))
        return []
    return [(rewind.step, rewinds.add(connection, job_id, rewind))]


def _in_pieces(job_ids: list[int], size: int = 500) -> list[list[int]]:
    return [job_ids[start : start + size] for start in range(0, len(job_ids), size)]
