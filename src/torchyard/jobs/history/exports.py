"""Points as JSON, CSV and Parquet, written while they are read.

Owns: the form of each, and that a file of millions of points takes no more memory than one of few.
Leaves: reading to exact_points.py.
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
from torchyard.jobs.history.chart_store import Points
from torchyard.shared.record_rules import number_json

POINT_COLUMNS = ("step", "timestamp", "value")
# Parquet is read by groups of rows; small ones make a large file.
_ROWS_A_GROUP = 1 << 17
_PIECE_BYTES = 1 << 18

Series = Iterable[tuple[tuple[str, ...], Iterable[Points]]]
"""Labels, such as a job and a key, each with their points."""

Writer = Callable[[Series, tuple[str, ...]], Iterator[bytes]]
"""Writes a series whose labels stand in columns of these names."""


def as_json(key: str, pieces: Iterable[Points], offset: int, limit: int | None) -> Iterator[bytes]:
    """One object: `points`, a list of [step, timestamp, value], and `next`, an offset or null."""
    return _gathered(_json_pieces(key, pieces, offset, limit))


def as_csv(series: Series, labels: tuple[str, ...] = ("key",)) -> Iterator[bytes]:
    """A line a point, below a line of `labels` and `POINT_COLUMNS`; timestamps in ms since 1970."""
    return _gathered(_csv_pieces(series, labels))


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes in fewer pieces: each is handed from thread to thread, which takes a while."""
    waiting: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        waiting.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _PIECE_BYTES:
            yield b"".join(waiting)
            waiting, size_bytes = [], 0
    yield b"".join(waiting)


def _json_pieces(
    key: str, pieces: Iterable[Points], offset: int, limit: int | None
) -> Iterator[bytes]:
    yield json.dumps({"key": key, "columns": POINT_COLUMNS})[:-1].encode() + b', "points": ['
    written = 0
    for points in pieces:
        if not points.values:
            continue
        text = json.dumps(list(zip(points.steps, points.timestamps, _numbers(points), strict=True)))
        yield (b", " if written else b"") + text[1:-1].encode()
        written += len(points.values)
    following = offset + written if limit is not None and written == limit else None
    yield b'], "next": %s}' % json.dumps(following).encode()


def _csv_pieces(series: Series, labels: tuple[str, ...]) -> Iterator[bytes]:
    yield ",".join(labels + POINT_COLUMNS).encode() + b"\n"
    for texts, pieces in series:
        quoted = ",".join(map(_csv_field, texts))
        for points in pieces:
            rows = zip(points.steps, points.timestamps, _numbers(points), strict=True)
            yield "".join(
                [f"{quoted},{step},{time},{value}\n" for step, time, value in rows]
            ).encode()


def _csv_field(text: str) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="").writerow([text, ""])
    return buffer.getvalue()[:-1]


def parquet() -> Writer:
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
    return lambda series, labels: _as_parquet(arrow, files, series, labels)


def _as_parquet(arrow: Any, files: Any, series: Series, labels: tuple[str, ...]) -> Iterator[bytes]:
    schema = arrow.schema(
        [
            *((label, arrow.dictionary(arrow.int32(), arrow.string())) for label in labels),
            ("step", arrow.int64()),
            ("timestamp", arrow.timestamp("ms", tz="UTC")),
            ("value", arrow.float64()),
        ]
    )
    sink = _Sink()
    # Steps and times go up by nearly the same each time: their differences take next to no room.
    packed = dict.fromkeys(("step", "timestamp"), "DELTA_BINARY_PACKED")
    with files.ParquetWriter(
        sink, schema, use_dictionary=list(labels), column_encoding=packed
    ) as writer:
        for texts, pieces in series:
            for group in _groups(pieces):
                count = len(group.values)
                columns = [
                    arrow.DictionaryArray.from_arrays(
                        arrow.array([0] * count, arrow.int32()), arrow.array([text])
                    )
                    for text in texts
                ]
                points = zip(
                    POINT_COLUMNS, (group.steps, group.timestamps, group.values), strict=True
                )
                for name, numbers in points:
                    kind = schema.field(name).type
                    buffers = [None, arrow.py_buffer(numbers)]
                    columns.append(arrow.Array.from_buffers(kind, count, buffers))
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
