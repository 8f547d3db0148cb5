"""What runs tell of themselves: metrics, parameters, tags.

Owns: what a valid record is, that a parameter keeps its value, repeats from workers.
Leaves: tables to history_store.py; where tags are kept to the one who passes `set_tags`.
Always: the records of one call are stored in one transaction; equal points are stored once; of
what a worker sends, one bad record never holds up the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection

from torchyard.base.db import Database
from torchyard.base.errors import InvalidInput
from torchyard.jobs import history_store as store
from torchyard.jobs import metric_blocks
from torchyard.jobs.metric_blocks import INT64_MAX, INT64_MIN, Point

KEY_MAX_LENGTH = 250
TEXT_MAX_LENGTH = 1_000_000
# What may stand beside a metric of a logged model, and how long it may be.
_MODEL_FIELDS = {"model_id": 64, "dataset_name": 500, "dataset_digest": 128}
_NUMBER_NAMES = {"NaN": metric_blocks.NAN, "Infinity": math.inf, "-Infinity": -math.inf}

SetTags = Callable[[Connection, int, Mapping[str, str]], None]


class Metric(NamedTuple):
    """One point of one key; `timestamp` in ms since 1970."""

    key: str
    timestamp: int
    step: int
    value: float


@dataclass(frozen=True)
class Param:
    key: str
    value: str


@dataclass(frozen=True)
class Tag:
    key: str
    value: str


@dataclass(frozen=True)
class ModelMetric:
    """A point that was measured of a logged model, maybe on a data set; the run has it too."""

    model_id: str
    dataset_name: str
    dataset_digest: str
    metric: Metric


Record = Metric | Param | Tag | ModelMetric
AddModelMetrics = Callable[[Connection, int, Sequence[ModelMetric]], None]


@dataclass(frozen=True)
class RunData:
    """The last of every metric and all parameters of one run, both sorted by key."""

    metrics: tuple[Metric, ...] = ()
    params: dict[str, str] = field(default_factory=dict)


@dataclass
class _Sheaf:
    """The records of one job, on their way into the database."""

    points: dict[str, list[Point]] = field(default_factory=dict)
    params: list[tuple[int, Param]] = field(default_factory=list)
    tags: dict[str, str] = field(default_factory=dict)
    model_metrics: list[ModelMetric] = field(default_factory=list)

    def add(self, place: int, record: Record) -> None:
        if isinstance(record, ModelMetric):
            self.model_metrics.append(record)
            record = record.metric
        if isinstance(record, Metric):
            # `metric()` has made the value the one NaN, if it is one.
            kept = Point(record.timestamp, record.step, record.value)
            self.points.setdefault(record.key, []).append(kept)
        elif isinstance(record, Param):
            self.params.append((place, record))
        else:
            self.tags[record.key] = record.value


class History:
    """The run history of one server.

    Args:
        set_tags: merges tags into a job's own, in the transaction it is given.
        add_model_metrics: keeps what was measured of logged models, likewise.
    """

    def __init__(
        self,
        db: Database,
        set_tags: SetTags,
        add_model_metrics: AddModelMetrics | None = None,
    ) -> None:
        self._db = db
        self._set_tags = set_tags
        self._add_model_metrics = add_model_metrics

    def append(self, job_id: int, records: Sequence[Record]) -> None:
        """Store all of the records, made by `metric`, `param` and `tag`, or none.

        Raises:
            InvalidInput: a parameter has another value already (code `param_changed`).
        """
        sheaf = _Sheaf()
        for place, record in enumerate(records):
            sheaf.add(place, record)
        with self._db.write(*_alone([job_id], bool(sheaf.model_metrics))) as connection:
            refused = self._store(connection, job_id, sheaf)
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
    ) -> dict[str, Any]:
        """Store what a worker sends; what came before is dropped, what is wrong is named.

        What would leave a gap is not stored but asked for, unless the worker has it no more.

        Args:
            job_id_of: from a run's id to its job; None when it is no run of the workspace.
            seq: the number of the first of `records`, counted per node of an attempt.
            first: the oldest number that the worker can still send; None for `seq`.

        Returns:
            {"next": number expected next, "rejected": [{"seq", "message"}]}
        """
        jobs = _jobs_of(job_id_of, records)
        of_models = any(isinstance(body, dict) and body.get("model_id") for body in records)
        alone = _alone([job_id for job_id in jobs.values() if job_id is not None], of_models)
        with self._db.write(*alone, *([f"attempt/{attempt_id}"] if alone else [])) as connection:
            before = store.cursor(connection, attempt_id, node)
            expected = before or 0
            if seq > expected and first is not None and seq > first:
                return {"next": expected, "rejected": []}
            known = max(0, expected - seq)
            sheaves, rejected = _sorted(jobs, records, known)
            for job_id, sheaf in sheaves.items():
                rejected += self._store(connection, job_id, sheaf)
            if seq > expected:
                rejected.append((0, f"{seq - expected:,} records of node {node} are lost"))
            following = max(expected, seq + len(records))
            if following > expected:
                store.set_cursor(connection, attempt_id, node, before, following)
        return {
            "next": following,
            "rejected": [
                {"seq": seq + place, "message": message} for place, message in sorted(rejected)
            ],
        }

    def _store(self, connection: Connection, job_id: int, sheaf: _Sheaf) -> list[tuple[int, str]]:
        refused = []
        if sheaf.params:
            stored = {key: value for _, key, value in store.params_of(connection, [job_id])}
            added: dict[str, str] = {}
            for place, record in sheaf.params:
                old = stored.get(record.key, added.get(record.key))
                if old is None:
                    added[record.key] = record.value
                elif old != record.value:
                    refused.append((place, param_changed(record.key, old, record.value)))
            store.add_params(connection, job_id, added)
        if sheaf.points:
            store.add_points(connection, job_id, sheaf.points)
        if sheaf.tags:
            self._set_tags(connection, job_id, sheaf.tags)
        if sheaf.model_metrics and self._add_model_metrics is not None:
            self._add_model_metrics(connection, job_id, sheaf.model_metrics)
        return refused

    def keys(self, job_id: int) -> list[str]:
        """The keys of the job's metrics, sorted."""
        return [one.key for one in self.latest(job_id)]

    def series(
        self, job_id: int, key: str, offset: int = 0, limit: int | None = None
    ) -> list[Point]:
        """The points of one key in order of arrival."""
        with self._db.read() as connection:
            return store.points_of(connection, job_id, key, offset, limit)

    def latest(self, job_id: int) -> list[Metric]:
        """The latest point of every key, by step, then timestamp, then value; sorted by key."""
        return list(self.data_of([job_id])[job_id].metrics)

    def params(self, job_id: int) -> dict[str, str]:
        return self.data_of([job_id])[job_id].params

    def data_of(self, job_ids: Collection[int]) -> dict[int, RunData]:
        """What a list of runs shows of each."""
        latest: dict[int, list[Metric]] = {job_id: [] for job_id in job_ids}
        values: dict[int, dict[str, str]] = {job_id: {} for job_id in job_ids}
        with self._db.read() as connection:
            for some in _in_pieces(list(job_ids)):
                for one in store.latest_of(connection, some):
                    latest[one.job_id].append(Metric(one.key, one.timestamp, one.step, one.value))
                for job_id, key, value in store.params_of(connection, some):
                    values[job_id][key] = value
        return {job_id: RunData(tuple(latest[job_id]), values[job_id]) for job_id in job_ids}

    def delete(self, job_id: int) -> None:
        """Forget the job's metrics and parameters."""
        with self._db.write() as connection:
            store.drop(connection, job_id)


