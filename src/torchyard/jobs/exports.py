"""Points as JSON, CSV and Parquet, written while they are read.

Owns: the form of each, and that a file of millions of points takes no more memory than one of few.
Leaves: reading to exact_history.py.
Always: a value is written so that reading it gives the same float; NaN and infinities are `NaN`,
`Infinity` and `-Infinity`, which pandas reads.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torchyard.base.errors import InvalidInput
from torchyard.jobs.chart_store import Points
from torchyard.jobs.history import number_json

COLUMNS = ("key", "step", "timestamp", "value")
# Parquet is read by groups of rows; small ones make a large file.
_ROWS_A_GROUP = 1 << 17

Series = Iterable[tuple[str, Iterable[Points]]]
"""Keys, each with its points."""


def as_json(key: str, pieces: Iterable[Points], offset: int, limit: int | None) -> Iterator[bytes]:
    """One object: `points`, a list of [step, timestamp, value], and `next`, an offset or null."""
    yield json.dumps({"key": key, "columns": COLUMNS[1:]})[:-1].encode() + b', "points": ['
    written = 0
    for points in pieces:
        if not points.values:
            continue
        text = json.dumps(list(zip(points.steps, points.timestamps, _numbers(points), strict=True)))
        yield (b", " if written else b"") + text[1:-1].encode()
        written += len(points.values)
    following = offset + written if limit is not None and written == limit else None
    yield b'], "next": %s}' % json.dumps(following).encode()


def as_csv(series: Series) -> Iterator[bytes]:
    """A line a point, below a line of `COLUMNS`; timestamps in ms since 1970."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for key, pieces in series:
        for points in pieces:
            keys = [key] * len(points.values)
            rows = zip(keys, points.steps, points.timestamps, _numbers(points), strict=True)
            writer.writerows(rows)
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode()


def parquet() -> Callable[[Series], Iterator[bytes]]:
    """A function as `as_csv`; the column `timestamp` holds times in UTC.

    Raises:
        InvalidInput: the server lacks pyarrow.
    """
    try:
        arrow = importlib.import_module("pyarrow")
        files = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise InvalidInput(
            "this server can't write Parquet: it has no pyarrow",
            "install it where the server runs: `pip install 'torchyard[parquet]'`; or export CSV",
            code="extra_missing",
        ) from error
    return lambda series: _as_parquet(arrow, files, series)


def _as_parquet(arrow: Any, files: Any, series: Series) -> Iterator[bytes]:
    schema = arrow.schema(
        [
            ("key", arrow.dictionary(arrow.int32(), arrow.string())),
            ("step", arrow.int64()),
            ("timestamp", arrow.timestamp("ms", tz="UTC")),
            ("value", arrow.float64()),
        ]
    )
    sink = _Sink()
    with files.ParquetWriter(sink, schema) as writer:
        for key, pieces in series:
            for group in _groups(pieces):
                count = len(group.values)
                keys = arrow.DictionaryArray.from_arrays(
                    arrow.array([0] * count, arrow.int32()), arrow.array([key])
                )
                columns = [
                    keys,
                    arrow.array(group.steps, arrow.int64()),
                    arrow.array(group.timestamps, arrow.int64()).cast(schema.field(2).type),
                    arrow.array(group.values, arrow.float64()),
                ]
                writer.write_table(arrow.Table.from_arrays(columns, schema=schema))
                yield sink.taken()
    yield sink.taken()


def _groups(pieces: Iterable[Points]) -> Iterator[Points]:
    """The same points in larger pieces."""
    group: Points | None = None
    for points in pieces:
        if not points.values:
            continue
        if group is None:
            group = Points(points.timestamps[:], points.steps[:], points.values[:])
        else:
            group.timestamps.extend(points.timestamps)
            group.steps.extend(points.steps)
            group.values.extend(points.values)
        if len(group.values) >= _ROWS_A_GROUP:
            yield group
            group = None
    if group is not None:
        yield group


class _Sink(io.RawIOBase):
    """A file that is only written: what was written is taken away bit by bit."""

    def __init__(self) -> None:
        super().__init__()
        self._written: list[bytes] = []
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, chunk: Any) -> int:
        content = bytes(chunk)
        self._written.append(content)
        self._size_bytes += len(content)
        return len(content)

    def taken(self) -> bytes:
        content = b"".join(self._written)
        self._written.clear()
        return content


def _numbers(points: Points) -> Iterable[float | str]:
    if math.isfinite(sum(points.values)):
        return points.values
    return map(number_json, points.values)
