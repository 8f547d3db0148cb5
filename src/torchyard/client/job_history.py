"""What jobs logged, over HTTP: last values, charts, every point, files, tables of pandas.

Owns: requests for metrics, comparing jobs.
Leaves: reduction and files to the server.
Always: pandas is imported only by those who return its tables; NaN and infinities come as floats.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import quote

from torchyard.base.errors import InvalidInput
from torchyard.base.http import Transport
from torchyard.client.responses import Job, Record, Records

if TYPE_CHECKING:
    # Absent where nobody asks for tables, and without types where it is.
    DataFrame = Any

By = Literal["step", "time"]
Number = float | list[float]


class Point(NamedTuple):
    """One measurement; `timestamp` in ms since 1970."""

    step: int
    timestamp: int
    value: float


class JobHistory:
    """The history of one workspace's jobs; `client.jobs` is one."""

    def __init__(self, transport: Transport, here: str) -> None:
        self._transport = transport
        self._workspace = here
        self._here = f"{here}/jobs"

    def get(self, name: str) -> Job:
        """
        Raises:
            NotFound: no job has this name.
        """
        return Job(self._transport.get(self._of(name)))

    def metrics(self, name: str, keys: Iterable[str] | None = None) -> dict[str, Number]:
        """By key: the value when it was logged once, a list in order of arrival when several times.

        It reads every point; `get(name).metrics` holds the last values only.

        Args:
            keys: only these.

        Raises:
            NotFound: no such job or key.

        Example::

            client.jobs.metrics("brave-otter")["val_acc"][-1]
        """
        wanted = _list(keys)
        if wanted is None:
            wanted = [one["key"] for one in self.metric_keys(name)]
        found: dict[str, Number] = {}
        for key in wanted:
            values = [point.value for point in self.history(name, key)]
            found[key] = values[0] if len(values) == 1 else values
        return found

    def metric_keys(self, name: str) -> Records[Record]:
        """Every key, sorted: `count` of its points, `min`, `max`, and the last one's `step`,
        `timestamp` (ms since 1970) and `value`.
        """
        answer = self._transport.get(f"{self._of(name)}/metrics")
        return Records(Record(_with_floats(row)) for row in answer["value"])

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
    ) -> list[Point]:
        """The points of one key, exactly, in order of arrival.

        Args:
            x: what `start` and `end` (both included) count: steps, or ms since 1970.
            offset: leave out so many of the range's points first.
            limit: at most so many.

        Raises:
            NotFound: no such job or key.
        """
        query = {"key": key, "x": x, "from": start, "to": end, "offset": offset, "limit": limit}
        answer = self._transport.get(f"{self._of(name)}/metrics/history", query)
        return [Point(step, timestamp, float(value)) for step, timestamp, value in answer["points"]]

    def chart(
        self,
        names: str | Sequence[str],
        keys: str | Sequence[str],
        *,
        width: int = 1000,
        x: By = "step",
        start: int | None = None,
        end: int | None = None,
    ) -> list[dict[str, Any]]:
        """What a chart of `width` pixels shows of these keys of these jobs, a line each.

        Returns:
            A dict a line: `job`, `key`, `count`, and either `points`, every [x, value], or
            `columns`, [x, smallest, largest value from there to the next]. A job that lacks a key
            has no line for it.
        """
        query = {
            "job": [names] if isinstance(names, str) else list(names),
            "key": [keys] if isinstance(keys, str) else list(keys),
            "width": width,
            "x": x,
            "from": start,
            "to": end,
        }
        answer = self._transport.get(f"{self._workspace}/metrics/chart", query)
        return [_with_numbers(line) for line in answer["value"]]

    def export(
        self,
        name: str,
        file: Path | str,
        keys: Iterable[str] | None = None,
        *,
        x: By = "step",
        start: int | None = None,
        end: int | None = None,
    ) -> Path:
        """Write every point to a `.csv` or `.parquet` file, whatever their number.

        Columns: key, step, timestamp (CSV: ms since 1970; Parquet: a time in UTC), value.

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
        from torchyard.base.files import whole

        query = {"format": form, "key": _list(keys), "x": x, "from": start, "to": end}
        with (
            self._transport.stream(f"{self._of(name)}/metrics/export", query) as answer,
            whole(target) as writing,
        ):
            while chunk := answer.read(1 << 18):
                writing.write(chunk)
        return target

    def history_frame(self, name: str, keys: Iterable[str] | None = None) -> DataFrame:
        """Every point as a table of pandas: a row a point, in order of arrival by key.

        Columns: `key` (category), `step` (int64), `timestamp` (UTC, to the ms), `value` (float64).

        Raises:
            InvalidInput: pandas is not installed here.
        """
        pandas = _pandas()
        query = {"format": "csv", "key": _list(keys)}
        with self._transport.stream(f"{self._of(name)}/metrics/export", query) as answer:
            frame = pandas.read_csv(
                answer,
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
        """Metrics side by side as a table of pandas: a row a step, a column a key.

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
        sides = [flat(self.get(name)) for name in _list(names) or ()]
        keys = sorted({key for side in sides for key in side}, key=_rank)
        return [(key, [side.get(key) for side in sides]) for key in keys]

    def compare_frame(self, names: Sequence[str]) -> DataFrame:
        """`compare` as a table of pandas: a row a job, its name the index.

        Raises:
            InvalidInput: pandas is not installed here.
        """
        pandas = _pandas()
        columns = dict(self.compare(names))
        return pandas.DataFrame(columns, index=pandas.Index(_list(names), name="name"))

    def _of(self, name: str) -> str:
        return f"{self._here}/{quote(name, safe='')}"


_ORDER = ("status", "duration_s", "params", "metrics", "inputs", "environment", "code", "command")
_SAID = ("status", "exit_code", "experiment_name", "compute", "node_count", "processes_per_node")
# Told elsewhere, or different for every job.
_OWN = (
    "name", "display_name", "experiment_name", "compute", "tags", "inputs", "type", "description",
)  # fmt: skip


def flat(job: Mapping[str, Any]) -> dict[str, Any]:
    """A job as names and values: `params.lr`, `metrics.loss`, `inputs.data`."""
    from torchyard.client.times import seconds_between

    spec = job.get("spec") or {}
    found = {key: job.get(key) for key in _SAID}
    found["duration_s"] = seconds_between(job.get("started_at"), job.get("ended_at"))
    found["environment_hash"] = job.get("environment_hash")
    for group in ("params", "metrics", "tags"):
        for key, value in (job.get(group) or {}).items():
            found[f"{group}.{key}"] = _float(value) if group == "metrics" else value
    for key, value in (spec.get("inputs") or {}).items():
        found[f"inputs.{key}"] = value.get("path") if isinstance(value, Mapping) else value
    for key, value in spec.items():
        if key not in _OWN:
            found |= dict(_leaves(key, value))
    return {key: value for key, value in found.items() if value is not None}


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
    """JSON says `NaN` and `Infinity` as text."""
    return float(value) if isinstance(value, str) else value


def _with_floats(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, **{key: _float(row[key]) for key in ("value", "min", "max")}}


def _with_numbers(line: dict[str, Any]) -> dict[str, Any]:
    for form in ("points", "columns"):
        if form in line:
            line[form] = [[x, *map(_float, values)] for x, *values in line[form]]
    return line


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ImportError as error:
        raise InvalidInput(
            "this needs pandas, which is not installed here",
            "`pip install pandas`; or read `client.jobs.history(name, key)`",
            code="extra_missing",
        ) from error