def metric(key: Any, value: Any, timestamp: Any, step: Any = 0) -> Metric:
    """A metric record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "metric")
    return Metric(
        key,
        _integer(timestamp, "timestamp", key),
        _integer(step, "step", key),
        number(value, key),
    )


def of_model(point: Metric, fields: Mapping[str, Any]) -> Metric | ModelMetric:
    """The point with the logged model and the data set that `fields` may name besides.

    Raises:
        InvalidInput: one of them is no text, or too long.
    """
    if not fields.get("model_id"):
        return point
    names = []
    for name, limit in _MODEL_FIELDS.items():
        text = fields.get(name) or ""
        if not isinstance(text, str) or len(text) > limit or not _is_storable(text):
            raise InvalidInput(f"metric `{point.key}`: `{name}` is no text of up to {limit}")
        names.append(text)
    return ModelMetric(names[0], names[1], names[2], point)


def param(key: Any, value: Any) -> Param:
    """A parameter record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "parameter")
    return Param(key, _text(value, "parameter", key))


def tag(key: Any, value: Any) -> Tag:
    """A tag record from what a client sent.

    Raises:
        InvalidInput: names the field that is wrong.
    """
    _check_key(key, "tag")
    return Tag(key, _text(value, "tag", key))


def number(value: Any, key: str) -> float:
    """A float from a JSON number or the name of one that JSON lacks; every NaN the same object.

    Raises:
        InvalidInput: it is neither.
    """
    if isinstance(value, str):
        if value in _NUMBER_NAMES:
            return _NUMBER_NAMES[value]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            converted = float(value)
        except OverflowError:
            raise InvalidInput(f"metric `{key}`: the value does not fit a 64-bit float") from None
        return converted if converted == converted else metric_blocks.NAN
    raise InvalidInput(f"metric `{key}`: value `{str(value)[:100]}` is no number")


