"""What jobs logged, over HTTP: last values, charts, every point, files, pandas DataFrames.

Owns: requests for metrics, comparing jobs.
Leaves: reduction and files to the server.
Always: pandas is imported only where a DataFrame is returned; NaN and infinities are floats.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.resources import Json, Listing, Resource, number

if TYPE_CHECKING:
    # Absent where nobody needs tables, and without types where it is there.
    DataFrame = Any

By = Literal["step", "time"]
System = Literal["hidden", "too", "only"]
Number = float | list[float]


class MetricPoint(NamedTuple):
    """One value of a metric.

    Args:
        timestamp_ms: since 1970, UTC.
    """

    key: str
    step: int
    timestamp_ms: int
    value: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class MetricSummary(Resource):
    """One key: how many points, their range (None where all are NaN), and the last point.

    Args:
        timestamp_ms: since 1970, UTC.
    """

    key: str
    count: int
    min: float | None
    max: float | None
    step: int
    timestamp_ms: int
    value: float

    _shown = ("key", "count", "value")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ChartLine(Resource):
    """One line of a chart, a key of a job: `points` where there are few, else `columns`.

    Args:
        points: every (x, value).
        columns: (x, smallest, largest value from there to the next column).
    """

    job: str
    key: str
    count: int
    points: Sequence[tuple[int, float]]
    columns: Sequence[tuple[int, float, float]]

    _shown = ("job", "key", "count")


class JobHistory:
    """What the jobs of one workspace logged; `client.jobs` is one."""

    def __init__(self, transport: Transport, workspace_path: str) -> None:
        self._transport = transport
        self._workspace_path = workspace_path
        self._path = f"{workspace_path}/jobs"

    def metrics(self, name: str, keys: Iterable[str] | None = None) -> DataFrame:
        """Metrics, side by side: a pandas DataFrame, or a list of `MetricPoint` without pandas.

        The DataFrame is that of `metrics_frame`: a row a step, a column a key. The list is that
        of `points`: every point, in order of arrival by key.

        Args:
            keys: only these; all when None.

        Raises:
            NotFound: no such job or key.

        Example::

            client.jobs.metrics("brave-otter")["loss"].plot()
        """
        try:
            _pandas()
        except InvalidInput:
            return self.points(name, keys)
        return self.metrics_frame(name, keys)

    def points(self, name: str, keys: Iterable[str] | None = None) -> list[MetricPoint]:
        """Every point, in order of arrival by key.

        Args:
            keys: only these; all when None.

        Raises:
            NotFound: no such job or key.
        """
        return [point for key in self._keys_of(name, keys) for point in self.history(name, key)]

    def metric_values(self, name: str, keys: Iterable[str] | None = None) -> dict[str, Number]:
        """By key: the value when it was logged once, a list in order of arrival when several times.

        It reads every point; `get(name).last_metrics` holds the last values only.

        Args:
            keys: only these; all when None.

        Raises:
            NotFound: no such job or key.

        Example::

            client.jobs.metric_values("brave-otter")["val_acc"][-1]
        """
        metrics: dict[str, Number] = {}
        for key in self._keys_of(name, keys):
            values = [point.value for point in self.history(name, key)]
            metrics[key] = values[0] if len(values) == 1 else values
        return metrics

    def metric_keys(self, name: str, *, system: System = "hidden") -> Listing[MetricSummary]:
        """Every key that the job logged, sorted, with its range and its last value.

        Args:
            system: whether what nodes and ranks use, `system/node-0/cpu_utilization_percentage`
                and so on, is left out, there too, or alone.

        Raises:
            NotFound: no job has this name.
        """
        response = self._transport.get(f"{self._job_path(name)}/metrics", {"system": system})
        return Listing(_summary(row) for row in response["value"])

    def metric_tables(self, name: str) -> list[Json]:
        """What SDK v1's `log_table`, `log_list` and `log_row` logged, by key: `key`, `count`,
        `columns` and the first `rows`, each a value by column.

        Raises:
            NotFound: no job has this name.
        """
        response = self._transport.get(f"{self._job_path(name)}/metrics", {"system": "hidden"})
        return list(response.get("tables") or [])

    def history(
        self,
        name: str,
        key: str,
        *,
        x: By = "step",
        start: int | None = None,
        end: int | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> list[MetricPoint]:
        """The points of one key, exactly, in order of arrival.

        Args:
            x: what `start` and `end` (both included) count: steps, or ms since 1970.
            offset: skip this many points of the range.
            limit: return at most this many.

        Raises:
            NotFound: no such job or key.
        """
        query = {"key": key, "x": x, "from": start, "to": end, "offset": offset, "limit": limit}
        response = self._transport.get(f"{self._job_path(name)}/metrics/history", query)
        return [
            MetricPoint(key, step, timestamp_ms, number(value))
            for step, timestamp_ms, value in response["points"]
        ]

    def chart(
        self,
        names: str | Sequence[str],
        keys: str | Sequence[str],
        *,
        width: int = 1000,
        x: By = "step",
        start: int | None = None,
        end: int | None = None,
    ) -> Listing[ChartLine]:
        """What a chart of `width` pixels shows of these keys of these jobs, a line each.

        A job without a key has no line for it.
        """
        query = {
            "job": [names] if isinstance(names, str) else list(names),
            "key": [keys] if isinstance(keys, str) else list(keys),
            "width": width,
            "x": x,
            "from": start,
            "to": end,
        }
        response = self._transport.get(f"{self._workspace_path}/metrics/chart", query)
        return Listing(_chart_line(line) for line in response["value"])

    def export(
        self,
        name: str | Sequence[str],
        file: Path | str,
        keys: Iterable[str] | None = None,
        *,
        x: By = "step",
        start: int | None = None,
        end: int | None = None,
    ) -> Path:
        """Write every point to a `.csv` or `.parquet` file, whatever their number.

        Columns: key, step, timestamp (CSV: ms since 1970; Parquet: a time in UTC), value; of
        several jobs, job before them.

        Args:
            name: of a job, or the names of up to 100; then keys that a job lacks are left out.

        Raises:
            InvalidInput: another suffix, or the server has no pyarrow for Parquet.
            NotFound: no such job or key.
        """
        target = Path(file)
        form = target.suffix.lower().lstrip(".")
        if form not in ("csv", "parquet"):
            raise InvalidInput(
                f"`{target.name}` is neither CSV nor Parquet", "end it in `.csv` or `.parquet`"
            )
        from torchyard.base.files import write_atomically

        query = {"format": form, "key": _list(keys), "x": x, "from": start, "to": end}
        path = f"{self._workspace_path}/metrics/export"
        if isinstance(name, str):
            path = f"{self._job_path(name)}/metrics/export"
        else:
            query["job"] = list(name)
        with (
            self._transport.stream(path, query) as response,
            write_atomically(target, mode=0o644) as file_written,
        ):
            while chunk := response.read(1 << 18):
                file_written.write(chunk)
        return target

    def history_frame(self, name: str, keys: Iterable[str] | None = None) -> DataFrame:
        """Every point as a pandas DataFrame: a row a point, in order of arrival by key.

        Columns: `key` (category), `step` (int64), `timestamp` (UTC, to the ms), `value` (float64).

        Raises:
            InvalidInput: pandas is not installed here.
        """
        pandas = _pandas()
        query = {"format": "csv", "key": _list(keys)}
        with self._transport.stream(f"{self._job_path(name)}/metrics/export", query) as response:
            frame = pandas.read_csv(
                response,
                dtype={"key": "category", "step": "int64", "timestamp": "int64"},
                # Python's own reading of floats is exact in every release of pandas.
                converters={"value": float},
                keep_default_na=False,
                encoding="utf-8",
            )
        frame["value"] = frame["value"].astype("float64")
        times = frame["timestamp"].to_numpy().astype("datetime64[ms]")
        frame["timestamp"] = pandas.Series(times).dt.tz_localize("UTC")
        return frame

    def metrics_frame(self, name: str, keys: Iterable[str] | None = None) -> DataFrame:
        """Metrics side by side as a pandas DataFrame: a row a step, a column a key.

        The index is `step`, ascending. A key that was not logged at a step is NaN there; of one
        that was logged several times at a step, the last counts.

        Raises:
            InvalidInput: pandas is not installed here.

        Example::

            client.jobs.metrics_frame("brave-otter")["loss"].plot()
        """
        frame = self.history_frame(name, keys)
        last = frame.drop_duplicates(["key", "step"], keep="last")
        wide = last.pivot(index="step", columns="key", values="value").sort_index()
        wide.columns = wide.columns.astype(str)
        wide.columns.name = None
        return wide

    def compare(self, names: Sequence[str]) -> list[tuple[str, list[Any]]]:
        """What these jobs are made of and came to, side by side.

        Returns:
            (what, its value for each job; None where a job has none), in this order: `status`,
            `duration_s`, `params.*`, `metrics.*` (last values), `inputs.*`, `environment`,
            `code` and other parts of the job file, `tags.*`.
        """
        sides = [flat(self.document(name)) for name in _list(names) or ()]
        keys = sorted({key for side in sides for key in side}, key=_rank)
        return [(key, [side.get(key) for side in sides]) for key in keys]

    def compare_frame(self, names: Sequence[str]) -> DataFrame:
        """`compare` as a pandas DataFrame: a row a job, its name the index.

        Raises:
            InvalidInput: pandas is not installed here.
        """
        pandas = _pandas()
        columns = dict(self.compare(names))
        return pandas.DataFrame(columns, index=pandas.Index(_list(names), name="name"))

    def document(self, name: str) -> Json:
        """The JSON of a job, as the server answers it.

        Raises:
            NotFound: no job has this name.
        """
        document: Json = self._transport.get(self._job_path(name))
        return document

    def _keys_of(self, name: str, keys: Iterable[str] | None) -> list[str]:
        chosen = _list(keys)
        return [row.key for row in self.metric_keys(name)] if chosen is None else chosen

    def _job_path(self, name: str) -> str:
        return f"{self._path}/{quote(name, safe='')}"


_ORDER = ("status", "duration_s", "params", "metrics", "inputs", "environment", "code", "command")
_SUMMARY_KEYS = (
    "status",
    "exit_code",
    "experiment_name",
    "compute",
    "node_count",
    "processes_per_node",
)
# Compared under another name, or different for every job.
_LEFT_OUT = (
    "name", "display_name", "experiment_name", "compute", "tags", "inputs", "type", "description",
)  # fmt: skip


def _input(value: Any) -> Any:
    """The path of data, the value of a literal in either form."""
    return value.get("value", value.get("path")) if isinstance(value, Mapping) else value


def flat(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job as names and values: `params.lr`, `metrics.loss`, `inputs.data`."""
    spec = job.get("spec") or {}
    values = {key: job.get(key) for key in _SUMMARY_KEYS}
    values["duration_s"] = job.get("duration_s")
    values["environment_hash"] = job.get("environment_hash")
    for group in ("params", "metrics", "tags"):
        for key, value in (job.get(group) or {}).items():
            values[f"{group}.{key}"] = _float(value) if group == "metrics" else value
    for key, value in (spec.get("inputs") or {}).items():
        values[f"inputs.{key}"] = _input(value)
    for key, value in spec.items():
        if key not in _LEFT_OUT:
            values |= dict(_leaves(key, value))
    return {key: value for key, value in values.items() if value is not None}


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(f"{name}.{key}", inner)
    else:
        yield name, value