def number_json(value: float) -> float | str:
    """A float as JSON can say it: `number` reads it back."""
    if math.isfinite(value):
        return value
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


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
    return {run: job_id_of(run) for run in runs if _is_storable(run)}


def _sorted(
    jobs: Mapping[str, int | None], records: Sequence[Any], known: int
) -> tuple[dict[int, _Sheaf], list[tuple[int, str]]]:
    """The records by job, and what is wrong with some.

    The first `known` of them are stored already. They are judged again, because the answer that
    named the wrong ones may have been lost; only parameters need the database for that.
    """
    sheaves: dict[int, _Sheaf] = {}
    rejected: list[tuple[int, str]] = []
    for place, body in enumerate(records):
        try:
            run, record = _read(body)
        except InvalidInput as error:
            rejected.append((place, error.message))
            continue
        job_id = jobs.get(run)
        if job_id is None:
            rejected.append((place, f"run `{run[:100]}` does not exist"))
        elif place >= known or isinstance(record, Param):
            sheaves.setdefault(job_id, _Sheaf()).add(place, record)
    return sheaves, rejected


def _read(body: Any) -> tuple[str, Record]:
    if not isinstance(body, dict):
        raise InvalidInput("a record is no JSON object")
    run, kind = body.get("run"), body.get("kind")
    if not isinstance(run, str) or not _is_storable(run):
        raise InvalidInput("a record names no run")
    key, value = body.get("key"), body.get("value")
    if kind == "metric":
        point = metric(key, value, body.get("timestamp"), body.get("step", 0))
        return run, of_model(point, body)
    if kind == "param":
        return run, param(key, value)
    if kind == "tag":
        return run, tag(key, value)
    raise InvalidInput(f"kind `{str(kind)[:50]}` is not metric, param or tag")


def _check_key(key: Any, kind: str) -> None:
    if not isinstance(key, str) or not key:
        raise InvalidInput(f"a {kind} has no key")
    if len(key) > KEY_MAX_LENGTH:
        raise InvalidInput(
            f"{kind} key `{key[:50]}…` has {len(key)} characters, {KEY_MAX_LENGTH} at the most"
        )
    if not _is_storable(key):
        raise InvalidInput(f"{kind} key {key[:50]!a} holds characters that are no text")


def _text(value: Any, kind: str, key: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{kind} `{key}`: the value is no text")
    if len(value) > TEXT_MAX_LENGTH:
        raise InvalidInput(
            f"{kind} `{key}`: the value has {len(value)} characters, {TEXT_MAX_LENGTH} at the most"
        )
    if not _is_storable(value):
        raise InvalidInput(f"{kind} `{key}`: the value holds characters that are no text")
    return value


def _is_storable(text: str) -> bool:
    """JSON can say half a surrogate pair and NUL, which databases refuse."""
    if text.isascii():
        return "\0" not in text
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def _integer(value: Any, field_name: str, key: str) -> int:
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise InvalidInput(f"metric `{key}`: {field_name} `{str(value)[:50]}` is no 64-bit integer")
    return value


def _in_pieces(job_ids: list[int], size: int = 500) -> list[list[int]]:
    return [job_ids[start : start + size] for start in range(0, len(job_ids), size)]