def _rank(key: str) -> tuple[int, str]:
    group = key.partition(".")[0].partition("_hash")[0]
    return (_ORDER.index(group) if group in _ORDER else len(_ORDER), key)


def _list(keys: Iterable[str] | None) -> list[str] | None:
    return None if keys is None else [keys] if isinstance(keys, str) else list(keys)


def _float(value: Any) -> Any:
    """JSON has `NaN` and `Infinity` only as text."""
    return float(value) if isinstance(value, str) else value


def _summary(row: Json) -> MetricSummary:
    raw = {**row, **{key: _float(row[key]) for key in ("value", "min", "max")}}
    return MetricSummary(
        raw=raw,
        key=raw["key"],
        count=raw["count"],
        min=raw["min"],
        max=raw["max"],
        step=raw["step"],
        timestamp_ms=raw["timestamp"],
        value=raw["value"],
    )


def _chart_line(line: Json) -> ChartLine:
    raw = dict(line)
    for form in ("points", "columns"):
        if form in raw:
            raw[form] = [[x, *map(_float, values)] for x, *values in raw[form]]
    return ChartLine(
        raw=raw,
        job=raw["job"],
        key=raw["key"],
        count=raw["count"],
        points=[(x, value) for x, value in raw.get("points") or ()],
        columns=[(x, low, high) for x, low, high in raw.get("columns") or ()],
    )


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise InvalidInput(
            "this needs pandas, which is not installed here",
            "`pip install pandas`; or use `client.jobs.points(name)`",
            code="extra_missing",
        ) from error
